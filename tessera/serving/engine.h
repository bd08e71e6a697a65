// Behind the server: what computes the answers, as the protocols see it. LibTorch stands behind this
// interface, so that protocols are tested without it (generation/serving_engine.h implements it).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/scoring/token_log_probs.h"
#include "tessera/text/constraint/constraint.h"

namespace tessera::serving {

// How the tokens of an answer are chosen; generation/sampling.h and answer_biases.h have the meaning and the
// ranges.
struct Sampling {
  double temperature = 1.0, top_p = 1.0, min_p = 0.0, repetition_penalty = 1.0;
  double presence_penalty = 0.0, frequency_penalty = 0.0;
  int64_t top_k = 0;
  uint64_t seed = 0;
  uint64_t sequence = 0;  // number of the answer among those of one seed and prompt
  std::vector<std::pair<int64_t, double>> logit_bias = {};  // token ids, each once, and what is added
  int64_t min_new_tokens = 0;
  std::vector<std::vector<int64_t>> bad_words = {};  // as their tokens
};

// Complete: the constraint of the answer lets nothing follow, and no stop id was needed to end it. Refused:
// the request is at fault, as by a constraint that turns out to be too ambiguous; Failed: the server is.
enum class EndReason { Stop, Complete, Length, Cancelled, Refused, Failed };

// Takes one answer. The engine calls it from its own thread, in this order: of_prompt(), then for each token
// log_probs() and token(), then cached(), and end() last and always. The calls must be short, and may cancel
// answers.
class AnswerReceiver {
 public:
  virtual ~AnswerReceiver() = default;
  // Tells the log-probabilities of the prompt's tokens behind the first, if EngineRequest::scores_prompt.
  virtual void of_prompt(const std::vector<scoring::TokenLogProbs>& log_probs) = 0;
  // Tells that of the next token, if EngineRequest::wants_log_probs; also that of a stop id, for which
  // token() is not called.
  virtual void log_probs(int64_t id, const scoring::TokenLogProbs& log_probs) = 0;
  // Takes the next token; returns whether the answer goes on. If it does not, it ends with EndReason::Stop.
  virtual bool token(int64_t id) = 0;
  // Tells how many tokens of the prompt were in the engine's cache already, if there were any.
  virtual void cached(int64_t tokens) = 0;
  // `problem` tells the user why the answer was refused or has failed; it is empty for any other reason.
  virtual void end(EndReason reason, const std::string& problem) = 0;
};

// Takes the embeddings of the texts of one request. The engine calls it from its own thread: embedding() once
// for each text, in their order, and end() last and always. The calls must be short.
class EmbeddingReceiver {
 public:
  virtual ~EmbeddingReceiver() = default;
  virtual void embedding(std::vector<float> values) = 0;
  // The reason is Stop when all embeddings are there; `problem` as in AnswerReceiver.
  virtual void end(EndReason reason, const std::string& problem) = 0;
};

struct EmbeddingRequest {
  std::vector<std::vector<int64_t>> texts;  // their tokens, at least one of each
  bool normalizes = true;                   // to vectors of length 1
  std::shared_ptr<EmbeddingReceiver> receiver;
  int64_t adapter = 0;  // ServedModel::adapter
};

struct EngineRequest {
  std::vector<int64_t> prompt;
  Sampling sampling;
  int64_t max_new_tokens = 1;     // at least 1
  int64_t adapter = 0;            // ServedModel::adapter
  std::string cache_salt;         // only requests of one salt share what the cache holds of their prompts
  std::vector<int64_t> stop_ids;  // a stop id ends the answer and is not part of it; may be empty
  std::shared_ptr<text::Constraint> constraint;  // what the answer has to match; null = anything
  bool wants_log_probs = false, scores_prompt = false;
  int64_t num_top = 0;  // the number of likeliest tokens beside each log-probability
  std::shared_ptr<AnswerReceiver> receiver;
};

// Facts that hold for all requests.
struct EngineFacts {
  int64_t vocabulary = 0;
  int64_t context = 0;        // the most tokens of a prompt; with its answer one more
  int64_t cache_tokens = 0;   // the most tokens of all prompts and answers that are worked on; 0 = no bound
  int64_t max_sequences = 1;  // answers that are worked on at once, and those that may wait besides
  int64_t max_waiting = 0;
  int64_t embedding_size = 0;
  // Why the model gives no answers, or no embeddings; empty if it does.
  std::string no_answers, no_embeddings;
};

// The state of this moment.
struct EngineState {
  int64_t running = 0, waiting = 0;
  double cache_usage = 0.0;   // the part of the cache that is in use, 0 to 1
  int64_t prompt_tokens = 0;  // of the prompts that were read so far
  int64_t new_tokens = 0;     // made so far
  int64_t preemptions = 0;    // answers that were put back among the waiting ones so far
  // Tokens of prompts that were looked up in the cache so far, and of those that it had.
  int64_t looked_up_tokens = 0, found_tokens = 0;
  // Drafts so far, their tokens, and those of them that became tokens of answers.
  int64_t drafts = 0, drafted_tokens = 0, accepted_tokens = 0;
};

// All functions may be called from any thread.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual EngineFacts facts() const = 0;
  virtual EngineState state() const = 0;
  // Queues all of the requests and returns their numbers; or queues none and returns nothing if they do not
  // fit among those that wait. Prompts and sampling must have been checked.
  virtual std::optional<std::vector<int64_t>> submit(std::vector<EngineRequest> requests) = 0;
  // Queues a request for embeddings and returns its number; nothing if it does not fit. Its texts must have
  // been checked.
  virtual std::optional<int64_t> embed(EmbeddingRequest request) = 0;
  // Ends an answer, or a request for embeddings, before the next step, with EndReason::Cancelled; does
  // nothing if it has ended.
  virtual void cancel(int64_t number) = 0;
};

}  // namespace tessera::serving

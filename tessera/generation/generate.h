// Text generation token by token, many sequences at once.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tessera/generation/cache_type.h"
#include "tessera/generation/continuation.h"
#include "tessera/generation/model_runner.h"
#include "tessera/generation/running_request.h"
#include "tessera/generation/token_log_probs.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/scoring/token_log_probs.h"

namespace tessera::generation {

struct GeneratorOptions {
  int64_t max_batch = 8;         // the most sequences that are worked on at once
  int64_t max_cache_tokens = 0;  // the most tokens of their prompts and answers together; 0 = no bound
  // Prompts are read together up to this many tokens; a longer one is read alone. With 1 each is read alone,
  // an answer that was put back is fed again one token a step, as it was made, and a result is the same to
  // the last bit in any batch of at most ops::kSmallLinearRows; otherwise products of several sizes round
  // differently.
  int64_t max_prefill_tokens = 1024;
  // The most passes over prompts between two decoding steps while sequences run, so that many prompts do not
  // keep these waiting; 0 = no bound.
  int64_t max_prefills = 0;
  // A longer prompt is read in parts of at most this many tokens, one pass each, and smaller ones far from
  // its beginning ([Note: parts of prompts]); 0 = prompts are read whole.
  int64_t max_part_tokens = 0;
  // The rest of a prompt is read in one pass, and with others, if it is at most this many parts.
  int64_t whole_parts = 1;
  // If set, requests that begin alike share the pages of their beginning, and pages outlive their requests
  // until their memory is needed. A request is then fed only what lies behind the pages that are known. Needs
  // max_cache_tokens, and a model for which why_no_shared_pages() has no reason. Pages of answers are shared
  // too, unless max_prefill_tokens is 1: then only those are that hold whole parts of max_part_tokens, which
  // must be a multiple of nn::KvCache::kPageTokens, of a prompt, and a result has the same bits as without.
  // Requests that want the log-probabilities of their prompts neither use such pages nor leave any.
  bool shares_pages = false;
  // The most elements of the logits of one pass over prompts whose log-probabilities are wanted; a longer
  // prompt is read in parts.
  int64_t max_logits = kMaxLogits;
  bool records = true;  // whether decoding steps are recorded, if the device can (ModelRunner)
  // A step may check a draft of up to this many tokens behind each text that repeats itself (drafts.h), and
  // then makes several tokens of it at once; 0 = no drafts. There are none either for a model for which
  // why_no_drafts() has a reason. Answers are the same but for the rounding of products of other sizes.
  int64_t max_draft_tokens = 0;
  CacheType cache_type = CacheType::Model;
  // For ranks that share a model and make the same calls while the first one alone has the requests'
  // callbacks and constraints: `tell` takes, on the first rank, what each sequence of a batch got: its token,
  // kEnded if it has ended, or kNoToken if it goes on without one. `hear` returns, on the others, what `tell`
  // took; they choose nothing themselves, and keep no results.
  std::function<void(const std::vector<int64_t>&)> tell = nullptr;
  std::function<std::vector<int64_t>()> hear = nullptr;
  // Called before each pass of the model. The passes over a prompt whose log-probabilities are wanted may
  // count as one.
  std::function<void()> before_pass = nullptr;
  static constexpr int64_t kEnded = -1, kNoToken = -2;
};

// The time that was spent on prompts and on new tokens, in seconds, and the number of tokens in it.
struct GenerationTimes {
  double prefill_s = 0.0, decode_s = 0.0;
  int64_t prefill_tokens = 0;  // tokens of prompts, and of answers that were put back, as often as read
  int64_t decode_tokens = 0;   // new tokens, without each sequence's first, which comes out of its prefill

  // Adds the times of another Generator that runs at the same time: tokens add up, and of times the longer
  // ones count.
  void join(const GenerationTimes& other);
};

// Counts the work of a Generator so far.
struct GeneratorCounts {
  int64_t prompt_tokens = 0;  // of the requests that have got their first token
  int64_t preemptions = 0;    // requests that were put back among the waiting ones
  // Tokens of prompts for which pages were looked up, and of the pages that were found; each request counts
  // once.
  int64_t looked_up_tokens = 0, found_tokens = 0;
  // Drafts, their tokens, and those of them that became tokens of answers.
  int64_t drafts = 0, drafted_tokens = 0, accepted_tokens = 0;
};

// Returns why requests to the model cannot share pages of a cache; empty if they can.
std::string why_no_shared_pages(const models::CausalLM& model);

// Continuous batching: requests may be added at any time, wait for a place, and leave as soon as they are
// finished; each step makes one token of every running sequence, or several of one with a draft. If the cache
// has no page for the next step, the youngest request goes back to those that wait, and its text is fed to
// the model again later: it gets the tokens that it would have got, and those that it has are not told again.
// A request's result does not depend on the other requests, except for the rounding of products over several
// tokens (see max_prefill_tokens). One thread uses a Generator; the model must outlive it and should be in
// eval mode. Collective if the model's next_logits() is: all ranks then make the same calls.
class Generator {
 public:
  explicit Generator(models::CausalLM& model, const GeneratorOptions& options = {});
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  // Queues a request and returns its number. Throws what Continuation's constructor throws, and Error(Config)
  // for a request larger than the whole cache.
  int64_t add(GenerationRequest request);
  // Admits waiting requests while there is room, and makes at least one token of every running sequence.
  // Returns false if there was nothing to do. May throw what a callback or the model throws. A callback's
  // exception, and an Error(Numerics) for a request's logits, end that request; an exception while prompts
  // are read ends the requests whose prompts these are. All other requests stay as they were.
  bool step();
  // Ends a request, whether it waits or runs, also from a callback; its result has the reason Callback.
  void cancel(int64_t request);
  // Returns the result of a finished request, once; nothing while the request is waiting or running.
  std::optional<Generation> take(int64_t request);

  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t num_running() const { return std::ssize(running_) + std::ssize(reading_); }
  const GenerationTimes& times() const { return times_; }
  const GeneratorCounts& counts() const { return counts_; }
  const nn::KvCache& cache() const { return cache_; }
  // Tells whether the last step() ended by an exception of the model itself, after which ranks that share it
  // may be at different places.
  bool has_broken_off() const { return is_in_pass_; }

 private:
  // Requests whose prompts one pass reads.
  struct Group {
    std::vector<RunningRequest> members;
    int64_t tokens = 0, num_logits = 0;  // that are read, and that are wanted after them
  };
  // A chosen token, or why there is none.
  struct Chosen {
    int64_t token = -1;
    scoring::TokenLogProbs log_probs;  // if they are wanted
    std::exception_ptr failure;
  };

  // Returns the number of tokens at whose multiples a shared beginning may end; 0 if nothing is shared.
  static int64_t share_unit(const models::CausalLM& model, const GeneratorOptions& options);
  // The number of tokens of the text that passes over prompts read.
  int64_t size_to_read(const RunningRequest& request) const {
    return replays_ ? request.prompt_size() : request.text_size();
  }
  // Tells whether a request may use and leave shared pages.
  bool shares(const RunningRequest& request) const {
    return share_unit_ > 0 && !request.options.on_prompt_log_probs;
  }
  // Returns the keys of the pages with which a waiting request may begin, and of those of them that the cache
  // holds.
  std::span<const nn::PageKey> sharable_pages(const RunningRequest& request) const;
  std::span<const nn::PageKey> known_pages(const RunningRequest& request) const;
  // Tells whether one of the requests is about to fill a page with which a waiting one may begin.
  bool will_share(std::span<const RunningRequest> requests, const RunningRequest& next) const;
  // Gives the cache the keys of the pages that it now holds of a request.
  void give_keys(RunningRequest& request);
  // The number of tokens that the cache holds of a request besides its text: virtual ones, and the start of
  // an encoder-decoder's target.
  int64_t num_tokens_besides() const;
  // The number of tokens of the text that passes over prompts are yet to read.
  int64_t num_unread(const RunningRequest& request) const;
  // The number of them after which logits are wanted.
  int64_t num_logits(const RunningRequest& request) const {
    return request.scores_prompt() ? num_unread(request) : 1;
  }
  // The number of tokens of the next part of a request, if it has more.
  int64_t part_size(const RunningRequest& request) const;
  // Tells whether more of a request is unread than is read in one pass.
  bool is_long(const RunningRequest& request) const {
    return options_.max_part_tokens > 0 && num_unread(request) > options_.whole_parts * part_size(request);
  }
  // The pages that the unread tokens of requests in the cache will take.
  int64_t pages_to_read(std::span<const RunningRequest> requests) const;
  // Returns the waiting request that starts next: the oldest one that need not wait for pages of a prompt
  // that is being read; the end if there is none.
  std::deque<RunningRequest>::const_iterator next_waiting() const;
  // Tells whether this one may start beside the group.
  bool has_room(const Group& group) const;
  // Tells whether it may be read in one pass with the group.
  bool can_join(const Group& group) const;
  // Reads prompts, or a part of a long one; returns whether there were any.
  bool admit();
  // Takes the waiting request that starts next, with a sequence of its own.
  RunningRequest take_waiting();
  // Reads the next part of one of the long prompts.
  void read_part();
  // Reads the prompts of the group, whose sequences are there.
  NextLogits read_prompts(std::vector<RunningRequest>& group);
  // Reads the next `count` tokens of a prompt that has more.
  void read_beginning(RunningRequest& request, int64_t count);
  // The pages that one more token of each running sequence and the prompts that are being read in parts need.
  int64_t pages_of_step() const;
  // Puts the youngest requests back until the cache has the pages of the next decoding step.
  void make_room_for_step();
  void put_back(RunningRequest request);
  // Makes one token of every running sequence. Returns the last exception that ended a request, if any.
  std::exception_ptr decode();
  // Gives running sequences drafts where they may have some; returns whether any has got one.
  bool make_drafts();
  // Does what decode() does, and makes the further tokens that drafts had right.
  std::exception_ptr decode_with_drafts();
  // Takes the tokens of a round (see [Note: drafts]) as fed, and makes their logits of those of the step.
  NextLogits logits_of_round(std::vector<RunningRequest>& round, const at::Tensor& logits);
  // Takes from running_ the requests whose last token is the next one of their draft, and ends all other
  // drafts.
  std::vector<RunningRequest> take_right_drafts();
  // Ends requests that have failed together.
  void end_all(std::vector<RunningRequest>& requests);
  // Chooses the next token of each sequence of the batch whose text has been fed.
  std::vector<Chosen> choose_tokens(const std::vector<RunningRequest>& batch, const NextLogits& logits) const;
  // Gives each of these sequences its next token, moves those that go on to running_ and finishes the
  // others. Returns the last exception that ended a request, if any.
  std::exception_ptr take_tokens(std::vector<RunningRequest> batch, const NextLogits& logits);
  // Does the part of take_tokens() on a rank that hears what the first one has chosen.
  void take_heard(std::vector<RunningRequest> batch);
  // Tells a sequence its token and the log-probabilities that it wants; returns whether it goes on.
  bool give(RunningRequest& running, const Chosen& chosen);
  // Calls `work`, which runs the model; has_broken_off() if it throws.
  template <class Work>
  void in_pass(const Work& work) {
    if (options_.before_pass) options_.before_pass();
    is_in_pass_ = true;
    work();
    is_in_pass_ = false;
  }
  // Frees the sequence's part of the cache and stores its result.
  void finish(RunningRequest& running);

  models::CausalLM& model_;
  GeneratorOptions options_;
  int64_t max_logits_;  // rows of the logits of prompts in one pass
  nn::KvCache cache_;
  ModelRunner runner_;
  const int64_t share_unit_;  // pages are shared up to multiples of this many tokens; 0 = not at all
  const bool replays_;        // feeds an answer again one token a step, not by a pass over prompts
  int64_t next_ = 0;          // number of the next request
  std::deque<RunningRequest> waiting_;  // the oldest first
  std::vector<RunningRequest> running_;
  std::vector<RunningRequest> reading_;  // requests whose prompts are being read in parts
  int64_t num_passes_ = 0;               // over whole prompts since the last part of a long one
  int64_t num_parts_ = 0;                // that were read so far
  std::map<int64_t, Generation> finished_;
  bool is_in_pass_ = false;      // whether the model is at work, or was when an exception came
  bool is_taking_ = false;       // whether take_tokens() is handing tokens to callbacks
  std::set<int64_t> cancelled_;  // requests that were cancelled meanwhile
  GenerationTimes times_;
  GeneratorCounts counts_;
};

// Continues one prompt. Stops before the sequence would become longer than the model can generate. Throws
// what Generator::add() and Generator::step() throw.
Generation generate(models::CausalLM& model, const std::vector<int64_t>& prompt,
                    const GenerateOptions& options);

}  // namespace tessera::generation

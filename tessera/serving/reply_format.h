// The JSON of answers: what a protocol makes of them, whole and streamed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/serving/answer.h"
#include "tessera/serving/api_error.h"
#include "tessera/serving/fields.h"

namespace tessera::serving {

struct Usage {
  int64_t prompt_tokens = 0, new_tokens = 0;
  int64_t cached_tokens = 0;  // those of the prompts that were in the engine's cache
};

// Facts of a reply that all its parts tell.
struct ReplyFacts {
  std::string id, model;
  int64_t created = 0;  // seconds since 1970
  int64_t num_answers = 1, prompt_tokens = 0;
  bool includes_usage = false;  // a stream tells the usage at its end
};

// A call of a tool, or what a stream adds to it: then only the first part has the id and the name.
struct ToldCall {
  int64_t index = 0;
  std::string id, name, arguments;
};

// An answer, or what a stream adds to it.
struct Piece {
  int64_t index = 0;
  std::string text, reasoning;
  std::vector<ToldCall> calls;
  const std::vector<ToldToken>* tokens = nullptr;  // null if log-probabilities are not wanted
  std::string finish_reason;                       // "stop", "tool_calls", "length"; "" before the end
  std::string stop;                                // the stop text that ended it, if one did
};

// Sends an event of a stream; `name` is "" for one without a name.
using SendEvent = std::function<void(const std::string& name, const std::string& data)>;

class ReplyFormat {
 public:
  virtual ~ReplyFormat() = default;
  virtual std::string id_prefix() const = 0;
  virtual std::string call_prefix() const { return "chatcmpl-tool-"; }  // of the ids of calls
  // Returns the reply to a request that is not streamed; `answers` are in the order of their numbers.
  virtual Json whole(const ReplyFacts& facts, const std::vector<Json>& answers, const Usage& usage) const = 0;
  // Returns one of these answers.
  virtual Json answer(const Piece& piece) const = 0;

  // The parts of a stream: its begin, pieces of answers, the last of each with a reason, and its end, or an
  // error in its place.
  virtual void begin(const ReplyFacts& facts, const SendEvent& send) const = 0;
  virtual void piece(const ReplyFacts& facts, const Piece& piece, const SendEvent& send) const = 0;
  virtual void end(const ReplyFacts& facts, const Usage& usage, const SendEvent& send) const = 0;
  virtual void fail(const ApiError& error, const SendEvent& send) const = 0;
  // Returns the body of a reply that is an error.
  virtual std::string error_body(const ApiError& error) const = 0;
};

// The common part of completions and chats of the OpenAI API.
class OpenAiFormat : public ReplyFormat {
 public:
  Json whole(const ReplyFacts& facts, const std::vector<Json>& answers, const Usage& usage) const override;
  void piece(const ReplyFacts& facts, const Piece& piece, const SendEvent& send) const override;
  void end(const ReplyFacts& facts, const Usage& usage, const SendEvent& send) const override;
  void fail(const ApiError& error, const SendEvent& send) const override;
  std::string error_body(const ApiError& error) const override { return error.body(); }

 protected:
  virtual std::string object(bool is_streamed) const = 0;
  virtual Json choice(const Piece& piece, bool is_streamed) const = 0;
  // Sends an event with these choices.
  void send_chunk(const ReplyFacts& facts, Json choices, const Json& usage, const SendEvent& send) const;
};

class CompletionFormat : public OpenAiFormat {
 public:
  std::string id_prefix() const override { return "cmpl-"; }
  Json answer(const Piece& piece) const override { return choice(piece, false); }
  void begin(const ReplyFacts&, const SendEvent&) const override {}

 protected:
  std::string object(bool) const override { return "text_completion"; }
  Json choice(const Piece& piece, bool is_streamed) const override;
};

class ChatFormat : public OpenAiFormat {
 public:
  // `is_named` tells that the request names the function to call: the answer then ends with "stop".
  explicit ChatFormat(bool is_named) : is_named_(is_named) {}
  std::string id_prefix() const override { return "chatcmpl-"; }
  Json answer(const Piece& piece) const override { return choice(piece, false); }
  void begin(const ReplyFacts& facts, const SendEvent& send) const override;

 protected:
  std::string object(bool is_streamed) const override {
    return is_streamed ? "chat.completion.chunk" : "chat.completion";
  }
  Json choice(const Piece& piece, bool is_streamed) const override;

 private:
  const bool is_named_;
};

// Returns JSON as one line of text, in which no bytes are left that are not UTF-8.
std::string text_of(const Json& json);

}  // namespace tessera::serving

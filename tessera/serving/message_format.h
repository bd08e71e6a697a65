// Replies in the form of Anthropic's Messages API.
#pragma once

#include <string>
#include <vector>

#include "tessera/serving/reply_format.h"

namespace tessera::serving {

class MessageFormat : public ReplyFormat {
 public:
  std::string id_prefix() const override { return "msg_"; }
  std::string call_prefix() const override { return "toolu_"; }
  Json whole(const ReplyFacts& facts, const std::vector<Json>& answers, const Usage& usage) const override;
  Json answer(const Piece& piece) const override;
  void begin(const ReplyFacts& facts, const SendEvent& send) const override;
  void piece(const ReplyFacts& facts, const Piece& piece, const SendEvent& send) const override;
  void end(const ReplyFacts& facts, const Usage& usage, const SendEvent& send) const override;
  void fail(const ApiError& error, const SendEvent& send) const override;
  std::string error_body(const ApiError& error) const override { return message_error(error); }

  // Returns {"type": "error", "error": {"type", "message"}}, as text.
  static std::string message_error(const ApiError& error);

 private:
  // Ends the block that is open, if there is one, and begins the next one.
  void open(const Json& block, const SendEvent& send) const;
  void close(const SendEvent& send) const;

  // The end of the answer, which the stream tells together with the usage.
  mutable Json stop_;
  // The block that is open: its number, and its type or "".
  mutable int64_t block_ = -1;
  mutable std::string open_;
};

}  // namespace tessera::serving

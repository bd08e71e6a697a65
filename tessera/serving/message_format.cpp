#include "tessera/serving/message_format.h"

#include <utility>

namespace tessera::serving {
namespace {

Json stop_of(const Piece& piece) {
  if (!piece.stop.empty()) return {{"stop_reason", "stop_sequence"}, {"stop_sequence", piece.stop}};
  return {{"stop_reason", piece.finish_reason == "length" ? "max_tokens" : "end_turn"},
          {"stop_sequence", nullptr}};
}

void send_event(const char* type, Json event, const SendEvent& send) {
  Json whole = {{"type", type}};
  whole.update(event);
  send(type, text_of(whole));
}

}  // namespace

Json MessageFormat::answer(const Piece& piece) const {
  Json answer = {{"content", Json::array({{{"type", "text"}, {"text", piece.text}}})}};
  answer.update(stop_of(piece));
  return answer;
}

Json MessageFormat::whole(const ReplyFacts& facts, const std::vector<Json>& answers,
                          const Usage& usage) const {
  Json reply = {{"id", facts.id}, {"type", "message"}, {"role", "assistant"}, {"model", facts.model}};
  reply.update(answers.at(0));
  reply["usage"] = {{"input_tokens", usage.prompt_tokens}, {"output_tokens", usage.new_tokens}};
  return reply;
}

void MessageFormat::begin(const ReplyFacts& facts, const SendEvent& send) const {
  const Json message = {
      {"id", facts.id},           {"type", "message"},
      {"role", "assistant"},      {"model", facts.model},
      {"content", Json::array()}, {"stop_reason", nullptr},
      {"stop_sequence", nullptr}, {"usage", {{"input_tokens", facts.prompt_tokens}, {"output_tokens", 0}}}};
  send_event("message_start", {{"message", message}}, send);
  send_event("content_block_start", {{"index", 0}, {"content_block", {{"type", "text"}, {"text", ""}}}},
             send);
}

void MessageFormat::piece(const ReplyFacts&, const Piece& piece, const SendEvent& send) const {
  if (!piece.text.empty()) {
    send_event("content_block_delta",
               {{"index", 0}, {"delta", {{"type", "text_delta"}, {"text", piece.text}}}}, send);
  }
  if (piece.finish_reason.empty()) return;
  stop_ = stop_of(piece);
  send_event("content_block_stop", {{"index", 0}}, send);
}

void MessageFormat::end(const ReplyFacts&, const Usage& usage, const SendEvent& send) const {
  send_event("message_delta", {{"delta", stop_}, {"usage", {{"output_tokens", usage.new_tokens}}}}, send);
  send_event("message_stop", Json::object(), send);
}

void MessageFormat::fail(const ApiError& error, const SendEvent& send) const {
  send("error", message_error(error));
}

std::string MessageFormat::message_error(const ApiError& error) {
  const char* const type = error.status() == 401   ? "authentication_error"
                           : error.status() == 404 ? "not_found_error"
                           : error.status() == 413 ? "request_too_large"
                           : error.status() == 503 ? "overloaded_error"
                           : error.status() >= 500 ? "api_error"
                                                   : "invalid_request_error";
  return text_of(Json{{"type", "error"}, {"error", {{"type", type}, {"message", error.what()}}}});
}

}  // namespace tessera::serving

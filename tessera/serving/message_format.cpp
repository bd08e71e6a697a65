#include "tessera/serving/message_format.h"

#include <utility>

namespace tessera::serving {
namespace {

Json stop_of(const Piece& piece) {
  if (!piece.stop.empty()) return {{"stop_reason", "stop_sequence"}, {"stop_sequence", piece.stop}};
  return {{"stop_reason", piece.finish_reason == "length"       ? "max_tokens"
                          : piece.finish_reason == "tool_calls" ? "tool_use"
                                                                : "end_turn"},
          {"stop_sequence", nullptr}};
}

Json use_of(const ToldCall& call, const Json& input) {
  return {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", input}};
}

// The arguments of a call that max_tokens has cut are no object; the stream alone tells them.
Json input_of(const std::string& arguments) {
  try {
    return parse_body(arguments);
  } catch (const ApiError&) {
    return Json::object();
  }
}

// Input tokens are those that were read: here, unlike in OpenAI's form, what the cache knew counts apart.
Json usage_of(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.new_tokens}};
}

void send_event(const char* type, Json event, const SendEvent& send) {
  Json whole = {{"type", type}};
  whole.update(event);
  send(type, text_of(whole));
}

}  // namespace

Json MessageFormat::answer(const Piece& piece) const {
  Json content = Json::array();
  if (!piece.text.empty() || piece.calls.empty()) content.push_back({{"type", "text"}, {"text", piece.text}});
  for (const ToldCall& call : piece.calls) {
    content.push_back(use_of(call, input_of(call.arguments)));
  }
  Json answer = {{"content", std::move(content)}};
  answer.update(stop_of(piece));
  return answer;
}

Json MessageFormat::whole(const ReplyFacts& facts, const std::vector<Json>& answers,
                          const Usage& usage) const {
  Json reply = {{"id", facts.id}, {"type", "message"}, {"role", "assistant"}, {"model", facts.model}};
  reply.update(answers.at(0));
  reply["usage"] = usage_of(usage);
  return reply;
}

void MessageFormat::begin(const ReplyFacts& facts, const SendEvent& send) const {
  const Json message = {{"id", facts.id},           {"type", "message"},
                        {"role", "assistant"},      {"model", facts.model},
                        {"content", Json::array()}, {"stop_reason", nullptr},
                        {"stop_sequence", nullptr}, {"usage", usage_of({facts.prompt_tokens, 0, 0})}};
  send_event("message_start", {{"message", message}}, send);
}

void MessageFormat::piece(const ReplyFacts&, const Piece& piece, const SendEvent& send) const {
  const auto add = [&](const char* type, const char* field, const std::string& text) {
    if (text.empty()) return;
    send_event("content_block_delta", {{"index", block_}, {"delta", {{"type", type}, {field, text}}}}, send);
  };
  const Json empty_text = {{"type", "text"}, {"text", ""}};
  if (!piece.text.empty() && open_ != "text") open(empty_text, send);
  add("text_delta", "text", piece.text);
  for (const ToldCall& call : piece.calls) {
    if (!call.name.empty()) open(use_of(call, Json::object()), send);
    add("input_json_delta", "partial_json", call.arguments);
  }
  if (piece.finish_reason.empty()) return;
  stop_ = stop_of(piece);
  if (block_ < 0) open(empty_text, send);
  close(send);
}

void MessageFormat::open(const Json& block, const SendEvent& send) const {
  close(send);
  open_ = block.at("type");
  send_event("content_block_start", {{"index", ++block_}, {"content_block", block}}, send);
}

void MessageFormat::close(const SendEvent& send) const {
  if (!open_.empty()) send_event("content_block_stop", {{"index", block_}}, send);
  open_.clear();
}

void MessageFormat::end(const ReplyFacts&, const Usage& usage, const SendEvent& send) const {
  send_event("message_delta", {{"delta", stop_}, {"usage", usage_of(usage)}}, send);
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

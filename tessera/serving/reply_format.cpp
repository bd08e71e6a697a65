#include "tessera/serving/reply_format.h"

#include <cstdio>
#include <utility>

#include "tessera/core/utf8.h"
#include "tessera/core/version.h"

namespace tessera::serving {
namespace {

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

// Returns the text of a token. One that holds a part of a character is written as its bytes, as OpenAI does.
std::string shown(const std::string& bytes) {
  if (find_invalid_utf8(bytes) < 0) return bytes;
  std::string text = "bytes:";
  for (const char byte : bytes) {
    char code[8];
    std::snprintf(code, sizeof code, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    text += code;
  }
  return text;
}

Json bytes_of(const std::string& bytes) {
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned>(static_cast<unsigned char>(byte)));
  return list;
}

Json completion_log_probs(const std::vector<ToldToken>& told) {
  Json tokens = Json::array(), values = Json::array(), tops = Json::array(), offsets = Json::array();
  for (const ToldToken& token : told) {
    const std::string text = shown(token.bytes);
    tokens.push_back(text);
    offsets.push_back(token.offset);
    if (!token.has_log_prob) {
      values.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    values.push_back(token.log_prob);
    Json top = Json::object();
    // Several tokens may be written alike: the likeliest counts.
    for (const auto& [bytes, log_prob] : token.top) {
      const std::string name = shown(bytes);
      if (!top.contains(name)) top[name] = log_prob;
    }
    if (!top.contains(text)) top[text] = token.log_prob;
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json chat_log_probs(const std::vector<ToldToken>& told) {
  const auto entry = [](const std::string& bytes, double log_prob) {
    return Json{{"token", shown(bytes)}, {"logprob", log_prob}, {"bytes", bytes_of(bytes)}};
  };
  Json content = Json::array();
  for (const ToldToken& token : told) {
    Json one = entry(token.bytes, token.log_prob);
    one["top_logprobs"] = Json::array();
    for (const auto& [bytes, log_prob] : token.top) one["top_logprobs"].push_back(entry(bytes, log_prob));
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json calls_of(const Piece& piece, bool is_streamed) {
  Json calls = Json::array();
  for (const ToldCall& call : piece.calls) {
    Json one = Json::object(), function = {{"arguments", call.arguments}};
    if (is_streamed) one["index"] = call.index;
    if (!call.name.empty()) {
      one["id"] = call.id;
      one["type"] = "function";
      function = {{"name", call.name}, {"arguments", call.arguments}};
    }
    one["function"] = std::move(function);
    calls.push_back(std::move(one));
  }
  return calls;
}

Json json_of(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.new_tokens},
          {"total_tokens", usage.prompt_tokens + usage.new_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json head_of(const ReplyFacts& facts, const std::string& object) {
  return {{"id", facts.id},
          {"object", object},
          {"created", facts.created},
          {"model", facts.model},
          {"system_fingerprint", std::string("tessera-") + program_version()}};
}

}  // namespace

Json OpenAiFormat::whole(const ReplyFacts& facts, const std::vector<Json>& answers,
                         const Usage& usage) const {
  Json reply = head_of(facts, object(false));
  reply["choices"] = answers;
  reply["usage"] = json_of(usage);
  return reply;
}

void OpenAiFormat::send_chunk(const ReplyFacts& facts, Json choices, const Json& usage,
                              const SendEvent& send) const {
  Json chunk = head_of(facts, object(true));
  chunk["choices"] = std::move(choices);
  if (facts.includes_usage) chunk["usage"] = usage;
  send("", text_of(chunk));
}

void OpenAiFormat::piece(const ReplyFacts& facts, const Piece& piece, const SendEvent& send) const {
  send_chunk(facts, Json::array({choice(piece, true)}), nullptr, send);
}

void OpenAiFormat::end(const ReplyFacts& facts, const Usage& usage, const SendEvent& send) const {
  if (facts.includes_usage) send_chunk(facts, Json::array(), json_of(usage), send);
  send("", "[DONE]");
}

void OpenAiFormat::fail(const ApiError& error, const SendEvent& send) const {
  send("", error.body());
  send("", "[DONE]");
}

Json CompletionFormat::choice(const Piece& piece, bool) const {
  return {{"index", piece.index},
          {"text", piece.text},
          {"logprobs", piece.tokens != nullptr ? completion_log_probs(*piece.tokens) : Json()},
          {"finish_reason", or_null(piece.finish_reason)}};
}

void ChatFormat::begin(const ReplyFacts& facts, const SendEvent& send) const {
  for (int64_t index = 0; index < facts.num_answers; ++index) {
    const Json choice = {{"index", index},
                         {"delta", {{"role", "assistant"}, {"content", ""}}},
                         {"logprobs", nullptr},
                         {"finish_reason", nullptr}};
    send_chunk(facts, Json::array({choice}), nullptr, send);
  }
}

Json ChatFormat::choice(const Piece& piece, bool is_streamed) const {
  Json choice = {{"index", piece.index}};
  if (is_streamed) {
    choice["delta"] = Json::object();
    if (!piece.reasoning.empty()) choice["delta"]["reasoning_content"] = piece.reasoning;
    if (!piece.text.empty()) choice["delta"]["content"] = piece.text;
    if (!piece.calls.empty()) choice["delta"]["tool_calls"] = calls_of(piece, true);
  } else {
    choice["message"] = {{"role", "assistant"}, {"content", piece.text}, {"refusal", nullptr}};
    if (!piece.reasoning.empty()) choice["message"]["reasoning_content"] = piece.reasoning;
    if (!piece.calls.empty()) {
      choice["message"]["content"] = or_null(piece.text);
      choice["message"]["tool_calls"] = calls_of(piece, false);
    }
  }
  choice["logprobs"] = piece.tokens != nullptr ? chat_log_probs(*piece.tokens) : Json();
  choice["finish_reason"] =
      is_named_ && piece.finish_reason == "tool_calls" ? "stop" : or_null(piece.finish_reason);
  return choice;
}

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace tessera::serving

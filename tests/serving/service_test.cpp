#include "tessera/serving/service.h"

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/serving/fake_engine.h"
#include "tests/testing/http_client.h"
#include "tests/testing/random.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_model.h"

namespace tessera::serving {
namespace {

using nlohmann::json;
using testing::FakeEngine;
using ::testing::HasSubstr;
using testing::HttpAnswer;
using testing::HttpClient;
using ::testing::StartsWith;

// A whole server with an engine that repeats the prompt. Tokens are bytes; 256 to 259 are special.
class ServiceTest : public ::testing::Test {
 protected:
  void SetUp() override { start({}); }

  void start(ServiceOptions options) {
    server_.reset();
    service_.reset();
    if (!tokenizer_) {
      testing::write_tiny_tokenizer(folder_.path());
      tokenizer_.emplace(text::Tokenizer::from_folder(folder_.path()));
      const text::NewToken mark[] = {{.content = "[TOOL_CALLS]", .is_special = true}};
      tokenizer_->add_tokens(mark);
    }
    const ServedModel model{.name = "tiny",
                            .tokenizer = *tokenizer_,
                            .chat_template = std::make_shared<const text::ChatTemplate>(
                                text::ChatTemplate::parse(testing::tiny_chat_template(), "tiny")),
                            .no_template = "",
                            .tool_format = &text::find_tool_format(tool_format_),
                            .stop_ids = {256},
                            .defaults = {.temperature = 0.25, .top_k = 7},
                            .max_answer_tokens = 50};
    ServedModel adapted = model;
    adapted.name = "tuned";
    adapted.adapter = 1;
    adapted.chat_template = nullptr;
    adapted.no_template = "it was trained without";
    service_.emplace(engine_, std::vector{model, adapted}, std::move(options));
    server_.emplace(
        HttpOptions{}, [this](const HttpRequest& head) { return service_->check(head); },
        [this](const std::shared_ptr<HttpExchange>& exchange) { service_->handle(exchange); });
  }

  int port() const { return server_->port(); }
  HttpAnswer complete(json body) const { return testing::post(port(), "/v1/completions", std::move(body)); }
  HttpAnswer chat(json body) const { return testing::post(port(), "/v1/chat/completions", std::move(body)); }
  static json user(const std::string& text) { return json::array({{{"role", "user"}, {"content", text}}}); }

  testing::TempFolder folder_;
  std::string tool_format_ = "mistral";
  std::optional<text::Tokenizer> tokenizer_;
  FakeEngine engine_;
  std::optional<Service> service_;
  std::optional<HttpServer> server_;
};

TEST_F(ServiceTest, EachMistakeIsTold) {
  struct Case {
    std::string path, body;
    int status;
    std::string param, part;
  };
  const std::string complete = "/v1/completions", chat = "/v1/chat/completions", embed = "/v1/embeddings";
  const auto with = [](const std::string& more) { return "{\"prompt\": \"abc\", " + more + "}"; };
  const auto said = [](const std::string& more) {
    return R"({"messages": [{"role": "user", "content": "a"}], )" + more + "}";
  };
  const auto tools = [&](const std::string& more) {
    return said(R"("tools": [{"type": "function", "function": {"name": "f"}}], )" + more);
  };
  std::string wide = "{\"prompt\": \"a\"";
  for (int i = 0; i < 5000; ++i) wide += ", \"k" + std::to_string(i) + "\": 1";
  const Case cases[] = {
      {complete, "{", 400, "", "no JSON object"},
      {complete, "[1]", 400, "", "no JSON object"},
      {complete, "{\"prompt\": \"\\ud800\"}", 400, "", "surrogate"},
      {complete, "{\"prompt\": \"a\", \"prompt\": \"b\"}", 400, "", "twice"},
      {complete, "{\"a\": " + std::string(5000, '[') + std::string(5000, ']') + "}", 400, "", "nested"},
      {complete, wide + "}", 400, "", "4096 members"},
      {complete, "{}", 400, "prompt", "needed"},
      {complete, "{\"prompt\": 5}", 400, "prompt", "token ids"},
      {complete, "{\"prompt\": []}", 400, "prompt", "1 to"},
      {complete, "{\"prompt\": [300]}", 400, "prompt", "0 to 263"},
      {complete, "{\"prompt\": [1, \"a\"]}", 400, "prompt", "0 to 263"},
      {complete, "{\"prompt\": [[1], -1]}", 400, "prompt", "token ids"},
      {complete, "{\"prompt\": \"\"}", 400, "prompt", "no tokens"},
      {complete, "{\"prompt\": \"" + std::string(101, 'a') + "\"}", 400, "prompt", "101 tokens"},
      {complete, "{\"prompt\": \"" + std::string(101, 'a') + "\"}", 400, "prompt", "100 tokens"},
      {complete, with("\"model\": \"other\""), 404, "model", "'tiny'"},
      {complete, with("\"model\": 1"), 400, "model", "string"},
      {complete, with("\"temperature\": 2.5"), 400, "temperature", "0 to 2"},
      {complete, with("\"temperature\": \"hot\""), 400, "temperature", "number"},
      {complete, with("\"top_p\": 0"), 400, "top_p", "above 0"},
      {complete, with("\"min_p\": 1.5"), 400, "min_p", "0 to 1"},
      {complete, with("\"top_k\": -2"), 400, "top_k", "-1"},
      {complete, with("\"repetition_penalty\": 0"), 400, "repetition_penalty", "above 0"},
      {complete, with("\"n\": 0"), 400, "n", "1 to 128"},
      {complete, with("\"n\": 7"), 400, "n", "at most 6"},
      {complete, with("\"n\": 2, \"best_of\": 3"), 400, "best_of", "value of n"},
      {complete, with("\"max_tokens\": -1"), 400, "max_tokens", "whole"},
      {complete, with("\"max_tokens\": 0"), 400, "max_tokens", "echo"},
      {complete, with("\"seed\": 1.5"), 400, "seed", "whole"},
      {complete, with("\"seed\": 99999999999999999999"), 400, "seed", "whole"},
      {complete, with("\"stop\": \"\""), 400, "stop", "empty"},
      {complete, with("\"stop\": [1]"), 400, "stop", "text"},
      {complete, with("\"stop_token_ids\": \"a\""), 400, "stop_token_ids", "array"},
      {complete, with("\"logprobs\": 21"), 400, "logprobs", "0 to 20"},
      {complete, with("\"suffix\": \"x\""), 400, "suffix", "fill"},
      {complete, with("\"stream\": 1"), 400, "stream", "true or false"},
      {complete, with("\"stream_options\": {\"include_usage\": true}"), 400, "stream_options", "stream"},
      {complete, with("\"presence_penalty\": 2.5"), 400, "presence_penalty", "-2 to 2"},
      {complete, with("\"frequency_penalty\": \"much\""), 400, "frequency_penalty", "number"},
      {complete, with("\"logit_bias\": 5"), 400, "logit_bias", "object"},
      {complete, with("\"logit_bias\": {\"264\": 1}"), 400, "logit_bias", "0 to 263"},
      {complete, with("\"logit_bias\": {\"-1\": 1}"), 400, "logit_bias", "0 to 263"},
      {complete, with("\"logit_bias\": {\"05\": 1, \"5\": 1}"), 400, "logit_bias", "token ids"},
      {complete, with("\"logit_bias\": {\"the\": 1}"), 400, "logit_bias", "token ids"},
      {complete, with("\"logit_bias\": {\"" + std::string(9000, '7') + "\": 1}"), 400, "logit_bias", "ids"},
      {complete, with("\"logit_bias\": {\"5\": -101}"), 400, "logit_bias", "-100 to 100"},
      {complete, with("\"logit_bias\": {\"5\": null}"), 400, "logit_bias", "numbers"},
      {complete, with("\"min_tokens\": -3"), 400, "min_tokens", "whole"},
      {complete, with("\"bad_words\": \"a\""), 400, "bad_words", "array"},
      {complete, with("\"bad_words\": [\"a\", \" \"]"), 400, "bad_words", "empty"},
      {complete, with("\"length_penalty\": 2"), 400, "length_penalty", "not supported"},
      {complete, with("\"cache_salt\": \"\""), 400, "cache_salt", "1 to 128"},
      {complete, with("\"cache_salt\": \"" + std::string(129, 'a') + "\""), 400, "cache_salt", "1 to 128"},
      {embed, "{}", 400, "input", "needed"},
      {embed, "{\"input\": []}", 400, "input", "1 to"},
      {embed, "{\"input\": [[1], [300]]}", 400, "input", "0 to 263"},
      {embed, "{\"input\": [\"a\", \"\"]}", 400, "input", "input 1 has no tokens"},
      {embed, "{\"input\": [\"a\", \"" + std::string(101, 'a') + "\"]}", 400, "input", "101 tokens"},
      {embed, R"({"input": "a", "model": "other"})", 404, "model", "'tiny'"},
      {embed, R"({"input": "a", "encoding_format": "hex"})", 400, "encoding_format", "base64"},
      {embed, R"({"input": "a", "dimensions": 2})", 400, "dimensions", "3 numbers"},
      {embed, R"({"input": "a", "truncate_prompt_tokens": 5})", 400, "truncate_prompt_tokens", "not cut"},
      {embed, R"({"messages": [], "input": "a"})", 400, "messages", "texts"},
      {chat, "{}", 400, "messages", "needed"},
      {chat, "{\"messages\": []}", 400, "messages", "1 to"},
      {chat, "{\"messages\": [1]}", 400, "messages[0]", "object"},
      {chat, R"({"messages": [{"role": "wizard", "content": "a"}]})", 400, "messages[0].role", "developer"},
      {chat, R"({"messages": [{"role": "user"}]})", 400, "messages[0].content", "needed"},
      {chat, R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", 400,
       "messages[0].content[0]", "images"},
      {chat, said("\"top_logprobs\": 2"), 400, "top_logprobs", "logprobs"},
      {chat, said("\"max_completion_tokens\": 0"), 400, "max_completion_tokens", "whole"},
      {chat, said("\"tools\": []"), 400, "tools", "at least one"},
      {chat, said("\"tool_choice\": \"required\""), 400, "tool_choice", "tools"},
      {chat, said(R"("tools": [{"type": "function", "function": {}}])"), 400, "tools[0].function.name",
       "needed"},
      {chat, said(R"("tools": [{"type": "custom"}])"), 400, "tools[0].type", "function"},
      {chat, tools("\"tool_choice\": \"always\""), 400, "tool_choice", "required"},
      {chat, tools(R"("tool_choice": {"type": "function", "function": {"name": "g"}})"), 400, "tool_choice",
       "'g'"},
      {chat, tools(R"("tool_choice": "required", "guided_regex": "a")"), 400, "tool_choice", "anything else"},
      {chat, R"({"messages": [{"role": "user", "content": "a"}], "tool_choice": "required", "tools": [{"type":
       "function", "function": {"name": "f", "parameters": {"not": {}}}}]})",
       400, "tools", "'not'"},
      {chat, tools("\"parallel_tool_calls\": 1"), 400, "parallel_tool_calls", "true or false"},
      {chat, R"({"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]})", 400,
       "messages[0].tool_calls[0].function", "needed"},
      {chat,
       R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]}]})",
       400, "messages[0].tool_calls[0].function.arguments", "object"},
      {chat, said("\"chat_template_kwargs\": {\"messages\": []}"), 400, "chat_template_kwargs",
       "no variable"},
      {chat, said("\"chat_template\": \"x\""), 400, "chat_template", "not supported"},
      {chat, said("\"continue_final_message\": true"), 400, "continue_final_message", "not supported"},
      {chat, said("\"functions\": []"), 400, "functions", "not supported"},
      {"/tokenize", "{}", 400, "prompt", "needed"},
      {"/detokenize", "{\"tokens\": [264]}", 400, "tokens", "0 to 263"},
      {"/v1/nothing", "{}", 404, "", "no route"},
      {"/health", "{}", 405, "", "GET"},
  };
  for (const Case& each : cases) {
    HttpClient client(port());
    client.send(testing::post_text(each.path, each.body));
    const HttpAnswer answer = client.reply();
    const std::string told = each.body.substr(0, 200) + " -> " + answer.body;
    EXPECT_EQ(answer.status, each.status) << told;
    const json error = answer.json().at("error");
    EXPECT_EQ(error.at("param"), each.param.empty() ? json() : json(each.param)) << told;
    EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr(each.part)) << told;
    EXPECT_LT(answer.body.size(), 2000u);
  }
  const HttpAnswer form = [&] {
    HttpClient client(port());
    client.send("POST /v1/completions HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}");
    return client.reply();
  }();
  EXPECT_EQ(form.status, 415);
}

TEST_F(ServiceTest, EachMistakeInAConstraintIsTold) {
  struct Case {
    std::string field, param, part;
  };
  const Case cases[] = {
      {R"("guided_json": {"not": {}})", "guided_json", "'not'"},
      {R"("guided_json": "{")", "guided_json", "JSON object"},
      {R"("guided_regex": "a(?=b)c")", "guided_regex", "lookahead"},
      {R"("guided_regex": "((((a{99|){99}){99}){99}){99}")", "guided_regex", "too many ways"},
      {R"("guided_choice": [])", "guided_choice", "at least one"},
      {R"("guided_regex": "a", "guided_choice": ["b"])", "guided_choice", "guided_regex"},
      {R"("response_format": "json")", "response_format", "object"},
      {R"("response_format": {"type": "python"})", "response_format.type", "json_object"},
      {R"("response_format": {"type": "json_schema"})", "response_format.json_schema", "needed"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"a": 1}}})",
       "response_format.json_schema.schema", "'a'"},
      {R"("structured_outputs": {})", "structured_outputs.json", "needed"},
      {R"("structured_outputs": {"json": {}, "regx": "a"})", "structured_outputs.regx", "needed"},
      {R"("structured_outputs": {"grammar": "a"})", "structured_outputs.grammar", "::="},
      {R"("structured_outputs": {"structural_tag": "a"})", "structured_outputs.structural_tag",
       "not supported"},
  };
  for (const Case& each : cases) {
    HttpClient client(port());
    client.send(testing::post_text("/v1/completions", "{\"prompt\": \"abc\", " + each.field + "}"));
    const HttpAnswer answer = client.reply();
    EXPECT_EQ(answer.status, 400) << each.field;
    const json error = answer.json().at("error");
    EXPECT_EQ(error.at("param"), each.param) << each.field;
    EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr(each.part)) << each.field;
  }
}

TEST_F(ServiceTest, FieldsReachTheEngine) {
  const auto asked = [&](json more) {
    more["prompt"] = "abc";
    EXPECT_EQ(complete(more).status, 200) << more;
    return engine_.last();
  };
  // Defaults are those of the model, and of the API.
  const EngineRequest usual = asked({});
  EXPECT_EQ(usual.prompt, (std::vector<int64_t>{'a', 'b', 'c'}));
  EXPECT_EQ(usual.sampling.temperature, 0.25);
  EXPECT_EQ(usual.sampling.top_k, 7);
  EXPECT_EQ(usual.max_new_tokens, 16);
  EXPECT_EQ(usual.stop_ids, std::vector<int64_t>{256});
  EXPECT_NE(asked({}).sampling.seed, usual.sampling.seed);
  const EngineRequest full = asked({{"temperature", 0},
                                    {"top_k", -1},
                                    {"top_p", 0.5},
                                    {"min_p", 0.1},
                                    {"repetition_penalty", 1.5},
                                    {"seed", 9},
                                    {"n", 3},
                                    {"max_tokens", 5000.0},
                                    {"stop_token_ids", {98}},
                                    {"ignore_eos", true},
                                    {"model", "tiny"},
                                    {"user", "me"},
                                    {"logit_bias", {{"5", -100}, {"98", 2.5}}},
                                    {"presence_penalty", -0.5},
                                    {"frequency_penalty", 2},
                                    {"min_tokens", 4},
                                    {"bad_words", {" ab", "c"}},
                                    {"cache_salt", "mine"},
                                    {"wondrous", 1},
                                    {"suffix", nullptr}});
  EXPECT_EQ(full.sampling.temperature, 0.0);
  EXPECT_EQ(full.sampling.top_k, 0);
  EXPECT_EQ(full.sampling.top_p, 0.5);
  EXPECT_EQ(full.sampling.min_p, 0.1);
  EXPECT_EQ(full.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(full.sampling.seed, 9u);
  EXPECT_EQ(full.sampling.sequence, 2u);
  EXPECT_EQ(full.sampling.logit_bias, (std::vector<std::pair<int64_t, double>>{{5, -100.0}, {98, 2.5}}));
  EXPECT_EQ(full.sampling.presence_penalty, -0.5);
  EXPECT_EQ(full.sampling.frequency_penalty, 2.0);
  EXPECT_EQ(full.sampling.min_new_tokens, 4);
  EXPECT_EQ(full.sampling.bad_words, (std::vector<std::vector<int64_t>>{{'a', 'b'}, {'c'}}));
  EXPECT_TRUE(asked({{"logit_bias", json::array()}, {"bad_words", nullptr}}).sampling.logit_bias.empty());
  EXPECT_EQ(full.max_new_tokens, 98);  // the context is 100, and the last token needs no place
  EXPECT_EQ(full.stop_ids, std::vector<int64_t>{98});
  EXPECT_EQ(full.cache_salt, "mine");
  EXPECT_EQ(full.constraint, nullptr);
  // Each way to say what an answer has to match, and what may come first then.
  const std::pair<json, std::string> constraints[] = {
      {{{"response_format", {{"type", "json_object"}}}}, "{"},
      {{{"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", {{"const", 1}}}}}}}}, "1"},
      {{{"guided_json", "{\"const\": \"a\"}"}}, "\""},
      {{{"guided_regex", "[xy]z"}}, "xy"},
      {{{"guided_choice", {"no", "yes"}}}, "ny"},
      {{{"guided_grammar", "root ::= \"g\""}}, "g"},
      {{{"structured_outputs", {{"json_object", true}, {"disable_any_whitespace", true}}}}, "{"},
  };
  for (const auto& [body, first] : constraints) {
    const std::shared_ptr<text::Constraint> constraint = asked(body).constraint;
    ASSERT_NE(constraint, nullptr) << body;
    EXPECT_EQ(asked(body).constraint, constraint) << "the last ones are kept";
    const std::vector<uint64_t> mask = text::ConstraintState(constraint).allowed(std::vector<int64_t>{256});
    std::string allowed;
    for (int id = 0; id < 264; ++id) {
      if ((mask[static_cast<size_t>(id) / 64] >> (id % 64) & 1) != 0) allowed += static_cast<char>(id);
    }
    EXPECT_EQ(allowed, first) << body;
  }
  // A text that begins with BOS gets no second one, and a chat has those of its template.
  EXPECT_EQ(chat({{"messages", user("hi")}}).status, 200);
  const std::string prompt = tokenizer_->decode([&] {
    const std::vector<int64_t> ids = engine_.last().prompt;
    return std::vector<int32_t>(ids.begin(), ids.end());
  }());
  EXPECT_EQ(prompt, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(engine_.last().max_new_tokens, 50);
  const json parts = {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}};
  EXPECT_EQ(chat({{"messages", {{{"role", "developer"}, {"content", parts}}}},
                  {"max_tokens", 3},
                  {"chat_template_kwargs", {{"add_x", 1}}}})
                .status,
            200);
  EXPECT_EQ(engine_.last().prompt.size(), std::string("system\na\nb\nassistant\n").size() + 3);
  EXPECT_EQ(engine_.last().max_new_tokens, 3);
  // This template needs a content, and clients leave out that of a message with calls.
  const json called = {{"role", "assistant"},
                       {"tool_calls", {{{"id", "1"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}}}}};
  json null_content = called;
  null_content["content"] = nullptr;
  for (const json& message : {called, null_content}) {
    EXPECT_EQ(chat({{"messages", {message}}}).status, 200);
    EXPECT_EQ(engine_.last().prompt.size(), std::string("assistant\n\nassistant\n").size() + 3);
  }
}

// The answer is the prompt again: text with characters of several bytes, cut at any stop string.
TEST_F(ServiceTest, StreamedEqualsUnstreamed) {
  testing::Random random;
  const std::vector<std::string> letters = {"a", "b", "é", "€", "😀", "\n", "\""};
  for (int trial = 0; trial < 40; ++trial) {
    std::string text, stop;
    for (int i = 0; i < 12; ++i) text += letters[static_cast<size_t>(random.in(0, 6))];
    for (int i = 0; i < 2; ++i) stop += letters[static_cast<size_t>(random.in(0, 3))];
    json body = {{"prompt", {text, text + "b"}}, {"n", 2},        {"max_tokens", random.in(1, 60)},
                 {"stop", {stop, "ab€"}},        {"logprobs", 2}, {"echo", random.in(0, 1) == 1}};
    const json whole = complete(body).json();
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    const auto events = complete(body).events();
    ASSERT_GE(events.size(), 2u);
    EXPECT_EQ(events.back(), "[DONE]");
    std::vector<json> made(4, {{"text", ""}, {"tokens", json::array()}, {"offsets", json::array()}});
    for (size_t i = 0; i + 2 < events.size(); ++i) {
      const json event = json::parse(events[i]);
      EXPECT_TRUE(event.at("usage").is_null());
      const json& choice = event.at("choices").at(0);
      json& mine = made.at(choice.at("index").get<size_t>());
      mine["text"] = mine["text"].get<std::string>() + choice.at("text").get<std::string>();
      for (const json& each : choice.at("logprobs").at("tokens")) mine["tokens"].push_back(each);
      for (const json& each : choice.at("logprobs").at("text_offset")) mine["offsets"].push_back(each);
      mine["finish"] = choice.at("finish_reason");
    }
    EXPECT_EQ(json::parse(events[events.size() - 2]).at("usage"), whole.at("usage"));
    for (size_t i = 0; i < 4; ++i) {
      const json& choice = whole.at("choices").at(i);
      EXPECT_EQ(made[i]["text"], choice.at("text")) << body;
      EXPECT_EQ(made[i]["tokens"], choice.at("logprobs").at("tokens"));
      EXPECT_EQ(made[i]["offsets"], choice.at("logprobs").at("text_offset"));
      EXPECT_EQ(made[i]["finish"], choice.at("finish_reason"));
    }
  }
}

TEST_F(ServiceTest, LogProbabilitiesHaveTheFormOfBothProtocols) {
  const json completion =
      complete({{"prompt", "aé"}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 1}}).json();
  const json& choice = completion.at("choices").at(0);
  EXPECT_EQ(choice.at("text"), "aéa");
  const json& told = choice.at("logprobs");
  EXPECT_EQ(told.at("tokens"), json({"a", "bytes:\\xc3", "bytes:\\xa9", "a"}));
  EXPECT_EQ(told.at("token_logprobs"), json({nullptr, -0.25, -0.5, -0.75}));
  EXPECT_EQ(told.at("text_offset"), json({0, 1, 2, 2}));
  EXPECT_TRUE(told.at("top_logprobs").at(0).is_null());
  EXPECT_EQ(told.at("top_logprobs").at(1), json({{"A", -0.5}, {"bytes:\\xc3", -0.25}}));
  EXPECT_EQ(completion.at("usage").at("completion_tokens"), 1);
  // Each prompt counts once.
  const json two = complete({{"prompt", {"abcd", "abc"}}, {"n", 2}}).json();
  EXPECT_EQ(two.at("usage").at("prompt_tokens"), 7);
  EXPECT_EQ(two.at("usage").at("prompt_tokens_details").at("cached_tokens"), 3);
  // The answer may be nothing at all.
  const json none = complete({{"prompt", "ab"}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}}).json();
  EXPECT_EQ(none.at("choices").at(0).at("text"), "ab");
  EXPECT_EQ(none.at("choices").at(0).at("logprobs").at("token_logprobs"), json({nullptr, -0.25}));
  EXPECT_EQ(none.at("usage").at("completion_tokens"), 0);
  // An id that ends the answer is generated too, and has a log-probability.
  const json stopped = complete({{"prompt", {97, 256}}, {"logprobs", 0}}).json();
  EXPECT_EQ(stopped.at("choices").at(0).at("text"), "a");
  EXPECT_EQ(stopped.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(stopped.at("choices").at(0).at("logprobs").at("tokens").size(), 2u);
  EXPECT_EQ(stopped.at("usage").at("completion_tokens"), 2);
  const json spoken =
      chat({{"messages", user("x")}, {"logprobs", true}, {"top_logprobs", 1}, {"max_tokens", 2}}).json();
  EXPECT_EQ(spoken.at("object"), "chat.completion");
  EXPECT_EQ(spoken.at("choices").at(0).at("message").at("role"), "assistant");
  EXPECT_EQ(spoken.at("choices").at(0).at("message").at("content"), "u");
  const json& entry = spoken.at("choices").at(0).at("logprobs").at("content").at(1);
  EXPECT_EQ(entry.at("token"), "u");
  EXPECT_EQ(entry.at("bytes"), json({117}));
  EXPECT_EQ(entry.at("top_logprobs").at(0).at("token"), "A");
}

TEST_F(ServiceTest, AChatStreamBeginsWithTheRoles) {
  const HttpAnswer answer = chat({{"messages", user("x")}, {"stream", true}, {"n", 2}, {"max_tokens", 3}});
  const auto events = answer.events();
  for (int i = 0; i < 2; ++i) {
    const json event = json::parse(events.at(static_cast<size_t>(i)));
    EXPECT_EQ(event.at("object"), "chat.completion.chunk");
    EXPECT_EQ(event.at("choices").at(0).at("index"), i);
    EXPECT_EQ(event.at("choices").at(0).at("delta").at("role"), "assistant");
    EXPECT_FALSE(event.contains("usage"));
  }
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_FALSE(answer.headers.at("x-request-id").empty());
}

TEST_F(ServiceTest, MessagesHaveTheirOwnForm) {
  const auto ask = [&](const json& body) { return testing::post(port(), "/v1/messages", body); };
  const json blocks = {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}};
  json body = {{"model", "tiny"},
               {"max_tokens", 30},
               {"system", "s"},
               {"messages", {{{"role", "user"}, {"content", blocks}}}},
               {"stop_sequences", {"em\n", "st"}}};
  const json whole = ask(body).json();
  EXPECT_EQ(whole.at("type"), "message");
  EXPECT_EQ(whole.at("content"), json::array({{{"type", "text"}, {"text", "sy"}}}));
  EXPECT_EQ(whole.at("stop_reason"), "stop_sequence");
  EXPECT_EQ(whole.at("stop_sequence"), "st");
  EXPECT_EQ(whole.at("usage").at("output_tokens"), 5);
  EXPECT_EQ(engine_.last().max_new_tokens, 30);
  const auto count = testing::post(port(), "/v1/messages/count_tokens",
                                   {{"system", "s"}, {"messages", body.at("messages")}});
  // The engine tells half of a prompt as known.
  const int64_t prompt_tokens = count.json().at("input_tokens"), known = prompt_tokens / 2;
  EXPECT_EQ(whole.at("usage").at("cache_read_input_tokens"), known);
  EXPECT_EQ(whole.at("usage").at("input_tokens"), prompt_tokens - known);

  body["stream"] = true;
  const HttpAnswer streamed = ask(body);
  std::string text, types;
  for (const std::string& event : streamed.events()) {
    const json told = json::parse(event);
    const std::string type = told.at("type");
    EXPECT_THAT(streamed.body, HasSubstr("event: " + type + "\ndata: {\"type\":\"" + type + "\""));
    if (types.find(type) == std::string::npos) types += type + " ";
    if (type == "content_block_delta") text += told.at("delta").at("text").get<std::string>();
    if (type == "message_delta") {
      EXPECT_EQ(told.at("delta").at("stop_sequence"), "st");
      EXPECT_EQ(told.at("usage"), whole.at("usage"));
    }
  }
  EXPECT_EQ(text, "sy");
  EXPECT_EQ(types,
            "message_start content_block_start content_block_delta content_block_stop message_delta "
            "message_stop ");

  body = {{"max_tokens", 2}, {"messages", user("x")}};
  EXPECT_EQ(ask(body).json().at("stop_reason"), "max_tokens");
  const std::pair<json, std::string> mistakes[] = {
      {{{"messages", user("x")}}, "max_tokens"},
      {{{"max_tokens", 2}}, "messages"},
      {{{"max_tokens", 2}, {"messages", {{{"role", "system"}, {"content", "x"}}}}}, "messages[0].role"},
      {{{"max_tokens", 2}, {"messages", {{{"role", "assistant"}, {"content", "x"}}}}}, "cannot be continued"},
      {{{"max_tokens", 2}, {"messages", {{{"role", "user"}, {"content", {{{"type", "image"}}}}}}}},
       "messages[0].content[0].type"},
      {{{"max_tokens", 2}, {"messages", user("x")}, {"stop_sequences", "a"}}, "stop_sequences"},
      {{{"max_tokens", 2}, {"messages", user("x")}, {"tool_choice", {{"type", "any"}}}}, "\"tools\""},
      {{{"max_tokens", 2}, {"messages", user("x")}, {"tool_choice", {{"type", "all"}}}}, "tool_choice.type"},
      {{{"max_tokens", 2}, {"messages", user("x")}, {"tools", {{{"name", "f"}}}}}, "input_schema"},
      {{{"max_tokens", 2}, {"messages", user("x")}, {"thinking", {{"type", "enabled"}}}}, "thinking"},
  };
  for (const auto& [wrong, part] : mistakes) {
    const HttpAnswer answer = ask(wrong);
    EXPECT_EQ(answer.status, 400) << wrong;
    EXPECT_EQ(answer.json().at("type"), "error");
    EXPECT_EQ(answer.json().at("error").at("type"), "invalid_request_error");
    EXPECT_THAT(answer.json().at("error").at("message").get<std::string>(), HasSubstr(part)) << wrong;
  }
  // Calls of tools and their results go to the template as the OpenAI API has them.
  const json call = {{"type", "tool_use"}, {"id", "1"}, {"name", "f"}, {"input", {{"a", 1}}}};
  const json result = {{"type", "tool_result"}, {"tool_use_id", "1"}, {"content", "r"}};
  EXPECT_EQ(ask({{"max_tokens", 2},
                 {"messages",
                  {{{"role", "user"}, {"content", "x"}},
                   {{"role", "assistant"}, {"content", {call}}},
                   {{"role", "user"}, {"content", {result}}}}}})
                .status,
            200);
}

TEST_F(ServiceTest, CallsOfToolsAreToldInTheFormOfBothApis) {
  struct Case {
    std::string answer;
    json more = json::object();
    std::string text;
    std::vector<std::pair<std::string, std::string>> calls;
    std::string finish = "tool_calls";
  };
  const json named = {{"tool_choice", {{"type", "function"}, {"function", {{"name", "f"}}}}}};
  const std::string two = "#f[ARGS]{\"x\": 1}#g[ARGS]{}";
  // A '#' is the special token [TOOL_CALLS], and a '|' one that is no mark; a '.' ends the answer.
  const Case cases[] = {
      {"So|: " + two + ".", json::object(), "So:", {{"f", "{\"x\": 1}"}, {"g", "{}"}}},
      {two + ".", {{"parallel_tool_calls", false}}, "", {{"f", "{\"x\": 1}"}}},
      {two + ".", {{"tool_choice", "none"}}, "f[ARGS]{\"x\": 1}g[ARGS]{}", {}, "stop"},
      {"é #f[ARGS]{1} |!.", json::object(), "é [TOOL_CALLS]f[ARGS]{1} !", {}, "stop"},
      {"#f[ARGS]{\"x\":", json::object(), "[TOOL_CALLS]f[ARGS]{\"x\":", {}, "length"},
      {R"([{"name": "f", "parameters": {"x": 1}}].)",
       {{"tool_choice", "required"}},
       "",
       {{"f", R"({"x":1})"}}},
      {R"({"x": 1}.)", named, "", {{"f", R"({"x": 1})"}}, "stop"},
      {R"({"x": )", named, "", {{"f", R"({"x": )"}}, "length"},
  };
  const json schema = {{"type", "object"}, {"properties", {{"x", {{"type", "integer"}}}}}};
  json tools = json::array(), named_tools = tools;
  for (const char* name : {"f", "g"}) {
    tools.push_back({{"type", "function"}, {"function", {{"name", name}, {"parameters", schema}}}});
    named_tools.push_back({{"name", name}, {"input_schema", schema}});
  }
  for (const Case& each : cases) {
    engine_.told.clear();
    for (const char c : each.answer) {
      engine_.told.push_back(c == '#'   ? *tokenizer_->token_to_id("[TOOL_CALLS]")
                             : c == '|' ? 258
                             : c == '.' ? 256
                                        : static_cast<unsigned char>(c));
    }
    json body = {{"messages", user("x")}, {"tools", tools}};
    body.update(each.more);
    const json choice = chat(body).json().at("choices").at(0);
    const json& message = choice.at("message");
    EXPECT_EQ(message.at("content"), each.text.empty() ? json() : json(each.text)) << each.answer;
    EXPECT_EQ(choice.at("finish_reason"), each.finish) << each.answer;
    ASSERT_EQ(message.contains("tool_calls") ? message.at("tool_calls").size() : 0, each.calls.size());
    for (size_t i = 0; i < each.calls.size(); ++i) {
      const json& call = message.at("tool_calls").at(i);
      EXPECT_EQ(call.at("type"), "function");
      EXPECT_EQ(call.at("id").get<std::string>().size(), 9u);
      EXPECT_EQ(call.at("function"),
                json({{"name", each.calls[i].first}, {"arguments", each.calls[i].second}}));
    }
    EXPECT_EQ(engine_.last().constraint != nullptr, each.more.contains("tool_choice") && !each.calls.empty());

    // The stream has them in parts, the name and the id in the first of each.
    body["stream"] = true;
    json streamed = {{"content", ""}, {"tool_calls", json::array()}};
    std::string finish;
    for (const std::string& event : chat(body).events()) {
      if (event == "[DONE]") continue;
      const json part = json::parse(event).at("choices").at(0);
      const json& delta = part.at("delta");
      streamed["content"] = streamed["content"].get<std::string>() + delta.value("content", "");
      for (const json& call : delta.value("tool_calls", json::array())) {
        json& all = streamed["tool_calls"];
        EXPECT_EQ(call.contains("id"), call.at("index") == all.size());
        EXPECT_EQ(call.at("function").contains("name"), call.contains("id"));
        if (call.contains("id")) all.push_back({call.at("function").at("name"), ""});
        all.back()[1] =
            all.back()[1].get<std::string>() + call.at("function").at("arguments").get<std::string>();
      }
      if (part.at("finish_reason").is_string()) finish = part.at("finish_reason");
    }
    EXPECT_EQ(streamed, json({{"content", each.text}, {"tool_calls", json(each.calls)}})) << each.answer;
    EXPECT_EQ(finish, each.finish) << each.answer;

    // The other API has them as blocks.
    body = {{"messages", user("x")}, {"tools", named_tools}, {"max_tokens", 50}};
    const std::string kind = each.more.contains("tool_choice") && each.calls.empty() ? "none"
                             : each.more == named                                    ? "tool"
                             : each.more.contains("tool_choice")                     ? "any"
                                                                                     : "auto";
    body["tool_choice"] = {{"type", kind},
                           {"disable_parallel_tool_use", each.more.contains("parallel_tool_calls")}};
    if (kind == "tool") body["tool_choice"]["name"] = "f";
    const json reply = testing::post(port(), "/v1/messages", body).json();
    json blocks = json::array();
    if (!each.text.empty()) blocks.push_back(each.text);
    for (const auto& [name, arguments] : each.calls)
      blocks.push_back({name, json::parse(arguments, nullptr, false).is_object() ? json::parse(arguments)
                                                                                 : json::object()});
    json made = json::array();
    for (const json& block : reply.at("content")) {
      made.push_back(block.at("type") == "text" ? block.at("text")
                                                : json({block.at("name"), block.at("input")}));
    }
    EXPECT_EQ(made, blocks) << each.answer;
    EXPECT_EQ(reply.at("stop_reason"), each.finish == "length" ? "max_tokens"
                                       : each.calls.empty()    ? "end_turn"
                                                               : "tool_use");
    body["stream"] = true;
    made = json::array();
    for (const std::string& event : testing::post(port(), "/v1/messages", body).events()) {
      const json part = json::parse(event);
      if (part.at("type") == "content_block_start") {
        EXPECT_EQ(part.at("index"), made.size());
        const json& block = part.at("content_block");
        made.push_back(block.at("type") == "text" ? json("") : json({block.at("name"), ""}));
      } else if (part.at("type") == "content_block_delta") {
        json& text = made.back().is_string() ? made.back() : made.back()[1];
        const json& delta = part.at("delta");
        text = text.get<std::string>() + delta.value("text", "") + delta.value("partial_json", "");
      }
    }
    blocks = json::array();
    if (!each.text.empty()) blocks.push_back(each.text);
    for (const auto& [name, arguments] : each.calls) blocks.push_back({name, arguments});
    EXPECT_EQ(made, blocks) << each.answer;
  }
  // Results come back under the ids of their calls.
  engine_.told.clear();
  const json call = {{"id", "abc"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}};
  const json spoken = {{{"role", "assistant"}, {"content", "c"}, {"tool_calls", {call}}},
                       {{"role", "tool"}, {"tool_call_id", "abc"}, {"content", "r"}}};
  EXPECT_EQ(chat({{"messages", spoken}}).json().at("choices").at(0).at("message").at("content"),
            "assistant\nc\ntool\nr\nassistant\n");
}

TEST_F(ServiceTest, EmbeddingsHaveTheFormOfTheApi) {
  const auto ask = [&](const json& body) { return testing::post(port(), "/v1/embeddings", body); };
  const json reply =
      ask({{"input", {"abc", "d"}}, {"model", "tiny"}, {"user", "u"}, {"normalize", false}}).json();
  EXPECT_EQ(reply.at("object"), "list");
  EXPECT_EQ(reply.at("model"), "tiny");
  EXPECT_EQ(reply.at("usage"), json({{"prompt_tokens", 4}, {"total_tokens", 4}}));
  EXPECT_EQ(reply.at("data").at(0),
            json({{"object", "embedding"}, {"index", 0}, {"embedding", {3, 97, 0.1}}}));
  EXPECT_EQ(reply.at("data").at(1).at("embedding"), json({1, 100, 0.1}));
  EXPECT_EQ(ask({{"input", {4, 8}}, {"dimensions", 3}}).json().at("data").at(0).at("embedding"),
            json({0.5, 1, 0.025}));
  EXPECT_EQ(ask({{"input", {{4, 8}, {5}}}}).json().at("data").size(), 2u);
  // 3, 97 and 0.1 as float32 in little-endian order.
  const json packed = ask({{"input", "abc"}, {"encoding_format", "base64"}, {"normalize", false}}).json();
  EXPECT_EQ(packed.at("data").at(0).at("embedding"), "AABAQAAAwkLNzMw9");
  engine_.is_full = true;
  EXPECT_EQ(ask({{"input", "abc"}}).status, 503);
  engine_.is_full = false;
  engine_.is_broken = true;
  const HttpAnswer broken = ask({{"input", "abc"}});
  EXPECT_EQ(broken.status, 500);
  EXPECT_EQ(broken.headers.at("x-should-retry"), "false");
  EXPECT_THAT(broken.body, HasSubstr("not finite"));
  engine_.no_embeddings = "its adapter puts virtual tokens before each text";
  EXPECT_THAT(ask({{"input", "abc"}}).body, HasSubstr("virtual tokens"));
  engine_.no_answers = "the model is an encoder, which generates nothing";
  const HttpAnswer refused = complete({{"prompt", "a"}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("/v1/embeddings"));
}

TEST_F(ServiceTest, ReasoningInAChannelIsTold) {
  tool_format_ = "harmony";
  start({});
  for (const char c : std::string("<|channel|>analysis<|message|>Hm<|end|><|channel|>final<|message|>Hi"))
    engine_.told.push_back(c);
  json body = {{"messages", user("hi")}, {"max_tokens", 70}};
  const json message = chat(body).json().at("choices").at(0).at("message");
  EXPECT_EQ(message.at("content"), "Hi");
  EXPECT_EQ(message.at("reasoning_content"), "Hm");
  body["stream"] = true;
  std::string content, reasoning;
  for (const std::string& event : chat(body).events()) {
    if (event == "[DONE]") continue;
    const json delta = json::parse(event).at("choices").at(0).at("delta");
    content += delta.value("content", "");
    reasoning += delta.value("reasoning_content", "");
  }
  EXPECT_EQ(content, "Hi");
  EXPECT_EQ(reasoning, "Hm");
  // An answer that is bound to a form has no channels.
  const json bound = chat({{"messages", user("hi")}, {"max_tokens", 70}, {"guided_regex", "<.*"}}).json();
  EXPECT_THAT(bound.at("choices").at(0).at("message").at("content").get<std::string>(),
              StartsWith("<|channel"));
}

TEST_F(ServiceTest, AClientThatLeavesEndsItsAnswers) {
  engine_.is_held = true;
  for (const bool streams : {false, true}) {
    engine_.num_cancelled = 0;
    HttpClient client(port());
    client.send(
        testing::post_text("/v1/completions", json{{"prompt", "abc"}, {"n", 3}, {"stream", streams}}.dump()));
    for (int i = 0; i < 500 && engine_.last().prompt.empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(engine_.num_cancelled, 0);
    client.leave();
    for (int i = 0; i < 500 && engine_.num_cancelled < 3; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(engine_.num_cancelled, 3);
  }
}

TEST_F(ServiceTest, ABusyServerAndAFailedAnswerAreTold) {
  engine_.is_full = true;
  const HttpAnswer full = complete({{"prompt", "a"}, {"stream", true}});
  EXPECT_EQ(full.status, 503);
  EXPECT_EQ(full.headers.at("retry-after"), "1");
  engine_.is_full = false;
  engine_.is_broken = true;
  const HttpAnswer failed = complete({{"prompt", "abc"}});
  EXPECT_EQ(failed.status, 500);
  EXPECT_EQ(failed.headers.at("x-should-retry"), "false");
  EXPECT_EQ(failed.json().at("error").at("message"), "the logits are not finite");
  const auto streamed_error = [&] {
    const auto events = complete({{"prompt", "abc"}, {"stream", true}}).events();
    EXPECT_EQ(events.back(), "[DONE]");
    return json::parse(events.at(events.size() - 2)).at("error");
  };
  EXPECT_EQ(streamed_error().at("type"), "server_error");
  const std::string metrics = testing::get(port(), "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("tessera:request_success_total{model_name=\"tiny\",engine=\"0\","
                                 "finished_reason=\"error\"} 2\n"));
  EXPECT_THAT(metrics, HasSubstr("tessera:admission_rejections_total{model_name=\"tiny\",engine=\"0\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("tessera:num_requests_waiting{model_name=\"tiny\",engine=\"0\"} 2\n"));
  const std::string of_drafts =
      "tessera:spec_decode_num_accepted_tokens_total{model_name=\"tiny\",engine=\"0\"} 5";
  EXPECT_THAT(metrics, HasSubstr(of_drafts));
  // The request may be at fault, too, as by a constraint that becomes ambiguous.
  engine_.failure = EndReason::Refused;
  const HttpAnswer refused = complete({{"prompt", "abc"}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.headers.count("x-should-retry"), 0u);
  EXPECT_EQ(refused.json().at("error").at("type"), "invalid_request_error");
  EXPECT_EQ(streamed_error().at("type"), "invalid_request_error");
}

TEST_F(ServiceTest, ADrainingServerTakesNoNewAnswers) {
  engine_.is_held = true;
  HttpClient under_way(port());
  under_way.send(testing::post_text("/v1/completions", "{\"prompt\": \"abc\"}"));
  for (int i = 0; i < 500 && server_->num_open() == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(testing::get(port(), "/health").json().at("status"), "ok");
  service_->drain(20);
  const HttpAnswer health = testing::get(port(), "/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.json().at("status"), "draining");
  EXPECT_GT(health.json().at("seconds_left"), 10);
  EXPECT_EQ(complete({{"prompt", "a"}}).status, 503);
  engine_.is_held = false;
  EXPECT_EQ(under_way.reply().json().at("choices").at(0).at("text"), "abc");
}

TEST_F(ServiceTest, KeysOpenAllRoutesButHealth) {
  testing::write_text(folder_ / "keys", "# ours\n\n  first-key \r\nsecond\n");
  start({.keys = ApiKeys::from_file(folder_ / "keys")});
  for (const std::string path : {"/v1/models", "/metrics", "/version", "/v1/nothing"}) {
    EXPECT_EQ(testing::get(port(), path).status, 401) << path;
    EXPECT_EQ(testing::get(port(), path, "Authorization: Bearer first-kez\r\n").status, 401) << path;
    EXPECT_EQ(testing::get(port(), path, "Authorization: Bearer first-key2\r\n").status, 401) << path;
    EXPECT_EQ(testing::get(port(), path, "Authorization: first-key\r\n").status, 401) << path;
    EXPECT_NE(testing::get(port(), path, "Authorization: Bearer first-key\r\n").status, 401) << path;
    EXPECT_NE(testing::get(port(), path, "X-Api-Key: second\r\n").status, 401) << path;
  }
  // The page for browsers asks for the key itself.
  const auto page = testing::get(port(), "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.body, StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page.headers.at("content-security-policy"), HasSubstr("default-src 'none'"));
  EXPECT_EQ(testing::get(port(), "/chat.html").status, 401);
  EXPECT_EQ(complete({{"prompt", "a"}}).status, 401);
  EXPECT_EQ(testing::get(port(), "/health").status, 200);
}

TEST_F(ServiceTest, RequestsChooseAmongModels) {
  const json models = testing::get(port(), "/v1/models").json().at("data");
  ASSERT_EQ(models.size(), 2U);
  EXPECT_FALSE(models.at(0).contains("parent"));
  EXPECT_EQ(models.at(1).at("id"), "tuned");
  EXPECT_EQ(models.at(1).at("parent"), "tiny");
  EXPECT_EQ(testing::get(port(), "/v1/models/tuned").json().at("id"), "tuned");
  for (const auto& [name, adapter] : {std::pair("tiny", 0), std::pair("tuned", 1)}) {
    const auto answer = complete({{"prompt", "ab"}, {"model", name}});
    EXPECT_EQ(answer.json().at("model"), name);
    EXPECT_EQ(engine_.last().adapter, adapter);
  }
  complete({{"prompt", "ab"}});
  EXPECT_EQ(engine_.last().adapter, 0);
  // Each has a template of its own, or none.
  EXPECT_EQ(chat({{"messages", user("hi")}}).status, 200);
  const auto refused = chat({{"messages", user("hi")}, {"model", "tuned"}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("it was trained without"));
  const auto unknown = complete({{"prompt", "ab"}, {"model", "other"}});
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.body, HasSubstr("'tiny', 'tuned'"));
  EXPECT_EQ(complete({{"prompt", "ab"}, {"model", 3}}).status, 400);
}

TEST_F(ServiceTest, SmallRoutes) {
  const json models = testing::get(port(), "/v1/models").json();
  EXPECT_EQ(models.at("data").at(0).at("id"), "tiny");
  EXPECT_EQ(models.at("data").at(0).at("max_model_len"), 100);
  EXPECT_EQ(testing::get(port(), "/v1/models/tiny").json().at("id"), "tiny");
  EXPECT_EQ(testing::get(port(), "/v1/models/other").status, 404);
  EXPECT_EQ(testing::get(port(), "/version", "X-Request-Id: mine-1\r\n").headers.at("x-request-id"),
            "mine-1");
  const json tokens =
      testing::post(port(), "/tokenize", {{"prompt", "ab"}, {"return_token_strs", true}}).json();
  EXPECT_EQ(tokens.at("tokens"), json({97, 98}));
  EXPECT_EQ(tokens.at("token_strs"), json({"a", "b"}));
  EXPECT_EQ(testing::post(port(), "/tokenize", {{"messages", user("hi")}}).json().at("count"), 21);
  EXPECT_EQ(testing::post(port(), "/detokenize", {{"tokens", {104, 105}}}).json().at("prompt"), "hi");
}

}  // namespace
}  // namespace tessera::serving

#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/config/schema.h"
#include "tessera/data/prompts/llama_factory.h"

#include "tests/data/expect_error.h"
#include "tests/data/prompt_fixture.h"
#include "tests/testing/random.h"
#include "tests/testing/temp_folder.h"

namespace tessera::data {
namespace {

using ::testing::HasSubstr;

text::Tokenizer smollm2_tokenizer() {
  text::Tokenizer tokenizer = text::Tokenizer::from_file(
      testing::source_folder() + "/tests/reference/data/tokenizer/smollm2/tokenizer.json");
  tokenizer.set_special_token("bos_token", "<|im_start|>");
  tokenizer.set_special_token("eos_token", "<|im_end|>");
  tokenizer.set_special_token("unk_token", "<|endoftext|>");
  return tokenizer;
}

config::DataConfig recipe_of(const Json& keys) {
  config::DataConfig recipe;
  recipe.sequence_len = keys.value("sequence_len", int64_t{2048});
  recipe.train_on_inputs = keys.value("train_on_inputs", false);
  recipe.rl = keys.value("rl", std::string());
  if (keys.contains("eot_tokens")) recipe.eot_tokens = keys["eot_tokens"].get<std::vector<std::string>>();
  if (keys.contains("chat_template_kwargs")) {
    for (const auto& [name, value] : keys["chat_template_kwargs"].items())
      recipe.chat_template_kwargs[name] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return recipe;
}

// Returns the keys in the form in which the recipe's reader leaves them.
Json read_keys(Json keys) {
  if (keys.contains("conversation")) keys["chat_template"] = keys["conversation"];
  keys.erase("conversation");
  if (keys["type"] == "alpaca:instruct" || keys["type"] == "alpaca_instruct") keys["type"] = "alpaca";
  if (keys["type"] == "alpaca:chat") keys["type"] = "alpaca_chat";
  return keys;
}

std::string shown(const std::vector<int32_t>& ids, const text::Tokenizer& tokenizer) {
  std::string text;
  for (const int32_t id : ids) text += id < 0 ? std::string("_|") : tokenizer.token_bytes(id) + '|';
  return text;
}

// The expected rows were made by Axolotl (tests/reference/make_dataset_reference.py).
TEST(DatasetTypes, RowsEqualTheReference) {
  std::ifstream file(prompt_reference_folder() + "/datasets.json");
  const Json cases = Json::parse(file);
  ASSERT_GT(cases.size(), 200U);
  const text::Tokenizer smollm2 = smollm2_tokenizer();
  for (const Json& test : cases) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const text::Tokenizer& tokenizer = test["tokenizer"] == "small" ? small_tokenizer() : smollm2;
    const config::DataConfig recipe = recipe_of(test["recipe"]);
    const config::DatasetConfig dataset = dataset_of(read_keys(test["dataset"]));
    std::vector<Row> rows;
    try {
      make_prompt_type(dataset, {recipe, &tokenizer, nullptr, 0})->tokenize({test["record"]}, rows);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
      continue;
    }
    std::erase_if(rows, [](const Row& row) { return row.input_ids.empty(); });
    const Json& expected = test["rows"];
    if (rows.size() != expected.size()) {
      ADD_FAILURE() << rows.size() << " rows, and not " << expected.size();
      continue;
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto ids = expected[i]["input_ids"].get<std::vector<int32_t>>();
      const auto labels = expected[i]["labels"].get<std::vector<int32_t>>();
      EXPECT_TRUE(rows[i].input_ids == ids)
          << shown(rows[i].input_ids, tokenizer) << "\nneed " << shown(ids, tokenizer);
      EXPECT_TRUE(rows[i].labels == labels)
          << shown(rows[i].labels, tokenizer) << "\nneed " << shown(labels, tokenizer);
    }
  }
}

std::vector<std::string> texts_of(const Json& dataset, const Json& record, const std::string& rl) {
  config::DataConfig recipe;
  recipe.rl = rl;
  std::vector<std::string> texts;
  for (const Row& row : tokenize_record(dataset, record, recipe)) {
    std::string text;
    for (size_t i = 0; i < row.input_ids.size(); ++i) {
      const bool is_border = i > 0 && (row.labels[i] == kIgnoreLabel) != (row.labels[i - 1] == kIgnoreLabel);
      text += (is_border ? "#" : "") + small_tokenizer().token_bytes(row.input_ids[i]);
    }
    texts.push_back(text);
  }
  return texts;
}

// In the expected texts, # stands before the part that is trained.
TEST(Preferences, RowsOfEveryShape) {
  const std::string user = "<|bos|><|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n#";
  const std::string system =
      "<|bos|><|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n#";
  const std::string llama =
      "<|bos|><|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|><|start_header_id|>assistant<|end_"
      "header_id|>\n\n#";
  const Json pair = {{"chosen", "a"}, {"rejected", "b"}};
  const auto with = [&](const char* column) {
    Json record = pair;
    record[column] = "q";
    return record;
  };
  const std::vector<std::string> plain = {user + "a<|im_end|>", user + "b<|im_end|>"};
  EXPECT_EQ(texts_of({{"type", "chatml"}}, with("prompt"), "dpo"), plain);
  EXPECT_EQ(texts_of({{"type", "chatml"}}, with("instruction"), "dpo"), plain);
  EXPECT_EQ(texts_of({{"type", "chatml.icr"}}, with("input"), "ipo"), plain);
  EXPECT_EQ(texts_of({{"type", "chatml.intel"}}, with("question"), "simpo"), plain);
  EXPECT_EQ(texts_of({{"type", "chatml.prompt_pairs"}}, with("prompt"), ""), plain);
  EXPECT_EQ(texts_of({{"type", "llama3.intel"}}, with("question"), "dpo"),
            (std::vector<std::string>{llama + "a<|eot_id|>", llama + "b<|eot_id|>"}));
  Json record = with("question");
  record["system"] = "s";
  EXPECT_EQ(texts_of({{"type", "chatml.intel"}}, record, "dpo"),
            (std::vector<std::string>{system + "a<|im_end|>", system + "b<|im_end|>"}));
  EXPECT_EQ(texts_of({{"type", "chatml.argilla"}},
                     {{"instruction", "q"}, {"chosen_response", "a"}, {"rejected_response", "b"}}, "dpo"),
            plain);
  const auto talk = [](const char* answer) {
    return Json::array({{{"role", "user"}, {"content", "q"}}, {{"role", "assistant"}, {"content", answer}}});
  };
  EXPECT_EQ(
      texts_of({{"type", "chatml.argilla_chat"}}, {{"chosen", talk("a")}, {"rejected", talk("b")}}, "dpo"),
      plain);
  EXPECT_EQ(texts_of({{"type", "chatml.ultra"}},
                     {{"prompt", "q"}, {"chosen", talk("a")}, {"rejected", talk("b")}}, "dpo"),
            plain);
  const Json jinja = {{"type", "chat_template"},
                      {"chat_template_jinja",
                       "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
                       "{% if add_generation_prompt %}<assistant>{% endif %}"}};
  const std::vector<std::string> rendered = {"<user>q<assistant>#a<|endoftext|>",
                                             "<user>q<assistant>#b<|endoftext|>"};
  Json messages = pair;
  messages["messages"] = talk("x")[0].is_object() ? Json::array({talk("x")[0]}) : Json();
  EXPECT_EQ(texts_of(jinja, messages, "dpo"), rendered);
  messages["messages"] = "q";
  messages["chosen"] = Json{{"role", "assistant"}, {"content", "a"}};
  EXPECT_EQ(texts_of(jinja, messages, "dpo"), rendered);
  Json argilla = jinja;
  argilla["type"] = "chat_template.argilla_chat";
  EXPECT_EQ(texts_of(argilla, {{"chosen", talk("a")}, {"rejected", talk("b")}}, "dpo"), rendered);
  argilla["type"] = "chat_template.argilla";
  EXPECT_EQ(texts_of(argilla, {{"chosen", talk("a")}, {"rejected", talk("b")}}, "orpo"), rendered);
  EXPECT_EQ(texts_of({{"type", "user_defined"}, {"prompt_format", "[{prompt}]"}, {"field_prompt", "ask"}},
                     {{"ask", "q"}, {"chosen", "a"}, {"rejected", "b"}}, "dpo"),
            (std::vector<std::string>{"<|bos|>[q]#a<|endoftext|>", "<|bos|>[q]#b<|endoftext|>"}));
  EXPECT_EQ(texts_of({{"type", "passthrough"}}, with("prompt"), "dpo"),
            (std::vector<std::string>{"<|bos|>q#a<|endoftext|>", "<|bos|>q#b<|endoftext|>"}));
  const Json answers = Json::array(
      {{{"answer", "c"}, {"rank", 3}}, {{"answer", "a"}, {"rank", 1}}, {{"answer", "b"}, {"rank", 2}}});
  const auto nectar = texts_of({{"type", "zephyr.nectar"}}, {{"prompt", "q"}, {"answers", answers}}, "dpo");
  ASSERT_EQ(nectar.size(), 2U);
  EXPECT_TRUE(nectar[0].ends_with("<|assistant|>\n#a<|endoftext|>")) << "the best: " << nectar[0];
  EXPECT_TRUE(nectar[1].ends_with("<|assistant|>\n#b<|endoftext|>")) << "the next: " << nectar[1];
  EXPECT_EQ(texts_of({{"type", "chatml.argilla"}},
                     {{"instruction", "q"}, {"completion", "a"}, {"label", true}}, "kto"),
            (std::vector<std::string>{user + "a<|im_end|>"}));
  EXPECT_EQ(texts_of({{"type", "chatml.argilla_chat"}}, {{"completion", talk("a")}, {"label", false}}, "kto"),
            (std::vector<std::string>{user + "a<|im_end|>"}));
}

TEST(Preferences, BradleyTerryRowsAreAQuestionWithTwoAnswers) {
  const Json dataset = {{"type", "bradley_terry.chat_template"}, {"chat_template", "chatml"}};
  const Json record = {{"system", "s"}, {"input", "q"}, {"chosen", "a"}, {"rejected", "b"}};
  const std::string prompt =
      "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n#";
  const std::string end = "<|endoftext|>";
  EXPECT_EQ(texts_of(dataset, record, ""),
            (std::vector<std::string>{prompt + "a" + end, prompt + "b" + end}));
  Json without = record;
  without.erase("input");
  EXPECT_THAT(error_text("E-DATA-MISSING-FIELD", [&] { texts_of(dataset, without, ""); }),
              HasSubstr("no field 'input'"));
  config::DataConfig recipe;
  recipe.datasets.push_back(dataset_of(dataset));
  EXPECT_THAT(error_text("E-CONFIG-UNSUPPORTED", [&] { refuse_unbuilt_objective(recipe); }),
              HasSubstr("training on preferences is not supported yet"));
}

TEST(Preferences, BadRecordsNameTheField) {
  const auto text_of = [](const std::string& code, const Json& dataset, const Json& record, const char* rl) {
    return error_text(code, [&] { texts_of(dataset, record, rl); });
  };
  const Json intel = {{"type", "chatml.intel"}};
  EXPECT_THAT(text_of("E-DATA-MISSING-FIELD", intel, {{"question", "q"}, {"chosen", "a"}}, "dpo"),
              HasSubstr("no field 'rejected'; got fields question, chosen"));
  EXPECT_THAT(text_of("E-DATA-MISSING-FIELD", intel, {{"question", "q"}, {"completion", "a"}}, "kto"),
              HasSubstr("no field 'label'"));
  EXPECT_THAT(
      text_of("E-DATA-FIELD-TYPE", intel, {{"question", "q"}, {"completion", "a"}, {"label", "yes"}}, "kto"),
      HasSubstr("field 'label' is not a boolean; got string"));
  EXPECT_THAT(text_of("E-DATA-FIELD-SIZE", {{"type", "chatml.argilla_chat"}},
                      {{"chosen", Json::array({1})}, {"rejected", Json::array()}}, "dpo"),
              HasSubstr("field 'chosen' is too short for a question and an answer"));
  EXPECT_THAT(text_of("E-CONFIG-DATASET-TYPE", {{"type", "chatml.icr"}}, Json::object(), "kto"),
              HasSubstr("r.yaml:7: no type of preferences (rl: kto) is called 'chatml.icr'"));
  EXPECT_THAT(text_of("E-CONFIG-DATASET-TYPE", {{"type", "alpaca"}}, Json::object(), "dpo"),
              HasSubstr("'alpaca'"));
}

TEST(Preferences, TrainingOnThemIsRefusedAtTheEntry) {
  config::DataConfig recipe;
  recipe.datasets.push_back(dataset_of({{"type", "alpaca"}}));
  EXPECT_NO_THROW(refuse_unbuilt_objective(recipe));
  recipe.datasets.push_back(dataset_of({{"type", "chatml.intel"}}));
  EXPECT_THAT(error_text("E-CONFIG-UNSUPPORTED", [&] { refuse_unbuilt_objective(recipe); }),
              HasSubstr("r.yaml:7: training on preferences is not supported yet; got type: chatml.intel"));
  recipe.datasets[1].type = "stepwise_supervised";
  EXPECT_THAT(error_text("E-CONFIG-UNSUPPORTED", [&] { refuse_unbuilt_objective(recipe); }),
              HasSubstr("training a reward model on steps is not supported yet"));
}

TEST(Stepwise, MarksTheLastTokenOfEveryStep) {
  const Json dataset = {{"type", "stepwise_supervised"}};
  EXPECT_EQ(texts_of(dataset, {{"prompt", "q"}, {"completions", {"a", "b"}}, {"labels", {true, false}}}, ""),
            (std::vector<std::string>{"<|bos|>qa#\n#b#\n"}));
  EXPECT_THAT(
      error_text("E-DATA-FIELD-SIZE",
                 [&] {
                   tokenize_record(dataset, {{"prompt", "q"}, {"completions", {"a"}}, {"labels", {1, 0}}});
                 }),
      HasSubstr("field 'labels' has another length than 'completions'; got 2, need 1"));
}

TEST(OwnFormat, BadFormatsAreTheRecipes) {
  const auto text_of = [](const char* key, const char* format) {
    return error_text("E-CONFIG-FORMAT", [&] {
      tokenize_record({{"type", "user_defined"}, {key, format}}, {{"instruction", "x"}, {"output", "y"}});
    });
  };
  EXPECT_THAT(text_of("format", "{instructon}"),
              HasSubstr("r.yaml:7: key 'format': unknown placeholder {instructon}"));
  EXPECT_THAT(text_of("no_input_format", "{input}"), HasSubstr("need {instruction}"));
  EXPECT_THAT(text_of("system_format", "{system"), HasSubstr("unmatched brace"));
}

TEST(TrainingDetail, BadOnesAreTold) {
  const Json dataset = {
      {"type", "chat_template"}, {"chat_template", "chatml"}, {"message_field_training_detail", "d"}};
  const auto text_of = [&](const std::string& code, const Json& detail, const Json& other = nullptr) {
    return error_text(code, [&] {
      tokenize_record(other.is_null() ? dataset : other,
                      {{"messages", {{{"role", "assistant"}, {"content", "abc"}, {"d", detail}}}}});
    });
  };
  EXPECT_THAT(text_of("E-DATA-FIELD-TYPE", "x"),
              HasSubstr("messages[0]: field 'd' is not a list; got string"));
  EXPECT_THAT(text_of("E-DATA-TRAINING-DETAIL", {{{"begin_offset", 0}}}),
              HasSubstr("an element of 'd' has no 'end_offset'"));
  EXPECT_THAT(text_of("E-DATA-TRAINING-DETAIL", {{{"begin_offset", 2}, {"end_offset", 1}, {"train", true}}}),
              HasSubstr("need begin_offset <= end_offset"));
  Json upper = dataset;
  upper["chat_template"] = "jinja";
  upper["chat_template_jinja"] = "{% for m in messages %}{{ m['content'] | upper }}{% endfor %}";
  EXPECT_THAT(
      text_of("E-DATA-TRAINING-DETAIL", {{{"begin_offset", 0}, {"end_offset", 1}, {"train", true}}}, upper),
      HasSubstr("the chat template changes this text"));
}

TEST(LlamaFactory, AlpacaRowsAreConversations) {
  const Json dataset = {{"type", "llama_factory"}, {"chat_template", "chatml"}};
  const Json record = {{"instruction", "q"},
                       {"input", "x"},
                       {"output", "a"},
                       {"system", "s"},
                       {"history", Json::array({Json::array({"h", "i"})})}};
  EXPECT_EQ(texts_of(dataset, record, ""),
            (std::vector<std::string>{
                "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nh<|im_end|>\n<|im_start|>assistant\n"
                "#i<|im_end|>#\n<|im_start|>user\nq\nx<|im_end|>\n<|im_start|>assistant\n#a<|im_end|>#\n"}));
}

TEST(LlamaFactory, DatasetInfoNamesFileColumnsAndTags) {
  const testing::TempFolder folder;
  folder.write("dataset_info.json", R"({
    "own": {"file_name": "a.json", "columns": {"prompt": "ask", "query": "given", "response": "answer"}},
    "talk": {"file_name": "b.json", "formatting": "sharegpt", "columns": {"messages": "turns", "tools": "functions"},
             "tags": {"role_tag": "who", "content_tag": "what", "user_tag": "Anna", "assistant_tag": "Bob"}},
    "pairs": {"file_name": "c.json", "ranking": true}, "hub": {"hf_hub_url": "a/b"}})");
  const auto resolve = [&](const char* name) {
    return resolve_dataset_info(
        dataset_of({{"type", "llama_factory"}, {"path", folder.path()}, {"name", name}}), "");
  };
  const config::DatasetConfig own = resolve("own");
  EXPECT_EQ(own.path, folder.path() + "/a.json");
  EXPECT_EQ(own.field_instruction, "ask");
  EXPECT_EQ(own.field_output, "answer");
  const config::DatasetConfig talk = resolve("talk");
  config::DataConfig recipe;
  config::DatasetConfig chatml = talk;
  chatml.chat_template = "chatml";
  std::vector<Row> rows;
  const Json record = {{"turns", {{{"who", "Anna"}, {"what", "q"}}, {{"who", "Bob"}, {"what", "a"}}}}};
  make_prompt_type(chatml, {recipe, &small_tokenizer(), nullptr, 0})->tokenize({record}, rows);
  EXPECT_EQ(trained_texts(rows.at(0)), std::vector<std::string>{"a<|im_end|>"});
  EXPECT_THAT(error_text("E-CONFIG-DATASET-INFO", [&] { resolve("onw"); }), HasSubstr("did you mean 'own'?"));
  EXPECT_THAT(error_text("E-CONFIG-DATASET-INFO", [&] { resolve("pairs"); }),
              HasSubstr("preference datasets are not supported"));
  EXPECT_THAT(error_text("E-CONFIG-DATASET-INFO", [&] { resolve("hub"); }), HasSubstr("is on a hub"));
}

TEST(LlamaFactory, ADescriptionIsFollowedOrItsKeyNamed) {
  const testing::TempFolder folder;
  const auto describe = [&](const std::string& description) {
    folder.write("dataset_info.json", R"({"a": {"file_name": "a.json", )" + description + "}}");
    return resolve_dataset_info(
        dataset_of({{"type", "llama_factory"}, {"path", folder.path()}, {"name", "a"}}), "");
  };
  const Json record = {{"instruction", "q"},
                       {"input", "x"},
                       {"output", "a"},
                       {"system", "s"},
                       {"rules", "r"},
                       {"history", Json::array({Json::array({"h", "i"})})},
                       {"before", Json::array({Json::array({"b", "c"})})}};
  const auto texts = [&](const std::string& description) {
    config::DataConfig recipe;
    config::DatasetConfig entry = describe(description);
    entry.chat_template_jinja = "{% for m in messages %}<{{ m['role'][0] }}>{{ m['content'] }}{% endfor %}";
    std::vector<Row> rows;
    make_prompt_type(entry, {recipe, &small_tokenizer(), nullptr, 0})->tokenize({record}, rows);
    return small_tokenizer().decode(rows.at(0).input_ids);
  };
  EXPECT_EQ(texts(R"("num_samples": null)"), "<u>q\nx<a>a") << "unnamed system and history are not read";
  EXPECT_EQ(texts(R"("columns": {"prompt": "instruction", "response": "output", "system": "rules",
                                 "history": "before"})"),
            "<s>r<u>b<a>c<u>q<a>a");
  EXPECT_EQ(texts(R"("columns": {"query": "input", "response": "output"})"), "<u>x<a>a");
  EXPECT_EQ(describe(R"("split": "train[:5]")").split, "train[:5]");
  const auto refused = [&](const std::string& text) {
    return error_text("E-CONFIG-DATASET-INFO", [&] { describe(text); });
  };
  EXPECT_THAT(refused(R"("num_samples": 10)"), HasSubstr("`split: train[:N]`"));
  EXPECT_THAT(refused(R"("columns": {"prompt": "q"})"), HasSubstr("name no response"));
  EXPECT_THAT(refused(R"("columns": {"prompt": 5})"), HasSubstr("'prompt' is not text; got 5"));
  ::testing::internal::CaptureStderr();
  describe(R"("subset": "x", "license": "mit", "columns": {"promt": "q", "response": "a"})");
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("'a': 'subset' has no effect together with file_name"));
  EXPECT_THAT(told, HasSubstr("unused key 'license' of its description"));
  EXPECT_THAT(told, HasSubstr("'promt' of its columns; did you mean 'prompt'?"));
}

TEST(LlamaFactory, AConversationsOwnSystemMessageGoesBeforeTheColumn) {
  const Json dataset = {
      {"type", "llama_factory"},
      {"field_messages", "conversations"},
      {"chat_template_jinja", "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"}};
  const auto turn = [](const char* role, const char* text) { return Json{{"from", role}, {"value", text}}; };
  Json record = {{"system", "column"}, {"conversations", {turn("human", "q"), turn("gpt", "a")}}};
  EXPECT_EQ(texts_of(dataset, record, "").at(0), "<system>column<user>q<assistant>#a");
  record["conversations"].insert(record["conversations"].begin(), turn("system", "own"));
  EXPECT_EQ(texts_of(dataset, record, "").at(0), "<system>own<user>q<assistant>#a");
}

TEST(LlamaFactory, FunctionCallsAreToolCalls) {
  const Json dataset = {{"type", "llama_factory"},
                        {"field_messages", "conversations"},
                        {"chat_template_jinja",
                         "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% if m['tool_calls'] %}"
                         "{{ m['tool_calls'][0]['function']['name'] }}{% endif %}{% endfor %}"
                         "{% if add_generation_prompt %}<assistant>{% endif %}"}};
  const auto turn = [](const char* role, const char* text) { return Json{{"from", role}, {"value", text}}; };
  const Json record = {{"conversations",
                        {turn("human", "q"), turn("function_call", R"({"name": "f", "arguments": {}})"),
                         turn("observation", "12"), turn("gpt", "a")}}};
  EXPECT_EQ(texts_of(dataset, record, "").at(0), "<user>q<assistant>#f#<tool>12<assistant>#a");
  EXPECT_THAT(error_text("E-DATA-FIELD-TYPE",
                         [&] {
                           tokenize_record(dataset, {{"conversations", {turn("function_call", "x")}}});
                         }),
              HasSubstr("a function call is not valid JSON; got x"));
}

// Returns a value that a column should not hold.
Json odd_value(std::mt19937_64& random) {
  static const std::vector<Json> kValues = {
      nullptr,
      true,
      3,
      -1,
      1e300,
      18446744073709551615ULL,
      "",
      "x",
      "[",
      "[]",
      "{}",
      "{\"name\": 1}",
      "<think>a</think>",
      "</think><think>",
      Json::array(),
      Json::array({nullptr}),
      Json::array({1, "a"}),
      Json::array({Json::array()}),
      Json::object(),
      Json::array({Json::object()}),
      Json::array({{{"role", "user"}, {"content", "x"}}}),
      Json::array({{{"role", "assistant"}, {"content", Json::array({{{"type", "text"}}})}}}),
      Json::array({{{"from", "gpt"},
                    {"value", "x"},
                    {"parts", Json::array({{{"begin_offset", 9}, {"end_offset", 9}, {"train", true}}})}}}),
      Json::array({{{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({1})}}}),
      Json::array({{{"role", "assistant"}, {"content", nullptr}, {"tool_calls", "x"}}}),
      Json::array({{{"from", "gpt"},
                    {"value", nullptr},
                    {"tool_calls", Json::array({1})},
                    {"content", Json::array({1})}}}),
      Json::array({{{"label", true}, {"text", "x"}}}),
      Json::array({Json::array({"a", "b"})}),
      Json::array({{{"answer", "x"}, {"rank", 1}}, {{"answer", "y"}, {"rank", "z"}}})};
  return kValues[random() % kValues.size()];
}

TEST(DatasetTypes, OddRecordsEndInRowsOrADataError) {
  testing::Random numbers;
  std::mt19937_64& random = numbers.engine();
  const char* columns[] = {
      "instruction", "input",     "output",        "system",        "question", "answer",      "response",
      "choices",     "solution",  "explanation",   "article",       "summary",  "context",     "reflection",
      "corrected",   "scores",    "critiques",     "revision",      "prompt",   "generation",  "text",
      "segments",    "messages",  "conversations", "tools",         "history",  "completions", "labels",
      "chosen",      "rejected",  "completion",    "label",         "answers",  "INSTRUCTION", "RESPONSE",
      "category",    "message_1", "message_2",     "system_prompt", "input_ids"};
  std::vector<std::string> types = prompt_type_names();
  types.insert(types.end(), {"chatml", "chatml.ultra", "llama3.argilla_chat", "zephyr.nectar",
                             "chat_template.argilla_chat", ""});
  int64_t rows_made = 0;
  for (const std::string& type : types) {
    Json keys = {{"type", type},
                 {"chat_template", "qwen3"},
                 {"message_field_training_detail", "parts"},
                 {"split_thinking", true}};
    const config::DatasetConfig dataset = dataset_of(keys);
    const config::DataConfig recipe;
    const auto prompt = make_prompt_type(dataset, {recipe, &small_tokenizer(), nullptr, 0});
    for (int i = 0; i < 300; ++i) {
      Json record = Json::object();
      for (const char* column : columns) {
        if (random() % 3 != 0) record[column] = random() % 2 == 0 ? Json("x") : odd_value(random);
      }
      std::vector<Row> rows;
      try {
        prompt->tokenize({record}, rows);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::Data) << type << ' ' << error.what() << '\n' << record.dump();
      } catch (const Json::exception&) {
        // The caller of the type turns these exceptions into an error at the record's line.
      }
      for (const Row& row : rows)
        EXPECT_EQ(row.input_ids.size(), row.labels.size()) << type << ' ' << record.dump();
      rows_made += static_cast<int64_t>(rows.size());
    }
  }
  EXPECT_GT(rows_made, 500);
}

TEST(DatasetTypes, EveryNameOfTheRecipeIsBuilt) {
  config::DataConfig text, preferences;
  preferences.rl = "dpo";
  for (const auto& key : config::dataset_keys()) {
    if (key.name != "type") continue;
    for (const config::Choice& choice : key.choices) {
      if (choice.value == config::kNotBuilt) continue;
      std::string name(choice.name);
      if (name.ends_with('*'))
        name.replace(name.size() - 1, 1, name == "reflection:*" ? "instruct" : "chatml");
      Json dataset = {{"type", name}, {"chat_template", "chatml"}};
      EXPECT_NO_THROW(make_prompt_type(dataset_of(dataset), {text, &small_tokenizer(), nullptr, 0})) << name;
    }
  }
}

}  // namespace
}  // namespace tessera::data

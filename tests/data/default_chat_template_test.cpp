#include "tessera/data/default_chat_template.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/io/file.h"
#include "tessera/text/select_chat_template.h"

#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_model.h"

namespace tessera::data {
namespace {

using testing::TempFolder;
using testing::tiny_chat_template;

std::string builtin(const std::string& name) { return text::ChatTemplate::builtin(name).source(); }

config::DatasetConfig chats(const std::string& chat_template = "") {
  config::DatasetConfig dataset;
  dataset.type = "chat_template";
  dataset.chat_template = chat_template;
  return dataset;
}

class TrainedTemplateTest : public ::testing::Test {
 protected:
  void SetUp() override { testing::write_tiny_tokenizer(folder_.path()); }

  std::string trained(const std::string& recipe_template,
                      const std::vector<config::DatasetConfig>& datasets) const {
    config::DataConfig recipe;
    recipe.chat_template = recipe_template;
    recipe.datasets = datasets;
    return trained_chat_template(recipe, text::Tokenizer::from_folder(folder_.path()));
  }
  // Saves the tokenizer with another template and returns the folder.
  std::string saved(const std::string& source) const {
    text::Tokenizer tokenizer = text::Tokenizer::from_folder(folder_.path());
    tokenizer.set_chat_template(source);
    tokenizer.save(folder_ / "saved");
    EXPECT_EQ(text::Tokenizer::from_folder(folder_ / "saved").chat_template(), source);
    return folder_ / "saved";
  }

  TempFolder folder_;
};

TEST_F(TrainedTemplateTest, IsTheOneOfTheChatDatasets) {
  EXPECT_EQ(trained("", {chats()}), tiny_chat_template());
  EXPECT_EQ(trained("tokenizer_default", {chats()}), tiny_chat_template());
  EXPECT_EQ(trained("llama3", {chats()}), builtin("llama3"));
  EXPECT_EQ(trained("", {chats("alpaca")}), builtin("alpaca"));
  EXPECT_EQ(trained("llama3", {chats("alpaca"), chats("alpaca")}), builtin("alpaca"));
  config::DatasetConfig sharegpt = chats("mistral");
  sharegpt.type = "sharegpt";
  EXPECT_EQ(trained("", {sharegpt}), builtin("mistral"));
}

TEST_F(TrainedTemplateTest, IsTheRecipesWithoutChatDatasets) {
  config::DatasetConfig plain;
  plain.type = "alpaca";
  EXPECT_EQ(trained("", {plain}), tiny_chat_template());
  EXPECT_EQ(trained("chatml", {plain}), builtin("chatml"));
  EXPECT_EQ(trained("chatml", {plain, chats("llama3")}), builtin("llama3"));
}

TEST_F(TrainedTemplateTest, SeveralAreTold) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(trained("llama3", {chats(), chats("alpaca")}), builtin("llama3"));
  EXPECT_EQ(trained("", {chats(), chats("alpaca")}), tiny_chat_template());
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(warnings, ::testing::HasSubstr("2 chat templates; the result's template is the recipe's"));
  EXPECT_THAT(warnings, ::testing::HasSubstr("the model's own"));
}

TEST_F(TrainedTemplateTest, WhereThereIsNoneRecipesAndVerbsAreToldWhatToName) {
  text::Tokenizer tokenizer = text::Tokenizer::from_folder(folder_.path());
  tokenizer.set_chat_template("");
  try {
    text::select_chat_template("", "", "", tokenizer);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-MODEL-NO-CHAT-TEMPLATE");
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("with chat_template (or chat_template_jinja) in a recipe"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("--chat-template"));
  }
}

TEST_F(TrainedTemplateTest, AModelWithNamedOnesHasOneForTools) {
  const auto with_list = [&](const nlohmann::json& list) {
    auto config = nlohmann::json::parse(io::read_file(folder_ / "tokenizer_config.json", 1 << 20));
    config["chat_template"] = list;
    testing::write_text(folder_ / "tokenizer_config.json", config.dump());
    return text::Tokenizer::from_folder(folder_.path());
  };
  const auto text_of = [](const text::Tokenizer& tokenizer, const std::string& name, bool has_tools) {
    const nlohmann::ordered_json tools = {{{"type", "function"}}};
    return text::select_chat_template(name, "", "", tokenizer)
        ->render(nlohmann::ordered_json::array(), has_tools ? tools : nlohmann::ordered_json(), {})
        .text();
  };
  const auto error_of = [&](const text::Tokenizer& tokenizer, const std::string& name, bool has_tools) {
    try {
      return text_of(tokenizer, name, has_tools);
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  const nlohmann::json plain = {{"name", "default"}, {"template", "plain"}},
                       tools = {{"name", "tool_use"}, {"template", "tools"}},
                       rag = {{"name", "rag"}, {"template", "rag"}},
                       broken = {{"name", "tool_use"}, {"template", "{% no %}"}};
  const text::Tokenizer all = with_list({plain, tools, rag});
  EXPECT_EQ(text_of(all, "", false), "plain");
  EXPECT_EQ(text_of(all, "", true), "tools");
  EXPECT_EQ(text_of(all, "tokenizer_default_fallback_chatml", true), "tools");
  EXPECT_EQ(text_of(all, "tokenizer_default.rag", true), "rag");
  EXPECT_THAT(error_of(all, "tokenizer_default.rga", true),
              ::testing::HasSubstr("got 'rga', need one of default, rag, tool_use"));
  EXPECT_EQ(text_of(with_list({plain, rag}), "", true), "plain");

  const text::Tokenizer faulty = with_list({plain, broken});
  EXPECT_EQ(text_of(faulty, "", false), "plain");
  EXPECT_THAT(error_of(faulty, "", true), ::testing::HasSubstr("the model's chat template tool_use:1:"));

  const text::Tokenizer none = with_list({tools, rag});
  const std::string error = error_of(none, "", true);
  EXPECT_THAT(error, ::testing::HasSubstr("E-MODEL-NO-CHAT-TEMPLATE"));
  EXPECT_THAT(error, ::testing::HasSubstr("got rag, tool_use. hint: choose one, with chat_template: "
                                          "tokenizer_default.rag in a recipe"));
  EXPECT_EQ(trained("tokenizer_default.rag", {chats()}), "rag");
}

TEST_F(TrainedTemplateTest, IsSavedWhereReadersLook) {
  const auto config_of = [](const std::string& folder) {
    return nlohmann::json::parse(io::read_file(folder + "/tokenizer_config.json", 1 << 20));
  };
  EXPECT_EQ(config_of(saved("{{ 'new' }}")).at("chat_template"), "{{ 'new' }}");
  EXPECT_FALSE(io::exists(folder_ / "saved/chat_template.jinja"));

  // The base has only the file, then the file and a template in its settings.
  testing::write_text(folder_ / "chat_template.jinja", "{{ 'of the file' }}");
  EXPECT_EQ(config_of(saved("{{ 'both' }}")).at("chat_template"), "{{ 'both' }}");
  EXPECT_EQ(io::read_file(folder_ / "saved/chat_template.jinja", 1 << 20), "{{ 'both' }}");
  auto config = config_of(folder_.path());
  config.erase("chat_template");
  testing::write_text(folder_ / "tokenizer_config.json", config.dump());
  EXPECT_FALSE(config_of(saved("{{ 'file' }}")).contains("chat_template"));
  EXPECT_EQ(io::read_file(folder_ / "saved/chat_template.jinja", 1 << 20), "{{ 'file' }}");

  // The template for tools goes, since it would win over the one that was trained with.
  std::filesystem::remove(folder_ / "chat_template.jinja");
  std::filesystem::remove_all(folder_ / "saved");
  config["chat_template"] = {{{"name", "default"}, {"template", "a"}},
                             {{"name", "tool_use"}, {"template", "b"}}};
  testing::write_text(folder_ / "tokenizer_config.json", config.dump());
  EXPECT_EQ(config_of(saved("{{ 'one' }}")).at("chat_template"), "{{ 'one' }}");
}

}  // namespace
}  // namespace tessera::data

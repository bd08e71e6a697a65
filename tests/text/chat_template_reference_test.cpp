#include <fstream>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/text/chat_template/chat_template.h"

#include "tests/testing/paths.h"

namespace tessera::text {
namespace {

using Json = nlohmann::ordered_json;

// Returns the reference that make_template_reference.py has stored.
Json reference(const std::string& name) {
  const std::string path = testing::source_folder() + "/tests/reference/data/chat_template/" + name + ".json";
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return Json::parse(file);
}

RenderOptions options_of(const Json& data) {
  RenderOptions options;
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  options.now = data.at("clock").get<int64_t>();
  return options;
}

// Renders the template and compares the result; `expected` is null if jinja2 refused it.
void check(const std::string& source, const Json& messages, const Json& tools, const RenderOptions& options,
           const Json& expected, const std::string& what) {
  try {
    const std::string text =
        ChatTemplate::parse(source, "template").render_as_given(messages, tools, options).text();
    if (expected.is_null()) {
      ADD_FAILURE() << what << ": jinja2 refuses it, here it gave: " << text;
    } else {
      EXPECT_EQ(text, expected.get<std::string>()) << what;
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Model) << what;
    EXPECT_TRUE(expected.is_null()) << what << ": " << error.what();
  }
}

TEST(ChatTemplateReference, families_render_as_by_jinja2) {
  const Json data = reference("families");
  ASSERT_GT(data.at("cases").size(), 500u);
  for (const Json& one : data.at("cases")) {
    const auto family = one.at(0).get<std::string>(), name = one.at(1).get<std::string>();
    const Json& conversation = data.at("conversations").at(name);
    RenderOptions options = options_of(data);
    options.add_generation_prompt = one.at(2).get<bool>();
    if (data.at("options").contains(family)) {
      options.variables = std::make_shared<const Json>(data.at("options").at(family));
    }
    check(data.at("templates").at(family).get<std::string>(), conversation.at("messages"),
          conversation.contains("tools") ? conversation.at("tools") : Json(), options, one.at(3),
          family + " on " + name);
  }
}

// The expected texts were written by Axolotl's templates of the same names (make_dataset_reference.py).
TEST(ChatTemplateReference, builtin_templates_write_what_their_names_promise) {
  const Json data = reference("builtins");
  ASSERT_GT(data.at("cases").size(), 200u);
  for (const Json& one : data.at("cases")) {
    const auto name = one.at(0).get<std::string>(), title = one.at(1).get<std::string>();
    const Json& conversation = data.at("conversations").at(title);
    RenderOptions options;
    options.bos_token = "<s>";
    options.eos_token = "</s>";
    options.add_generation_prompt = one.at(2).get<bool>();
    check(ChatTemplate::builtin(name).source(), conversation.at("messages"), conversation.at("tools"),
          options, one.at(3), name + " on " + title);
  }
}

TEST(ChatTemplateReference, constructs_render_as_by_jinja2) {
  const Json data = reference("constructs");
  ASSERT_GT(data.at("cases").size(), 300u);
  for (const Json& one : data.at("cases")) {
    const auto source = one.at(0).get<std::string>();
    check(source, data.at("messages"), data.at("tools"), options_of(data), one.at(1), source);
  }
}

}  // namespace
}  // namespace tessera::text

#include "tessera/config/yaml_reader.h"

#include <cstdio>
#include <memory>
#include <random>
#include <string>

#include "tests/config/config_testing.h"

namespace tessera::config {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Node parse(const std::string& text) {
  Place file;
  file.file = std::make_shared<const std::string>("f.yaml");
  return parse_yaml(text, file);
}

std::string yaml_error(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), 2);
    return error.what();
  }
  ADD_FAILURE() << "no error for " << text.substr(0, 100);
  return "";
}

std::string repeat(const std::string& text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST(YamlReaderTest, AnchorsWithoutAValueAreRefused) {
  for (const char* text :
       {"&a", "&a\n", "--- &a\n", "k: &a\n", "k: &a\nl: 1\n", "k: [&a, 1]\n", "k: {l: &a}\n"}) {
    EXPECT_THAT(yaml_error(text), HasSubstr("E-CONFIG-SYNTAX")) << text;
    EXPECT_THAT(yaml_error(text), HasSubstr("the YAML anchor '&a' has no value")) << text;
  }
  EXPECT_TRUE(parse("k: &a ~\n").entries[0].value.is_null());
  EXPECT_TRUE(parse("k: &a null\nl: *a\n").entries[1].value.is_null());
  EXPECT_EQ(parse("k: &a x\nl: *a\n").entries[1].value.text, "x");
}

TEST(YamlReaderTest, KeepsThePlaceOfEveryValue) {
  const Node root = parse("a: 1\nb:\n  - x: 'two'\n    y: [3, ~]\n");
  ASSERT_TRUE(root.is_map());
  const Entry* b = root.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->key_place.line, 2);
  EXPECT_EQ(b->key_place.column, 1);
  const Node& item = b->value.items.at(0);
  const Entry* x = item.find("x");
  ASSERT_NE(x, nullptr);
  EXPECT_EQ(x->key_place.line, 3);
  EXPECT_EQ(x->key_place.column, 5);
  EXPECT_EQ(x->value.place.column, 8);
  EXPECT_TRUE(x->value.is_quoted);
  const Entry* y = item.find("y");
  ASSERT_NE(y, nullptr);
  EXPECT_FALSE(y->value.items.at(0).is_quoted);
  EXPECT_TRUE(y->value.items.at(1).is_null());
}

TEST(YamlReaderTest, ReadsJson) {
  const Node root = parse("{\n\t\"a\": [1, {\"b\": null}],\n\t\"c\": \"\\u00e9\\n\"\n}\n");
  EXPECT_EQ(root.find("a")->value.items.at(0).text, "1");
  EXPECT_EQ(root.find("c")->value.text, "\xc3\xa9\n");
}

TEST(YamlReaderTest, AcceptsMarksAndLineEndsOfOtherSystems) {
  EXPECT_EQ(parse("\xef\xbb\xbf"
                  "a: 1\r\nb: 2\r\n")
                .find("b")
                ->value.text,
            "2");
  EXPECT_TRUE(parse("").is_null());
  EXPECT_TRUE(parse("# only a comment\n").is_null());
  EXPECT_EQ(parse("---\na: 1\n...\n").find("a")->value.text, "1");
}

TEST(YamlReaderTest, ExpandsAliasesAndMergeKeys) {
  const Node root = parse("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\nlist: [*b, *b]\n");
  const Node& use = root.find("use")->value;
  EXPECT_EQ(use.find("y")->value.text, "3");
  EXPECT_EQ(use.find("x")->value.text, "1");
  EXPECT_EQ(use.find("<<"), nullptr);
  EXPECT_EQ(root.find("list")->value.items.at(1).find("x")->value.text, "1");
}

TEST(YamlReaderTest, RefusesDuplicateKeysAtAnyDepth) {
  EXPECT_EQ(yaml_error("seed: 1\nx: 2\nseed: 3\n"),
            "error[E-CONFIG-DUPLICATE-KEY]: f.yaml:3:1: key 'seed' is given twice; got line 1 and line 3, "
            "need one of "
            "them");
  EXPECT_THAT(yaml_error("a:\n  - b: 1\n    c:\n      d: 1\n      d: 1\n"), HasSubstr("f.yaml:5:7: key 'd'"));
  EXPECT_THAT(yaml_error("a: {b: 1, b: 2}\n"), HasSubstr("f.yaml:1:11: key 'b'"));
  EXPECT_THAT(yaml_error("a: 1\n\"a\": 2\n"), HasSubstr("DUPLICATE-KEY"));
}

TEST(YamlReaderTest, LimitsDepthWithoutUsingTheStack) {
  const std::string deep = "error[E-CONFIG-TOO-DEEP]";
  EXPECT_NO_THROW(parse(repeat("[", 64) + repeat("]", 64)));
  EXPECT_THAT(yaml_error(repeat("[", 65) + repeat("]", 65)), StartsWith(deep));
  for (const char* opening :
       {"[", "{a: ", "- ", "? ", "[{", "[? ", "- ? ", "a: [", "{? [", "[a: ", "!x [", "&a [", "{"}) {
    for (const size_t count : {size_t{10'000}, kMaxFileBytes / 10}) {
      const std::string message = yaml_error(repeat(opening, count));
      EXPECT_THAT(message, StartsWith("error[E-CONFIG-")) << opening;
    }
  }
  std::string indented;
  for (int i = 0; i < 500; ++i) indented += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  EXPECT_THAT(yaml_error(indented), StartsWith(deep));
}

TEST(YamlReaderTest, LimitsAliases) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 8; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb +=
        "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + last + repeat(", " + last, 7) + "]\n";
  }
  EXPECT_THAT(yaml_error(bomb), StartsWith("error[E-CONFIG-TOO-LARGE]"));
  EXPECT_THAT(yaml_error("a: &a 1\nb: [*a" + repeat(", *a", 64) + "]\n"),
              StartsWith("error[E-CONFIG-TOO-MANY-ALIASES]"));
  EXPECT_THAT(yaml_error("a: &a [*a]\n"), HasSubstr("alias inside its own anchor"));
  EXPECT_THAT(yaml_error("a: *nowhere\n"), StartsWith("error[E-CONFIG-SYNTAX]: f.yaml:1:"));
  std::string chain = "a0: &a0 [x]\n";
  for (int i = 1; i < 64; ++i) {
    chain +=
        "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [[[*a" + std::to_string(i - 1) + "]]]\n";
  }
  EXPECT_THAT(yaml_error(chain), StartsWith("error[E-CONFIG-TOO-DEEP]"));
}

TEST(YamlReaderTest, LimitsSize) {
  EXPECT_THAT(yaml_error(std::string(kMaxFileBytes + 1, 'a')),
              StartsWith("error[E-CONFIG-TOO-LARGE]: f.yaml: "));
  EXPECT_THAT(yaml_error("[" + repeat("a,", 200'000) + "]"), StartsWith("error[E-CONFIG-TOO-LARGE]"));
  EXPECT_NO_THROW(parse("a: " + std::string(kMaxFileBytes - 10, 'x')));
}

TEST(YamlReaderTest, RefusesBytesThatAreNoText) {
  EXPECT_THAT(yaml_error(std::string("\xff\xfe"
                                     "a\0",
                                     4)),
              HasSubstr("the file is UTF-16"));
  EXPECT_THAT(yaml_error(std::string("a: 1\nb\0c", 8)), HasSubstr("f.yaml:2:2: a control byte at offset 6"));
  EXPECT_THAT(yaml_error("\x7f"
                         "ELF"),
              StartsWith("error[E-CONFIG-ENCODING]"));
  EXPECT_THAT(yaml_error("a: \xc3\x28"), HasSubstr("f.yaml:1:4: invalid UTF-8 at byte offset 3"));
}

TEST(YamlReaderTest, RefusesEscapesThatAreNoText) {
  for (const char* text : {"a: \"x\\0\"\n", "a: \"\\_\"\n", "a: \"\\N\"\n", "\"\\_\": 1\n"}) {
    EXPECT_THAT(yaml_error(text), StartsWith("error[E-CONFIG-ENCODING]: f.yaml:1:")) << text;
  }
  EXPECT_THAT(yaml_error("a: \"\\ud83d\"\n"), StartsWith("error[E-CONFIG-SYNTAX]: f.yaml:1:"));
  EXPECT_EQ(parse("a: \"\\xe9\\u20ac\\t\"\n").entries.at(0).value.text, "\xc3\xa9\xe2\x82\xac\t");
}

TEST(YamlReaderTest, RefusesTabsThatIndent) {
  EXPECT_EQ(yaml_error("a:\n\tb: 1\n"),
            "error[E-CONFIG-TAB]: f.yaml:2:1: a tab in the indentation. hint: indent with spaces");
  EXPECT_THAT(yaml_error("a:\n  b: 1\n\tc: 2\n"), StartsWith("error[E-CONFIG-TAB]: f.yaml:3"));
  EXPECT_THAT(yaml_error("a:\n\t- b\n"), StartsWith("error[E-CONFIG-TAB]: f.yaml:2"));
  EXPECT_EQ(parse("a: |\n  x\n  \ty\nb: 1\t# tabs elsewhere are fine\n").find("a")->value.text, "x\n\ty\n");
}

TEST(YamlReaderTest, PlacesSyntaxErrors) {
  for (const char* text : {"a: [1, 2\n", "a: 'x\n", "a: b: c\n", "a: 1\n b: 2\n", "- a\nb: 1\n", "a: @x\n",
                           "a: 'x\nb: 1\n", "a: \"x\\\"\n", "? [a]\n: 1\n", "[a]: 1\n", "<<: 1\n",
                           "a: !!python/object:os.system x\n", "a: 1\n---\nb: 2\n"}) {
    const std::string message = yaml_error(text);
    EXPECT_THAT(message, HasSubstr("]: f.yaml:")) << text;
    EXPECT_THAT(message, ::testing::Not(HasSubstr("f.yaml:0"))) << text;
  }
}

TEST(YamlReaderTest, QuotesMayHoldQuotesAndLineEnds) {
  EXPECT_EQ(parse("\xc3\xa9: 'it''s'\n").entries.at(0).value.text, "it's");
  EXPECT_EQ(parse("{\xc3\xa9\xc3\xa9: \"a\\\"b\", c: 'd'}\n").find("c")->value.text, "d");
  EXPECT_EQ(parse("a: \"x\n  y\"\n").entries.at(0).value.text, "x y");
  EXPECT_EQ(parse("a: \"\\\\\"\nb: ''\n").entries.at(1).value.text, "");
}

TEST(YamlReaderTest, EndsInATreeOrAnErrorForAnyBytes) {
  const std::string seed_text = read_config_file(recipes_folder() + "/lora.yaml");
  std::mt19937 random(20240611);
  const std::string alphabet = "[]{}:,-?&*!|>'\"%@`#\n\t \\abc0123.~<\xc3\xa9";
  int num_errors = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = seed_text;
    if (round % 2 == 1) {
      text.clear();
      for (int i = 0; i < 60; ++i) text += alphabet[random() % alphabet.size()];
    } else {
      for (unsigned i = 0; i < 1 + random() % 8; ++i)
        text[random() % text.size()] = alphabet[random() % alphabet.size()];
      text.resize(random() % (text.size() + 1));
    }
    try {
      parse(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Config) << error.what();
      ++num_errors;
    }
  }
  EXPECT_GT(num_errors, 100);
}

TEST(ReadConfigFileTest, RefusesWhatIsNoReadableFile) {
  const auto message = [](const std::string& path) -> std::string {
    try {
      read_config_file(path);
    } catch (const Error& error) {
      EXPECT_EQ(exit_code(error.kind()), 2);
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(message("/nowhere/r.yaml"), "error[E-CONFIG-NOT-FOUND]: /nowhere/r.yaml: no such file");
  EXPECT_EQ(message(recipes_folder()), "error[E-CONFIG-NOT-A-FILE]: " + recipes_folder() +
                                           ": not a regular file; got a folder, need a YAML file");
  EXPECT_THAT(message("/dev/null"), HasSubstr("a device, pipe or socket"));
  EXPECT_THAT(message(recipes_folder() + "/lora.yaml/x"), StartsWith("error[E-CONFIG-NOT-FOUND]"));
  EXPECT_THAT(message("/proc/self/mem"),
              StartsWith("error[E-CONFIG-UNREADABLE]"));  // the file can be opened, but not read
}

}  // namespace
}  // namespace tessera::config

// Tests that broken tokenizer files end in an error of kind Model that names the place.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::text {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

// Returns a small byte-level tokenizer, complete and valid.
json valid_document() {
  return json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 5, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]}}},
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġa": 4},
              "merges": [["a", "b"], ["Ġ", "a"]]}
  })");
}

class TokenizerErrors : public ::testing::Test {
 protected:
  TokenizerErrors() {
    std::string name = (fs::temp_directory_path() / "tessera-tokenizer-XXXXXX").string();
    folder = mkdtemp(name.data());
  }
  ~TokenizerErrors() override { fs::remove_all(folder); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder / name, std::ios::binary) << text;
  }
  // Returns the error of loading the tokenizer; empty if it loads.
  std::string load_error() const {
    try {
      Tokenizer::from_folder(folder.string());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Model) << error.what();
      EXPECT_EQ(exit_code(error.kind()), 4);
      return error.what();
    }
    return {};
  }
  std::string error_of(const std::string& text) const {
    write("tokenizer.json", text);
    return load_error();
  }
  std::string error_after(const std::function<void(json&)>& change) const {
    json document = valid_document();
    change(document);
    return error_of(document.dump());
  }

  fs::path folder;
};

TEST_F(TokenizerErrors, TheValidDocumentLoads) {
  EXPECT_EQ(error_after([](json&) {}), "");
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.string());
  EXPECT_EQ(tokenizer.encode("ab a<s>", {.add_special_tokens = true}), (std::vector<int32_t>{5, 2, 4, 5}));
  EXPECT_EQ(tokenizer.vocab_size(), 6);
}

TEST_F(TokenizerErrors, MissingFile) { EXPECT_THAT(load_error(), HasSubstr("tokenizer.json")); }

TEST_F(TokenizerErrors, NotJson) {
  EXPECT_THAT(error_of(""), HasSubstr("E-MODEL-TOKENIZER-JSON"));
  EXPECT_THAT(error_of("{\n  \"version\": oops\n}"), HasSubstr("tokenizer.json:2:"));
  EXPECT_THAT(error_of("[1, 2]"), HasSubstr("not a tokenizer file"));
  EXPECT_THAT(error_of(std::string("\x00\xff\xfe binary", 10)), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("{\"version\": \"\xff\"}"), HasSubstr("not valid JSON"));
  const std::string text = valid_document().dump();
  EXPECT_THAT(error_of("\xef\xbb\xbf" + text),
              HasSubstr("tokenizer.json:1:1: not valid JSON: a byte-order mark"));
  EXPECT_THAT(error_of(text + '\0'), HasSubstr("not valid JSON: a zero byte"));
  EXPECT_EQ(error_of(text + " \n"), "");
}

TEST_F(TokenizerErrors, EveryTruncationIsRefused) {
  const std::string text = valid_document().dump();
  for (size_t size = 0; size < text.size(); size += 7) EXPECT_NE(error_of(text.substr(0, size)), "") << size;
}

TEST_F(TokenizerErrors, MutationsAreRefusedOrHarmless) {
  const std::string text = valid_document().dump();
  std::mt19937 random(11);
  for (int i = 0; i < 400; ++i) {
    std::string mutated = text;
    mutated[random() % mutated.size()] = static_cast<char>(random() % 256);
    if (error_of(mutated).empty()) {
      const Tokenizer tokenizer = Tokenizer::from_folder(folder.string());
      for (const int32_t id : tokenizer.encode("ab a<s> b\xc3\xa9 xyz"))
        EXPECT_LT(id, tokenizer.vocab_size());
    }
  }
}

TEST_F(TokenizerErrors, DeepNesting) {
  EXPECT_THAT(error_of("{\"normalizer\":" + std::string(100000, '[') + std::string(100000, ']') + "}"),
              HasSubstr("nested too deeply"));
}

TEST_F(TokenizerErrors, KeysGivenTwice) {
  EXPECT_THAT(error_of(R"({"version": "1.0", "version": "1.0"})"), HasSubstr("$.version"));
  std::string text = valid_document().dump();
  text.replace(text.find("\"a\":0"), 5, "\"a\":0,\"a\":7");
  EXPECT_THAT(error_of(text), HasSubstr("token 'a' is given twice; got ids 0 and 7"));
}

TEST_F(TokenizerErrors, Version) {
  EXPECT_THAT(error_after([](json& d) { d["version"] = "2.0"; }),
              HasSubstr("$.version: unknown version; got '2.0'"));
  EXPECT_EQ(error_after([](json& d) { d.erase("version"); }), "");
}

TEST_F(TokenizerErrors, UnknownTypes) {
  EXPECT_THAT(error_after([](json& d) { d["model"]["type"] = "Trigram"; }), HasSubstr("$.model.type"));
  EXPECT_THAT(error_after([](json& d) { d["normalizer"]["type"] = "Nfx"; }), HasSubstr("$.normalizer.type"));
  EXPECT_THAT(error_after([](json& d) { d["pre_tokenizer"]["type"] = "Bert"; }),
              HasSubstr("$.pre_tokenizer.type"));
  EXPECT_THAT(error_after([](json& d) { d["decoder"]["type"] = "Morse"; }), HasSubstr("$.decoder.type"));
  EXPECT_THAT(error_after([](json& d) { d["post_processor"]["type"] = "X"; }),
              HasSubstr("$.post_processor.type"));
  EXPECT_THAT(
      error_after([](json& d) {
        d["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Odd"}}}}};
      }),
      HasSubstr("$.normalizer.normalizers[1].type: this normalizer is not supported; got 'Odd'"));
  EXPECT_THAT(error_after([](json& d) { d["model"] = nullptr; }), HasSubstr("$.model"));
}

TEST_F(TokenizerErrors, ModelsOfOtherKinds) {
  const auto with = [&](const json& model) {
    return error_after([&](json& d) {
      d["model"] = model;
      d["added_tokens"] = json::array();
      d["post_processor"] = nullptr;
    });
  };
  const auto list = [](const char* text) { return json::parse(text); };
  const json pieces = list(R"([["<unk>", 0.0], ["a", -1.5]])");
  EXPECT_EQ(with({{"type", "Unigram"}, {"unk_id", 0}, {"vocab", pieces}}), "");
  EXPECT_THAT(with({{"type", "Unigram"}, {"unk_id", 2}, {"vocab", pieces}}), HasSubstr("$.model.unk_id"));
  EXPECT_THAT(with({{"type", "Unigram"}, {"unk_id", 0}, {"vocab", list(R"([["a", 1], ["a", 2]])")}}),
              HasSubstr("token 'a' is given twice"));
  EXPECT_THAT(with({{"type", "Unigram"}, {"vocab", list(R"([["a", 1e300]])")}}), HasSubstr("out of range"));
  for (const char* entry :
       {R"(["a"])", R"(["a", 1, 2])", R"([1, "a"])", R"("a")", R"(["a", "b"])", "[]", "{}"})
    EXPECT_THAT(with({{"type", "Unigram"}, {"vocab", json::array({list(R"(["b", 0])"), list(entry)})}}),
                HasSubstr("$.model.vocab[1]: an entry of the vocabulary is not a token and its score"))
        << entry;
  EXPECT_THAT(with({{"type", "Unigram"}, {"vocab", json::array()}}), HasSubstr("the vocabulary is empty"));
  EXPECT_THAT(with({{"type", "Unigram"}, {"vocab", {{"a", 1}}}}), HasSubstr("$.model.vocab: wrong value"));
  EXPECT_THAT(with({{"type", "Unigram"}, {"vocab", pieces}, {"alpha", 0.1}}), HasSubstr("$.model.alpha"));
  EXPECT_THAT(with({{"type", "WordLevel"}, {"vocab", pieces}}), HasSubstr("$.model.vocab: wrong value"));
  EXPECT_THAT(with({{"type", "WordPiece"}, {"vocab", {{"a", 1}}}}), HasSubstr("continuing_subword_prefix"));
}

// The words of a text without an unknown token to stand for them are told apart from a broken file.
TEST_F(TokenizerErrors, UnknownWordWithoutAToken) {
  write("tokenizer.json", R"({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "<unk>"},
                              "pre_tokenizer": {"type": "WhitespaceSplit"}})");
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.string());
  EXPECT_EQ(tokenizer.encode("a a"), (std::vector<int32_t>{0, 0}));
  try {
    tokenizer.encode("a b");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("E-MODEL-TOKENIZER-UNKNOWN"));
    EXPECT_THAT(error.what(), HasSubstr("got 'b'"));
  }
}

TEST_F(TokenizerErrors, Charsmaps) {
  const auto with = [&](const std::string& map) {
    return error_after([&](json& d) {
      d["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", map}};
    });
  };
  EXPECT_EQ(with(""), "");
  EXPECT_THAT(with("*"), HasSubstr("$.normalizer.precompiled_charsmap: the map of characters is not base64"));
  for (const char* map : {"AAAA", "AAAAAAAA", "/////wAAAAA=", "BAAAAAAAAAA=", "BAAAAAAAAABh"})
    EXPECT_NE(with(map), "") << map;
  // The one unit of this trie is its own child by every byte, without an end.
  EXPECT_EQ(with("BAAAAAAAAAAA"), "");
  Tokenizer::from_folder(folder.string()).encode("ab a");
}

TEST_F(TokenizerErrors, Pairs) {
  EXPECT_EQ(error_after([](json&) {}), "");
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.string());
  EXPECT_EQ(tokenizer.encode_pair("ab", std::nullopt).ids, (std::vector<int32_t>{5, 2}));
  try {
    tokenizer.encode_pair("ab", "a");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("E-MODEL-TOKENIZER-PAIR"));
  }
}

TEST_F(TokenizerErrors, Metaspace) {
  const auto with = [&](const json& fields) {
    return error_after([&](json& d) {
      d["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "_"}};
      d["pre_tokenizer"].update(fields);
    });
  };
  EXPECT_EQ(with(json::object()), "");
  EXPECT_EQ(with({{"add_prefix_space", false}, {"prepend_scheme", "never"}}), "");
  EXPECT_THAT(with({{"replacement", "__"}}), HasSubstr("$.pre_tokenizer.replacement: wrong value; got '__'"));
  EXPECT_THAT(with({{"replacement", ""}}), HasSubstr("need one character"));
  EXPECT_THAT(with({{"prepend_scheme", "last"}}), HasSubstr("need always, first or never"));
  EXPECT_THAT(with({{"add_prefix_space", false}}), HasSubstr("$.pre_tokenizer.add_prefix_space"));
}

TEST_F(TokenizerErrors, UnknownSettings) {
  EXPECT_THAT(error_after([](json& d) { d["extra"] = 1; }), HasSubstr("$.extra"));
  EXPECT_THAT(error_after([](json& d) { d["model"]["dropout"] = 0.1; }), HasSubstr("$.model.dropout"));
  EXPECT_THAT(error_after([](json& d) { d["model"]["end_of_word_suffix"] = 1; }),
              HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(error_after([](json& d) { d["pre_tokenizer"]["speed"] = 1; }),
              HasSubstr("$.pre_tokenizer.speed"));
  EXPECT_THAT(error_after([](json& d) { d["pre_tokenizer"]["use_regex"] = "yes"; }),
              HasSubstr("wrong value; got \"yes\", need true or false"));
}

TEST_F(TokenizerErrors, Vocabulary) {
  EXPECT_THAT(error_after([](json& d) { d["model"]["vocab"]["b"] = 0; }), HasSubstr("id 0 is given twice"));
  EXPECT_THAT(error_after([](json& d) { d["model"]["vocab"]["b"] = -1; }), HasSubstr("token 'b'"));
  EXPECT_THAT(error_after([](json& d) { d["model"]["vocab"]["b"] = 1e18; }), HasSubstr("token 'b'"));
  EXPECT_THAT(error_after([](json& d) { d["model"]["vocab"]["b"] = 4000000000u; }),
              HasSubstr("out of range"));
  EXPECT_THAT(error_after([](json& d) { d["model"]["vocab"]["b"] = "1"; }), HasSubstr("not a whole number"));
  EXPECT_THAT(error_after([](json& d) { d["model"].erase("vocab"); }),
              HasSubstr("$.model.vocab: missing field"));
  EXPECT_THAT(error_after([](json& d) { d["model"].erase("merges"); }),
              HasSubstr("$.model.merges: missing field"));
  EXPECT_THAT(error_after([](json& d) { d["model"]["unk_token"] = "<unk>"; }), HasSubstr("'<unk>'"));
}

TEST_F(TokenizerErrors, Merges) {
  EXPECT_THAT(error_after([](json& d) {
                d["model"]["merges"][1] = {"a", "zz"};
              }),
              HasSubstr("$.model.merges[1]: a merge names a token that is not in the vocabulary; got 'zz'"));
  EXPECT_THAT(error_after([](json& d) { d["model"]["merges"][0] = {"b", "a"}; }), HasSubstr("got 'ba'"));
  EXPECT_THAT(error_after([](json& d) {
                d["model"]["merges"] = {"a b", "a  b"};
              }),
              HasSubstr("$.model.merges[1]"));
  EXPECT_THAT(error_after([](json& d) { d["model"]["merges"] = {"ab"}; }), HasSubstr("$.model.merges[0]"));
  EXPECT_THAT(error_after([](json& d) {
                d["model"]["merges"][0] = {"a", "b", "c"};
              }),
              HasSubstr("not a pair"));
  EXPECT_THAT(error_after([](json& d) { d["model"]["merges"][0] = 3; }), HasSubstr("not made of strings"));
}

TEST_F(TokenizerErrors, AddedTokens) {
  const auto with = [&](const json& token) {
    return error_after([&](json& d) { d["added_tokens"].push_back(token); });
  };
  EXPECT_EQ(with({{"id", 6}, {"content", "<x>"}}), "");
  EXPECT_THAT(with({{"id", 2}, {"content", "<x>"}}),
              HasSubstr("the id of an added token is taken; got '<x>' with id 2"));
  EXPECT_THAT(with({{"id", 5}, {"content", "<x>"}}), HasSubstr("need an id that differs from that of '<s>'"));
  // Gaps between the ids of added tokens are closed.
  EXPECT_EQ(with({{"id", 9}, {"content", "<x>"}}), "");
  EXPECT_EQ(Tokenizer::from_folder(folder.string()).encode("<x>"), std::vector<int32_t>{6});
  EXPECT_THAT(with({{"id", 6}, {"content", "<s>"}}), HasSubstr("given twice"));
  EXPECT_THAT(with({{"id", 6}, {"content", "ab"}}), HasSubstr("another id in the vocabulary"));
  EXPECT_THAT(with({{"id", 6}, {"content", ""}}), HasSubstr("empty"));
  EXPECT_THAT(with({{"id", -6}, {"content", "<x>"}}), HasSubstr("$.added_tokens[1].id"));
  EXPECT_THAT(with({{"content", "<x>"}}), HasSubstr("$.added_tokens[1].id: missing field"));
}

TEST_F(TokenizerErrors, PostProcessor) {
  EXPECT_THAT(error_after([](json& d) { d["post_processor"]["special_tokens"]["<s>"]["ids"][0] = 4; }),
              HasSubstr("not that of its token; got 4 for '<s>'"));
  EXPECT_THAT(error_after([](json& d) { d["post_processor"]["special_tokens"].erase("<s>"); }),
              HasSubstr("special token '<s>' is missing"));
  EXPECT_THAT(error_after([](json& d) { d["post_processor"]["single"].erase(1); }),
              HasSubstr("leaves the text out"));
}

TEST_F(TokenizerErrors, RegularExpressions) {
  const auto with = [&](const std::string& regex) {
    return error_after([&](json& d) {
      d["pre_tokenizer"] = {
          {"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
      d["model"]["unk_token"] = "a";
    });
  };
  EXPECT_THAT(with("(unclosed"), HasSubstr("$.pre_tokenizer.pattern.Regex: malformed regular expression"));
  EXPECT_THAT(with("a\\hb"), HasSubstr("\\h"));
  EXPECT_THAT(with("(?m:a.b)"), HasSubstr("(?m)"));
}

json sequence_of(const std::string& list, const json& step, int count) {
  json steps = json::array();
  for (int i = 0; i < count; ++i) steps.push_back(step);
  return {{"type", "Sequence"}, {list, steps}};
}

TEST_F(TokenizerErrors, LongPipelinesAreRefused) {
  const json digits = {{"type", "Digits"}, {"individual_digits", true}};
  for (const int count : {65, 100'000}) {
    EXPECT_THAT(
        error_after([&](json& d) { d["pre_tokenizer"] = sequence_of("pretokenizers", digits, count); }),
        ::testing::AllOf(HasSubstr("E-MODEL-TOKENIZER-LIMIT"), HasSubstr("$.pre_tokenizer"),
                         HasSubstr(std::to_string(count + 1)), HasSubstr("at most 64")));
    EXPECT_THAT(error_after([&](json& d) {
                  d["normalizer"] = sequence_of("normalizers", {{"type", "NFC"}}, count);
                }),
                HasSubstr("$.normalizer"));
    EXPECT_THAT(error_after([&](json& d) {
                  d["decoder"] = sequence_of("decoders", {{"type", "Fuse"}}, count);
                }),
                HasSubstr("$.decoder"));
    EXPECT_THAT(error_after([&](json& d) {
                  d["post_processor"] = sequence_of("processors", {{"type", "ByteLevel"}}, count);
                }),
                HasSubstr("$.post_processor"));
  }
  EXPECT_EQ(error_after([&](json& d) {
              d["normalizer"] = sequence_of("normalizers", {{"type", "NFC"}}, 20);
            }),
            "");
}

TEST_F(TokenizerErrors, NothingInASequenceIsRefused) {
  EXPECT_THAT(error_after([](json& d) { d["normalizer"] = sequence_of("normalizers", nullptr, 1); }),
              HasSubstr("$.normalizer.normalizers[0]"));
  EXPECT_THAT(error_after([](json& d) { d["pre_tokenizer"] = sequence_of("pretokenizers", nullptr, 1); }),
              HasSubstr("$.pre_tokenizer.pretokenizers[0]"));
  EXPECT_THAT(error_after([](json& d) { d["decoder"] = sequence_of("decoders", nullptr, 1); }),
              HasSubstr("$.decoder.decoders[0]"));
  EXPECT_THAT(error_after([](json& d) { d["post_processor"] = sequence_of("processors", nullptr, 1); }),
              HasSubstr("$.post_processor.processors[0]"));
}

TEST_F(TokenizerErrors, ANormalizerThatMakesTextGrowManyTimesIsRefused) {
  const auto encode_error = [&](const json& step, int count, const std::string& text) -> std::string {
    EXPECT_EQ(error_after([&](json& d) { d["normalizer"] = sequence_of("normalizers", step, count); }), "");
    try {
      Tokenizer::from_folder(folder.string()).encode(text);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  const json doubles = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const json doubles_by_regex = {{"type", "Replace"}, {"pattern", {{"Regex", "[a]"}}}, {"content", "aa"}};
  const json prepends = {{"type", "Prepend"}, {"prepend", std::string(1000, 'b')}};
  for (const json& step : {doubles, doubles_by_regex}) {
    const std::string error = encode_error(step, 40, "aaaa");
    EXPECT_THAT(error, HasSubstr("E-MODEL-TOKENIZER-GROWTH")) << step;
    EXPECT_THAT(error, HasSubstr("$.normalizer"));
  }
  EXPECT_THAT(encode_error(prepends, 40, "a"), HasSubstr("E-MODEL-TOKENIZER-GROWTH"));
  EXPECT_EQ(encode_error(doubles, 4, std::string(100'000, 'a')), "");
  // U+FDFA grows most of all characters under NFKD: from 3 bytes to 33.
  std::string ligatures;
  for (int i = 0; i < 10'000; ++i) ligatures += "\xEF\xB7\xBA";
  EXPECT_EQ(encode_error({{"type", "NFKD"}}, 1, ligatures), "");

  // An added token that is normalized grows when the tokenizer is loaded.
  EXPECT_THAT(error_after([&](json& d) {
                d["normalizer"] = sequence_of("normalizers", doubles, 40);
                d["added_tokens"].push_back(
                    {{"id", 6}, {"content", "<a>"}, {"special", false}, {"normalized", true}});
              }),
              HasSubstr("E-MODEL-TOKENIZER-GROWTH"));
}

TEST_F(TokenizerErrors, ADecoderThatMakesTokensGrowIsRefused) {
  const json step = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'a')}};
  std::string error = error_after([&](json& d) { d["decoder"] = sequence_of("decoders", step, 20); });
  try {
    if (error.empty()) Tokenizer::from_folder(folder.string()).decode(std::vector<int32_t>{0});
  } catch (const Error& refused) {
    error = refused.what();
  }
  EXPECT_THAT(error, HasSubstr("E-MODEL-TOKENIZER-GROWTH"));
  EXPECT_THAT(error, HasSubstr("$.decoder"));
}

TEST_F(TokenizerErrors, TextsOfStepsAndAddedTokensAreBounded) {
  const json step = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(2000, 'b')}};
  EXPECT_THAT(error_after([&](json& d) { d["normalizer"] = step; }), HasSubstr("$.normalizer.content"));
  EXPECT_THAT(error_after([&](json& d) {
                d["normalizer"] = {{"type", "Prepend"}, {"prepend", std::string(2000, 'b')}};
              }),
              HasSubstr("$.normalizer.prepend"));
  EXPECT_THAT(error_after([&](json& d) {
                d["pre_tokenizer"] = {
                    {"type", "Split"},
                    {"pattern", {{"Regex", std::string(70'000, '(') + std::string(70'000, ')')}}},
                    {"behavior", "Isolated"},
                    {"invert", false}};
              }),
              HasSubstr("at most 65536"));
  EXPECT_THAT(
      error_after([&](json& d) {
        d["added_tokens"].push_back(
            {{"id", 6}, {"content", std::string(9 << 20, 'x')}, {"special", true}, {"normalized", false}});
      }),
      HasSubstr("E-MODEL-TOKENIZER-LIMIT"));
  // Many added tokens are accepted.
  EXPECT_EQ(error_after([&](json& d) {
              for (int i = 0; i < 100'000; ++i) {
                d["added_tokens"].push_back(
                    {{"id", 6 + i}, {"content", "<|" + std::to_string(i) + "|>"}, {"special", true}});
              }
            }),
            "");
}

TEST_F(TokenizerErrors, NestedRegularExpressionsEnd) {
  for (const int depth : {100, 300, 2000, 30'000}) {
    std::string nested(static_cast<size_t>(depth), '('), starred = nested;
    nested += "a" + std::string(static_cast<size_t>(depth), ')');
    starred += "a";
    for (int i = 0; i < depth && depth <= 2000; ++i) starred += ")*";
    for (const std::string& pattern : {nested, starred}) {
      const std::string error = error_after([&](json& d) {
        d["pre_tokenizer"] = {{"type", "Split"},
                              {"pattern", {{"Regex", pattern}}},
                              {"behavior", "Isolated"},
                              {"invert", false}};
      });
      if (!error.empty()) {
        EXPECT_THAT(error, HasSubstr("E-MODEL-TOKENIZER-REGEX")) << depth;
        continue;
      }
      try {
        Tokenizer::from_folder(folder.string()).encode("aaaaaaaaaaaaaaaaaaab");
      } catch (const Error& refused) {
        EXPECT_EQ(refused.kind(), ErrorKind::Model) << refused.what();
      }
    }
  }
}

TEST_F(TokenizerErrors, SpecialTokensOfTheSideFiles) {
  write("tokenizer.json", valid_document().dump());
  write("tokenizer_config.json",
        R"({"bos_token": {"__type": "AddedToken", "content": "<s>"}, "eos_token": "</s>"})");
  EXPECT_THAT(load_error(), HasSubstr("$.eos_token: eos_token is not in the vocabulary; got '</s>'"));
  write("tokenizer_config.json", R"({"bos_token": "<s>", "pad_token": null})");
  write("generation_config.json", R"({"eos_token_id": [5, "77"]})");
  EXPECT_THAT(load_error(), HasSubstr("$.eos_token_id[1]"));
  write("generation_config.json", R"({"eos_token_id": [77, 5, -1, 99999999999], "pad_token_id": -1})");
  ::testing::internal::CaptureStderr();
  ASSERT_EQ(load_error(), "");
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(
      told,
      HasSubstr(
          "$.eos_token_id[0]: no token has the id 77, so it is ignored; the vocabulary has ids below 6"));
  EXPECT_THAT(told, HasSubstr("$.eos_token_id[3]: no token has the id 99999999999"));
  EXPECT_THAT(told, HasSubstr("$.pad_token_id: no token has the id -1"));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Tokenizer::from_folder(folder.string()).stop_ids(), (std::vector<int32_t>{5}));
  EXPECT_EQ(Tokenizer::from_folder(folder.string()).pad_id(), std::nullopt);
  ::testing::internal::GetCapturedStderr();
  write("generation_config.json", R"({"eos_token_id": [5, 2], "pad_token_id": 1})");
  ASSERT_EQ(load_error(), "");
  Tokenizer tokenizer = Tokenizer::from_folder(folder.string());
  EXPECT_EQ(tokenizer.bos_id(), 5);
  EXPECT_EQ(tokenizer.eos_id(), 5);
  EXPECT_EQ(tokenizer.pad_id(), 1);
  EXPECT_EQ(tokenizer.unk_id(), std::nullopt);
  EXPECT_EQ(tokenizer.stop_ids(), (std::vector<int32_t>{5, 2}));
  EXPECT_THROW(tokenizer.set_special_token("pad_token", "<none>"), Error);
  EXPECT_THROW(tokenizer.set_special_token("end_token", "<s>"), Error);
  write("tokenizer_config.json", R"({"bos_token": 5})");
  EXPECT_THAT(load_error(), HasSubstr("$.bos_token"));
  write("tokenizer_config.json", "{");
  EXPECT_THAT(load_error(), HasSubstr("tokenizer_config.json:1:"));
}

}  // namespace
}  // namespace tessera::text

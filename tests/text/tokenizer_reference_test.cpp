// Tests that ids and texts equal those which tests/reference/make_tokenizer_reference.py has recorded.
#include <cinttypes>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/text/tokenizer/tokenizer.h"

#include "tests/testing/paths.h"

namespace tessera::text {
namespace {

using nlohmann::json;

const std::string kFolder = testing::source_folder() + "/tests/reference/data/tokenizer/";

json read(const std::string& name) {
  std::ifstream file(kFolder + name);
  EXPECT_TRUE(file) << kFolder + name;
  return json::parse(file);
}

std::string unhex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string digest(const std::vector<int32_t>& ids) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (const int32_t id : ids) add(static_cast<uint64_t>(id));
  add(uint64_t{1} << 32);
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, hash);
  return text;
}

class TokenizerReference : public ::testing::TestWithParam<const char*> {
 protected:
  TokenizerReference()
      : tokenizer(Tokenizer::from_file(kFolder + GetParam() + "/tokenizer.json")),
        strings(read("strings.json")),
        vectors(read(std::string(GetParam()) + "/vectors.json")) {
    texts = strings["strings"].get<std::vector<std::string>>();
    num_valid = texts.size();
    for (const auto& hex : strings["broken"]) texts.push_back(unhex(hex.get<std::string>()));
    ids = vectors["parsed"].get<std::vector<std::vector<int32_t>>>();
  }

  Tokenizer tokenizer;
  json strings, vectors;
  std::vector<std::string> texts;
  size_t num_valid = 0;
  std::vector<std::vector<int32_t>> ids;
};

TEST_P(TokenizerReference, IdsOfHardStrings) {
  ASSERT_EQ(ids.size(), texts.size());
  ASSERT_GT(texts.size(), 200u);
  // Texts are encoded twice; the second time words come from the cache.
  for (int round = 0; round < 2; ++round)
    for (size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(tokenizer.encode(texts[i]), ids[i])
          << json(texts[i]).dump(-1, ' ', true, json::error_handler_t::replace);
}

TEST_P(TokenizerReference, IdsWithoutSpecialTokens) {
  const json& differing = vectors["unparsed"];
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto found = differing.find(std::to_string(i));
    const auto wanted = found != differing.end() ? found->get<std::vector<int32_t>>() : ids[i];
    const auto got = tokenizer.encode(texts[i], {.parse_special = false});
    EXPECT_EQ(got, wanted) << texts[i];
    if (std::string(GetParam()) == "llama2") continue;  // its "<unk>" also stands for unknown text
    for (const int32_t id : got) EXPECT_FALSE(tokenizer.is_special(id)) << texts[i];
  }
}

TEST_P(TokenizerReference, IdsWithPostProcessor) {
  const auto wanted = vectors["with_added"].get<std::vector<std::vector<int32_t>>>();
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_EQ(tokenizer.encode(texts[i], {.add_special_tokens = true}), wanted[i]) << texts[i];
}

TEST_P(TokenizerReference, IdsOfRandomStrings) {
  const auto randoms = strings["random"].get<std::vector<std::string>>();
  const auto wanted = vectors["random"].get<std::vector<std::string>>();
  ASSERT_EQ(randoms.size(), wanted.size());
  for (size_t i = 0; i < randoms.size(); ++i)
    EXPECT_EQ(digest(tokenizer.encode(randoms[i])), wanted[i]) << json(randoms[i]).dump(-1, ' ', true);
}

TEST_P(TokenizerReference, DecodedTexts) {
  const json &decoded = vectors["decoded"], &skipping = vectors["decoded_skipping"];
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string key = std::to_string(i);
    const std::string got = tokenizer.decode(ids[i]);
    if (decoded.contains(key)) {
      EXPECT_EQ(got, decoded[key].get<std::string>());
    } else if (i < num_valid) {
      EXPECT_EQ(got, texts[i]);
    }
    EXPECT_EQ(tokenizer.decode(ids[i], true),
              skipping.contains(key) ? skipping[key].get<std::string>() : got);
  }
  for (const json& item : vectors["decoded_random"])
    EXPECT_EQ(tokenizer.decode(item[0].get<std::vector<int32_t>>()), item[1].get<std::string>())
        << item.dump();
}

// Spans are in order and in bounds, and cover the text that the ids stand for.
TEST_P(TokenizerReference, SpansLieInTheText) {
  for (const std::string& text : texts) {
    const Encoding encoding = tokenizer.encode_with_spans(text);
    EXPECT_EQ(encoding.ids, tokenizer.encode(text));
    ASSERT_EQ(encoding.spans.size(), encoding.ids.size());
    int64_t end = 0;
    for (const ByteSpan& span : encoding.spans) {
      EXPECT_LE(0, span.begin);
      EXPECT_LE(span.begin, span.end);
      EXPECT_LE(span.end, static_cast<int64_t>(text.size()));
      EXPECT_LE(end, span.end) << json(text).dump(-1, ' ', true, json::error_handler_t::replace);
      end = span.end;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TokenizerReference,
                         ::testing::Values("gpt2", "llama3", "qwen2", "smollm2", "o200k", "llama2", "mixed"),
                         [](const auto& info) { return std::string(info.param); });

// If there is no normalizer, the spans tile the text, and each holds its token's bytes.
TEST(TokenizerSpans, TileTheTextWithoutANormalizer) {
  const json strings = read("strings.json");
  for (const char* family : {"gpt2", "llama3", "smollm2", "o200k"}) {
    const Tokenizer tokenizer = Tokenizer::from_file(kFolder + family + "/tokenizer.json");
    for (const json& item : strings["strings"]) {
      const std::string text = item.get<std::string>();
      const Encoding encoding = tokenizer.encode_with_spans(text);
      int64_t end = 0;
      for (size_t i = 0; i < encoding.ids.size(); ++i) {
        const ByteSpan span = encoding.spans[i];
        EXPECT_EQ(span.begin, end);
        end = span.end;
        EXPECT_EQ(text.substr(static_cast<size_t>(span.begin), static_cast<size_t>(span.end - span.begin)),
                  tokenizer.token_bytes(encoding.ids[i]))
            << family << ' ' << text;
      }
      EXPECT_EQ(end, static_cast<int64_t>(text.size()));
    }
  }
}

}  // namespace
}  // namespace tessera::text

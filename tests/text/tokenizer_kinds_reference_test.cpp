// Tests that ids, offsets, texts and pairs of tokenizers of every kind equal those which
// tests/reference/make_tokenizer_kinds_reference.py has recorded.
#include <cinttypes>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/text/tokenizer/tokenizer.h"

#include "tests/testing/paths.h"
#include "tests/testing/temp_folder.h"

namespace tessera::text {
namespace {

using nlohmann::json;

const std::string kData = testing::source_folder() + "/tests/reference/data/";
constexpr size_t kDigits = 4;  // of a digest

json read(const std::string& name) {
  std::ifstream file(kData + name);
  EXPECT_TRUE(file) << kData + name;
  return json::parse(file);
}

std::string unhex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string digest(const std::vector<int64_t>& numbers) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (const int64_t number : numbers) add(static_cast<uint64_t>(number));
  add(uint64_t{1} << 32);
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, hash);
  return std::string(text).substr(16 - kDigits);
}

template <class Numbers>
std::string digest_of(const Numbers& numbers) {
  std::vector<int64_t> wide;
  for (const auto number : numbers) wide.push_back(static_cast<unsigned char>(number));
  return digest(wide);
}
std::string digest_of(const std::vector<int32_t>& ids) { return digest({ids.begin(), ids.end()}); }

// Returns the number of the character that each byte belongs to, and at the end the number of characters.
std::vector<int64_t> characters_of(const std::string& text) {
  std::vector<int64_t> numbers;
  int64_t number = -1;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) ++number;
    numbers.push_back(number);
  }
  numbers.push_back(number + 1);
  return numbers;
}

// Returns the offsets as `tokenizers` gives them: of the characters that the bytes belong to.
std::vector<int64_t> offsets_of(const std::vector<int64_t>& characters, const std::vector<ByteSpan>& spans) {
  std::vector<int64_t> offsets;
  for (const ByteSpan& span : spans) {
    const auto begin = static_cast<size_t>(span.begin), end = static_cast<size_t>(span.end);
    offsets.push_back(characters[begin]);
    offsets.push_back(begin < end ? characters[end - 1] + 1 : characters[end]);
  }
  return offsets;
}

struct Recorded {
  json parts;
  std::vector<std::string> texts;
  size_t num_valid = 0;

  Recorded() : parts(read("tokenizer_kinds/vectors.json")) {
    const json strings = read("tokenizer/strings.json");
    const auto append = [&](const json& list) {
      for (const json& text : list) texts.push_back(text.get<std::string>());
    };
    append(strings["strings"]);
    append(parts["more"]);
    num_valid = texts.size();
    for (const json& hex : strings["broken"]) texts.push_back(unhex(hex.get<std::string>()));
    for (size_t i = 0; i < parts["num_random"].get<size_t>(); ++i)
      append(json::array({strings["random"][i]}));
  }
  bool is_broken(size_t i) const {
    return i >= num_valid && i < texts.size() - parts["num_random"].get<size_t>();
  }
};

const Recorded& recorded() {
  static const Recorded instance;
  return instance;
}

std::string escaped(const std::string& text) {
  return json(text).dump(-1, ' ', true, json::error_handler_t::replace);
}

class TokenizerKinds : public ::testing::TestWithParam<std::string> {
 protected:
  TokenizerKinds() : kind(recorded().parts["kinds"][GetParam()]), tokenizer(load()) {}

  Tokenizer load() const {
    json document = read("tokenizer_kinds/" + kind["of"].get<std::string>() + ".json");
    document.update(kind["parts"]);
    std::ofstream(folder.path() + "/tokenizer.json") << document.dump();
    return Tokenizer::from_folder(folder.path());
  }
  std::string wanted(const char* list, size_t index) const {
    return kind[list].get_ref<const std::string&>().substr(kDigits * index, kDigits);
  }

  // Spans lie in the text and never go back; text that a step has put in stands for none.
  static void expect_order(const std::vector<ByteSpan>& spans, const std::string& text) {
    int64_t end = 0;
    for (const ByteSpan& span : spans) {
      EXPECT_LE(0, span.begin);
      EXPECT_LE(span.begin, span.end);
      if (span.begin == span.end) continue;
      EXPECT_LE(end, span.end) << escaped(text);
      end = span.end;
    }
    EXPECT_LE(end, static_cast<int64_t>(text.size()));
  }

  const json& kind;
  const bool is_loose = kind["is_loose"].get<bool>();
  testing::TempFolder folder;
  Tokenizer tokenizer;
  const std::vector<std::string>& texts = recorded().texts;
};

TEST_P(TokenizerKinds, IdsAndOffsets) {
  ASSERT_EQ(kind["ids"].get_ref<const std::string&>().size(), kDigits * texts.size());
  // Texts are encoded twice; the second time words come from the cache.
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < texts.size(); ++i) {
      const Encoding encoding = tokenizer.encode_with_spans(texts[i]);
      EXPECT_EQ(digest_of(encoding.ids), wanted("ids", i)) << escaped(texts[i]) << json(encoding.ids);
      EXPECT_EQ(encoding.ids, tokenizer.encode(texts[i]));
      if (recorded().is_broken(i) || is_loose) {
        expect_order(encoding.spans, texts[i]);
        continue;
      }
      const auto offsets = offsets_of(characters_of(texts[i]), encoding.spans);
      EXPECT_EQ(digest(offsets), wanted("offsets", i)) << escaped(texts[i]) << json(offsets);
    }
  }
}

TEST_P(TokenizerKinds, DecodedTexts) {
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto ids = tokenizer.encode(texts[i]);
    EXPECT_EQ(digest_of(tokenizer.decode(ids, true)), wanted("texts", i))
        << escaped(texts[i]) << escaped(tokenizer.decode(ids, true));
  }
  for (size_t i = 0; i < kind["lists"].size(); ++i)
    EXPECT_EQ(digest_of(tokenizer.decode(kind["lists"][i].get<std::vector<int32_t>>())), wanted("decoded", i))
        << kind["lists"][i] << escaped(tokenizer.decode(kind["lists"][i].get<std::vector<int32_t>>()));
}

TEST_P(TokenizerKinds, StreamedTextIsTheDecodedOne) {
  for (const json& list : kind["lists"]) {
    const auto ids = list.get<std::vector<int32_t>>();
    TextStream stream(tokenizer);
    std::string text;
    for (const int32_t id : ids) {
      const std::string part = stream.add(id);
      EXPECT_NO_THROW(static_cast<void>(json(part).dump())) << "a part that is not UTF-8";
      text += part;
    }
    EXPECT_EQ(text + stream.finish(), tokenizer.decode(ids)) << list;
  }
}

TEST_P(TokenizerKinds, Pairs) {
  for (size_t pair = 0, i = 0; i + 1 < texts.size(); i += 5, ++pair) {
    if (recorded().is_broken(i) || recorded().is_broken(i + 1)) continue;
    const PairEncoding bare = tokenizer.encode_pair(texts[i], texts[i + 1], {});
    std::vector<int64_t> numbers(bare.ids.begin(), bare.ids.end());
    numbers.insert(numbers.end(), bare.type_ids.begin(), bare.type_ids.end());
    EXPECT_EQ(digest(numbers), wanted("bare_pairs", pair)) << escaped(texts[i]);

    const PairEncoding whole = tokenizer.encode_pair(texts[i], texts[i + 1]);
    numbers.assign(whole.ids.begin(), whole.ids.end());
    numbers.insert(numbers.end(), whole.type_ids.begin(), whole.type_ids.end());
    const std::vector<int64_t> characters[] = {characters_of(texts[i]), characters_of(texts[i + 1])};
    for (size_t token = 0; token < whole.ids.size() && !is_loose; ++token) {
      const int32_t text = whole.texts[token];
      const auto offsets =
          text < 0 ? std::vector<int64_t>{0, 0} : offsets_of(characters[text], {whole.spans[token]});
      numbers.insert(numbers.end(), offsets.begin(), offsets.end());
    }
    EXPECT_EQ(digest(numbers), wanted("pairs", pair)) << escaped(texts[i]) << json(numbers);
    EXPECT_EQ(digest_of(tokenizer.encode(texts[i], {.add_special_tokens = true})), wanted("singles", pair));
    EXPECT_EQ(tokenizer.encode_pair(texts[i], std::nullopt).ids,
              tokenizer.encode(texts[i], {.add_special_tokens = true}));
  }
}

TEST_P(TokenizerKinds, SavedFolderIsTheSame) {
  tokenizer.save(folder.path() + "/saved");
  const Tokenizer again = Tokenizer::from_folder(folder.path() + "/saved");
  for (size_t i = 0; i < texts.size(); i += 7) EXPECT_EQ(again.encode(texts[i]), tokenizer.encode(texts[i]));
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const auto& [name, kind] : recorded().parts["kinds"].items()) out.push_back(name);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerKinds, ::testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::text

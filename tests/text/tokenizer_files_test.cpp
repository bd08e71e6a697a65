// Tests the formats beside tokenizer.json. Ids of SentencePiece's files equal those that
// tests/reference/make_tokenizer_files_reference.py has recorded from its library.
#include <cinttypes>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/base64.h"
#include "tessera/core/error.h"
#include "tessera/text/tokenizer/tokenizer.h"

#include "tests/testing/paths.h"
#include "tests/testing/temp_folder.h"
#include "tests/text/gguf_writer.h"

namespace tessera::text {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

const std::string kReference = testing::source_folder() + "/tests/reference/data/";

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> hard_texts() {
  const json strings = json::parse(contents(kReference + "tokenizer/strings.json"));
  auto texts = strings["strings"].get<std::vector<std::string>>();
  const json kinds = json::parse(contents(kReference + "tokenizer_kinds/vectors.json"));
  for (const json& text : kinds["more"]) texts.push_back(text.get<std::string>());
  for (size_t i = 0; i < 100; ++i) texts.push_back(strings["random"][i].get<std::string>());
  return texts;
}

template <class Numbers>
std::string digest_of(const Numbers& numbers) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (const auto number : numbers) add(number);
  add(uint64_t{1} << 32);
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, hash);
  return std::string(text).substr(12);
}

std::string escaped(const std::string& text) { return json(text).dump(-1, ' ', true); }

class TokenizerFiles : public ::testing::Test {
 protected:
  Tokenizer load() const { return Tokenizer::from_folder(folder.path()); }
  std::string error() const {
    try {
      load();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Model) << error.what();
      return error.what();
    }
    return {};
  }
  void config(const json& fields) const { folder.write("tokenizer_config.json", fields.dump()); }

  testing::TempFolder folder;
};

class SentencePieceFiles : public TokenizerFiles, public ::testing::WithParamInterface<const char*> {};

TEST_P(SentencePieceFiles, IdsAndTextsOfTheLibrary) {
  const json wanted = json::parse(contents(kReference + "tokenizer_files/vectors.json"))[GetParam()];
  const std::string bytes = contents(kReference + "tokenizer_files/" + GetParam() + ".model");
  folder.write("tokenizer.model", bytes);
  const Tokenizer tokenizer = load();
  const auto texts = hard_texts();
  const std::string ids = wanted["ids"], decoded = wanted["texts"];
  ASSERT_EQ(ids.size(), 4 * texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    // The library knows no special tokens inside a text.
    Ids got = tokenizer.encode(texts[i], {.parse_special = false});
    std::vector<uint64_t> wide(got.begin(), got.end());
    EXPECT_EQ(digest_of(wide), ids.substr(4 * i, 4)) << escaped(texts[i]) << json(got);
    std::erase(got, tokenizer.unk_id());
    std::vector<uint64_t> bytes_of_text;
    for (const unsigned char byte : tokenizer.decode(got)) bytes_of_text.push_back(byte);
    EXPECT_EQ(digest_of(bytes_of_text), decoded.substr(4 * i, 4))
        << escaped(texts[i]) << escaped(tokenizer.decode(got));
    const Encoding spans = tokenizer.encode_with_spans(texts[i]);
    EXPECT_EQ(spans.ids, tokenizer.encode(texts[i]));
    for (const ByteSpan& span : spans.spans) {
      EXPECT_LE(0, span.begin);
      EXPECT_LE(span.begin, span.end);
      EXPECT_LE(span.end, static_cast<int64_t>(texts[i].size()));
    }
  }
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_EQ(tokenizer.unk_id(), 0);
  EXPECT_TRUE(tokenizer.is_special(1));

  // A saved folder keeps the file, and needs no other.
  tokenizer.save(folder / "saved");
  EXPECT_EQ(contents(folder / "saved/tokenizer.model"), bytes);
  const Tokenizer again = Tokenizer::from_folder(folder / "saved");
  for (const std::string& text : texts) EXPECT_EQ(again.encode(text), tokenizer.encode(text));
}

INSTANTIATE_TEST_SUITE_P(Models, SentencePieceFiles,
                         ::testing::Values("unigram", "unigram_bytes", "bpe_bytes", "bpe", "char", "suffix"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(TokenizerFiles, ClassesOfSentencePiece) {
  const std::string bytes = contents(kReference + "tokenizer_files/unigram.model");
  folder.write("spiece.model", bytes);
  const Tokenizer t5 = load();
  const int32_t size = *t5.token_to_id("<extra_id_99>");
  EXPECT_EQ(t5.vocab_size(), size + 100);
  EXPECT_EQ(t5.token_to_id("<extra_id_0>"), size + 99);
  Ids ids = t5.encode("ko");
  ids.push_back(2);
  EXPECT_EQ(t5.encode("ko", {.add_special_tokens = true}), ids);
  EXPECT_EQ(t5.bos_id(), std::nullopt);

  folder.write("tokenizer_config.json", R"({"tokenizer_class": "XLMRobertaTokenizerFast"})");
  const Tokenizer xlm = load();
  EXPECT_EQ(xlm.encode("<s><pad></s><unk>"), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(xlm.mask_id(), size + 1);
  EXPECT_EQ(xlm.cls_id(), 0);
  const PairEncoding pair = xlm.encode_pair("ko", "ri");
  EXPECT_EQ(pair.ids.front(), 0);
  EXPECT_EQ(std::count(pair.ids.begin(), pair.ids.end(), 2), 3);

  config({{"tokenizer_class", "PegasusTokenizer"}});
  EXPECT_THAT(error(), HasSubstr("got PegasusTokenizer, need a tokenizer.json"));
  config({{"tokenizer_class", "LlamaTokenizer"}, {"add_eos_token", true}, {"legacy", false}});
  const Tokenizer llama = load();
  ids.insert(ids.begin(), 1);
  EXPECT_EQ(llama.encode("ko", {.add_special_tokens = true}), ids);
  // If "legacy" is false, only the start of the text gets a space.
  config({{"tokenizer_class", "LlamaTokenizer"}});
  EXPECT_EQ(load().id_to_token(load().encode("</s>ko")[1]), "▁ko");
  EXPECT_NE(llama.id_to_token(llama.encode("</s>ko")[1]), "▁ko");
}

TEST_F(TokenizerFiles, BrokenFilesOfSentencePieceAreRefused) {
  const std::string bytes = contents(kReference + "tokenizer_files/char.model");
  for (size_t size = 0; size < bytes.size(); size += 5) {
    folder.write("tokenizer.model", bytes.substr(0, size));
    // A file that is cut behind a piece is one with fewer pieces.
    if (error().empty()) load().encode("ko ri");
  }
  for (size_t at = 0; at < bytes.size(); at += 3) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x55);
    folder.write("tokenizer.model", changed);
    if (error().empty()) load().encode("ko ri \u00e9\u4e2d");
  }
  const auto piece = [](const std::string& text, const std::string& score, int type) {
    const std::string fields = "\n" + std::string(1, static_cast<char>(text.size())) + text + "\x15" + score +
                               "\x18" + std::string(1, static_cast<char>(type));
    return "\n" + std::string(1, static_cast<char>(fields.size())) + fields;
  };
  const std::string zero(4, '\0'), nan = "\xff\xff\xff\x7f", unk = piece("<unk>", zero, 2);
  folder.write("tokenizer.model", unk + piece("a", nan, 1));
  EXPECT_THAT(error(), HasSubstr("the score of piece 1 is out of range"));
  folder.write("tokenizer.model", unk + piece("a", zero, 1) + piece("a", zero, 1));
  EXPECT_THAT(error(), HasSubstr("piece 'a' is given twice"));
  folder.write("tokenizer.model", piece("a", zero, 1));
  EXPECT_THAT(error(), HasSubstr("it has 0 unknown pieces"));
  folder.write("tokenizer.model", unk + piece("\xff", zero, 1));
  EXPECT_THAT(error(), HasSubstr("piece 1 is not valid UTF-8"));
}

// The files of a folder in the form that Transformers 4 has saved give the ids of its tokenizer.json.
TEST_F(TokenizerFiles, VocabTxtOfBert) {
  const json document = json::parse(contents(kReference + "tokenizer_kinds/bert.json"));
  std::vector<std::string> lines(document["model"]["vocab"].size());
  for (const auto& [token, id] : document["model"]["vocab"].items()) lines[id.get<size_t>()] = token;
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  testing::TempFolder other;
  other.write("tokenizer.json", document.dump());
  folder.write("vocab.txt", text);
  const Tokenizer wanted = Tokenizer::from_folder(other.path()), tokenizer = load();
  for (const std::string& string : hard_texts()) {
    if (string.find("[MASK]") != std::string::npos) continue;  // takes no space on its left here
    EXPECT_EQ(tokenizer.encode(string), wanted.encode(string)) << escaped(string);
    EXPECT_EQ(tokenizer.encode_pair(string, "ko").ids, wanted.encode_pair(string, "ko").ids);
  }
  EXPECT_EQ(tokenizer.cls_id(), tokenizer.token_to_id("[CLS]"));
  EXPECT_EQ(tokenizer.mask_id(), tokenizer.token_to_id("[MASK]"));
  tokenizer.save(folder / "saved");
  EXPECT_EQ(contents(folder / "saved/vocab.txt"), text);
  EXPECT_EQ(Tokenizer::from_folder(folder / "saved").encode("ko ri"), tokenizer.encode("ko ri"));

  config({{"do_lower_case", false}});
  EXPECT_NE(load().encode("KO"), tokenizer.encode("KO"));
  folder.write("vocab.txt", "a\nb\n");
  EXPECT_THAT(error(), HasSubstr("this vocab.txt is not that of a BERT tokenizer; got no token [UNK]"));
}

TEST_F(TokenizerFiles, VocabJsonWithMerges) {
  for (const auto& [family, name] : {std::pair("gpt2", ""), std::pair("qwen2", "Qwen2Tokenizer")}) {
    const json document = json::parse(contents(kReference + "tokenizer/" + family + "/tokenizer.json"));
    std::string merges = "#version: 0.2\n";
    for (const json& merge : document["model"]["merges"])
      merges += (merge.is_string() ? merge.get<std::string>()
                                   : merge[0].get<std::string>() + " " + merge[1].get<std::string>()) +
                "\n";
    folder.write("vocab.json", document["model"]["vocab"].dump());
    folder.write("merges.txt", merges);
    json decoder;
    for (const json& token : document["added_tokens"])
      decoder[std::to_string(token["id"].get<int>())] = token;
    for (json& token : decoder) token.erase("id");
    config({{"tokenizer_class", name}, {"added_tokens_decoder", decoder}});
    const Tokenizer wanted = Tokenizer::from_file(kReference + "tokenizer/" + family + "/tokenizer.json");
    const Tokenizer tokenizer = load();
    for (const std::string& text : hard_texts())
      EXPECT_EQ(tokenizer.encode(text), wanted.encode(text)) << escaped(text);
  }
  folder.write("vocab.json", R"({"a</w>": 0})");
  EXPECT_THAT(error(), HasSubstr("do not hold a byte-level tokenizer"));
  folder.write("vocab.json", "[1]");
  EXPECT_THAT(error(), HasSubstr("vocab.json is not an object of ids"));
}

// Bytes, "ab", "abc" and " a", by rank.
std::vector<std::string> rank_tokens() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* token : {"ab", "abc", " a"}) tokens.emplace_back(token);
  return tokens;
}

TEST_F(TokenizerFiles, Tiktoken) {
  std::string text;
  const auto tokens = rank_tokens();
  for (size_t rank = 0; rank < tokens.size(); ++rank)
    text += base64(tokens[rank]) + " " + std::to_string(rank) + "\n";
  folder.write("cl100k_base.tiktoken", text);
  const Tokenizer tokenizer = load();
  EXPECT_EQ(tokenizer.encode("abcab a"), (Ids{257, 256, 258}));
  EXPECT_EQ(tokenizer.encode("a<|endoftext|>"), (Ids{'a', 100257}));
  EXPECT_EQ(tokenizer.decode(Ids{257, 100257}), "abc<|endoftext|>");
  EXPECT_EQ(tokenizer.eos_id(), 100257);
  tokenizer.save(folder / "saved");
  EXPECT_EQ(contents(folder / "saved/cl100k_base.tiktoken"), text);
  EXPECT_EQ(Tokenizer::from_folder(folder / "saved").encode("abcab a"), (Ids{257, 256, 258}));

  // Llama 3 keeps such a file as tokenizer.model.
  testing::TempFolder llama;
  llama.write("tokenizer.model", text);
  const Tokenizer llama3 = Tokenizer::from_folder(llama.path());
  EXPECT_EQ(llama3.encode("abc", {.add_special_tokens = true}), (Ids{128000, 257}));
  EXPECT_EQ(llama3.token_to_id("<|eot_id|>"), 128009);

  std::rename((folder / "cl100k_base.tiktoken").c_str(), (folder / "odd.tiktoken").c_str());
  EXPECT_THAT(error(), HasSubstr("this family is not known"));
  folder.write("cl100k_base.tiktoken", "YQ== 0\nYg\n");
  EXPECT_THAT(error(), HasSubstr("cl100k_base.tiktoken:2: a line is not a token"));
}

TEST_F(TokenizerFiles, Tekken) {
  json document = {{"config",
                    {{"pattern", "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+|\\s+"},
                     {"default_vocab_size", 24 + 259},
                     {"default_num_special_tokens", 24},
                     {"version", "v3"}}},
                   {"vocab", json::array()}};
  auto tokens = rank_tokens();
  tokens.emplace_back("beyond");
  for (size_t rank = 0; rank < tokens.size(); ++rank)
    document["vocab"].push_back(
        {{"rank", rank}, {"token_bytes", base64(tokens[rank])}, {"token_str", nullptr}});
  folder.write("tekken.json", document.dump());
  const Tokenizer tokenizer = load();
  EXPECT_EQ(tokenizer.vocab_size(), 24 + 259);
  EXPECT_EQ(tokenizer.encode("[INST]abcab a", {.add_special_tokens = true}),
            (Ids{1, 3, 24 + 257, 24 + 256, 24 + 258}));
  EXPECT_EQ(tokenizer.id_to_token(23), "<SPECIAL_23>");
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_EQ(tokenizer.pad_id(), 11);
  tokenizer.save(folder / "saved");
  EXPECT_EQ(contents(folder / "saved/tekken.json"), document.dump());

  document["special_tokens"] = {{{"rank", 0}, {"token_str", "<unk>"}, {"is_control", true}},
                                {{"rank", 5}, {"token_str", "[X]"}, {"is_control", true}}};
  folder.write("tekken.json", document.dump());
  EXPECT_EQ(load().encode("[X]"), (Ids{5}));
  document["vocab"][7]["token_bytes"] = "*";
  folder.write("tekken.json", document.dump());
  EXPECT_THAT(error(), HasSubstr("$.vocab[7]: a token is not base64"));
}

// tokenizer.json comes first, whatever else is there.
TEST_F(TokenizerFiles, WhichFileIsTaken) {
  EXPECT_FALSE(Tokenizer::is_in_folder(folder.path()));
  EXPECT_THAT(error(), HasSubstr("or else tekken.json, tokenizer.model"));
  folder.write("vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\n");
  EXPECT_TRUE(Tokenizer::is_in_folder(folder.path()));
  EXPECT_EQ(load().encode("a"), (Ids{3}));
  folder.write("tokenizer.json", R"({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}})");
  EXPECT_EQ(load().encode("a"), (Ids{0}));
}

TEST_F(TokenizerFiles, ConfigurationsOfTransformers4And5) {
  folder.write("tokenizer.json", R"({"model": {"type": "WordLevel", "unk_token": "<unk>",
    "vocab": {"<unk>": 0, "a": 1, "<x>": 2, "<y>": 3}},
    "added_tokens": [{"id": 2, "content": "<x>", "special": false, "normalized": false},
                     {"id": 4, "content": "<z>", "special": true, "normalized": false}]})");
  EXPECT_FALSE(load().is_special(2));
  // A list, or a map by name; a token that the vocabulary has, and a new one.
  for (const json& special :
       {json({"<x>", "<y>", "<new>"}), json({{"image_token", "<x>"}, {"b", "<y>"}, {"c", "<new>"}}),
        json::array({{{"content", "<x>"}, {"lstrip", true}}, "<y>", "<new>"})}) {
    config({{"extra_special_tokens", special}, {"cls_token", "a"}, {"mask_token", "<none>"}});
    const Tokenizer tokenizer = load();
    EXPECT_TRUE(tokenizer.is_special(2)) << special;
    EXPECT_TRUE(tokenizer.is_special(3)) << special;
    EXPECT_EQ(tokenizer.token_to_id("<new>"), 5) << special;
    EXPECT_EQ(tokenizer.encode("<x><new><y>", {.parse_special = true}), (Ids{2, 5, 3})) << special;
    EXPECT_EQ(tokenizer.encode("<y>", {.parse_special = false}), (Ids{3})) << special;
    EXPECT_EQ(tokenizer.decode(Ids{2, 0, 3}, true), "<unk>") << special;
    EXPECT_EQ(tokenizer.cls_id(), 1);
    EXPECT_EQ(tokenizer.mask_id(), std::nullopt);
  }
  config({{"additional_special_tokens", {"<y>"}},
          {"added_tokens_decoder",
           {{"4", {{"content", "<z>"}, {"special", true}, {"lstrip", true}, {"normalized", false}}}}}});
  const Tokenizer corrected = load();
  EXPECT_TRUE(corrected.is_special(3));
  const Encoding encoding = corrected.encode_with_spans("a <z>");
  EXPECT_EQ(encoding.ids, (Ids{1, 4}));
  EXPECT_EQ(encoding.spans[1].begin, 1);  // the space belongs to the token now
}

TEST_F(TokenizerFiles, GgufOfBert) {
  GgufWriter writer;
  writer.add("tokenizer.ggml.model", std::string("bert"));
  writer.add("tokenizer.ggml.tokens", std::vector<std::string>{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
                                                               "▁un", "able", "▁caf", "e", "▁."});
  writer.add("tokenizer.ggml.token_type", std::vector<int32_t>{3, 2, 3, 3, 3, 1, 1, 1, 1, 1});
  for (const auto& [key, id] : {std::pair("unknown", 1), std::pair("cls", 2), std::pair("seperator", 3),
                                std::pair("mask", 4), std::pair("padding", 0)})
    writer.add(std::string("tokenizer.ggml.") + key + "_token_id", static_cast<uint32_t>(id));
  const Tokenizer tokenizer = Tokenizer::from_gguf(writer.open(folder / "model.gguf"));
  EXPECT_EQ(tokenizer.encode("Unable Caf\u00e9."), (Ids{5, 6, 7, 8, 9}));
  EXPECT_EQ(tokenizer.encode("able"), (Ids{1}));
  EXPECT_EQ(tokenizer.encode("un", {.add_special_tokens = true}), (Ids{2, 5, 3}));
  EXPECT_EQ(tokenizer.encode_pair("un", ".").type_ids, (Ids{0, 0, 0, 1, 1}));
  EXPECT_EQ(tokenizer.decode(Ids{5, 6, 9}), "unable.");
  EXPECT_EQ(tokenizer.mask_id(), 4);
}

TEST_F(TokenizerFiles, GgufOfT5) {
  GgufWriter writer;
  writer.add("tokenizer.ggml.model", std::string("t5"));
  writer.add("tokenizer.ggml.tokens",
             std::vector<std::string>{"<pad>", "</s>", "<unk>", "▁", "a", "b", "ab", "▁a"});
  writer.add("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, -2, -3, -3, -4, -3});
  writer.add("tokenizer.ggml.token_type", std::vector<int32_t>{3, 3, 2, 1, 1, 1, 1, 1});
  writer.add("tokenizer.ggml.remove_extra_whitespaces", true);
  const Tokenizer tokenizer = Tokenizer::from_gguf(writer.open(folder / "model.gguf"));
  EXPECT_EQ(tokenizer.encode("  ab   ba ", {.add_special_tokens = true}), (Ids{3, 6, 3, 5, 4, 1}));
  EXPECT_EQ(tokenizer.encode("a\u00e9\u00ea"), (Ids{7, 2}));
  EXPECT_EQ(tokenizer.decode(Ids{7, 5, 3, 6, 1}, true), "ab ab");
  EXPECT_EQ(tokenizer.pad_id(), 0);
  EXPECT_EQ(tokenizer.eos_id(), 1);
}

}  // namespace
}  // namespace tessera::text

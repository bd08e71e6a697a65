// Tests that tokenizers made of SentencePiece models give the ids and texts which
// tests/reference/make_sentencepiece_reference.py has recorded, whatever the format of the tokenizer's files.
#include <cinttypes>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/text/chat_encoding.h"
#include "tessera/text/tokenizer/tokenizer.h"

#include "tests/testing/paths.h"
#include "tests/text/gguf_writer.h"

namespace tessera::text {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kFolder = testing::source_folder() + "/tests/reference/data/sentencepiece/";

json read(const std::string& name) {
  std::ifstream file(kFolder + name);
  EXPECT_TRUE(file) << kFolder + name;
  return json::parse(file);
}

// Returns the last six digits of the FNV-1a hash over 64-bit words.
template <class Numbers>
std::string short_digest(const Numbers& numbers) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (const auto number : numbers)
    add(static_cast<uint64_t>(static_cast<std::make_unsigned_t<std::decay_t<decltype(number)>>>(number)));
  add(uint64_t{1} << 32);
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, hash);
  return text + 10;
}

// Returns the text that a stream gives for the ids, joined from its pieces.
std::string stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  TextStream stream(tokenizer);
  std::string text;
  for (const int32_t id : ids) text += stream.add(id);
  return text += stream.finish();
}

class SentencePieceReference : public ::testing::Test {
 protected:
  SentencePieceReference() : base(read("tokenizer.json")), vectors(read("vectors.json")) {
    std::string name = (fs::temp_directory_path() / "tessera-sentencepiece-XXXXXX").string();
    folder = mkdtemp(name.data());
    texts = vectors["texts"].get<std::vector<std::string>>();
  }
  ~SentencePieceReference() override { fs::remove_all(folder); }

  void write(const std::string& name, const json& document) const {
    std::ofstream(folder / name, std::ios::binary) << document.dump();
  }
  json document_with(const json& parts) const {
    json document = base;
    for (const auto& [key, value] : parts.items()) {
      if (key == "model") {
        document["model"].update(value);
      } else {
        document[key] = value;
      }
    }
    return document;
  }
  Tokenizer load(const json& parts) const {
    write("tokenizer.json", document_with(parts));
    return Tokenizer::from_file((folder / "tokenizer.json").string());
  }

  json base, vectors;
  std::vector<std::string> texts;
  fs::path folder;
};

TEST_F(SentencePieceReference, IdsAndTextsOfEveryForm) {
  ASSERT_GT(texts.size(), 400u);
  ASSERT_GT(vectors["variants"].size(), 50u);
  for (const auto& [name, variant] : vectors["variants"].items()) {
    SCOPED_TRACE(name);
    const Tokenizer tokenizer = load(variant["parts"]);
    const std::string ids_wanted = variant["ids"], texts_wanted = variant["texts"],
                      lists_wanted = variant["lists"];
    int wrong = 0;
    const auto check = [&](const std::string& got, const std::string& all, size_t i,
                           const std::string& what) {
      const std::string wanted = all.substr(6 * i, 6);
      if (wanted == "------" || got == wanted || ++wrong > 5) return;
      ADD_FAILURE() << what << json(texts[i]).dump(-1, ' ', true);
    };
    for (size_t i = 0; i < texts.size(); ++i) {
      const Encoding encoded = tokenizer.encode_with_spans(texts[i]);
      check(short_digest(encoded.ids), ids_wanted, i, "ids " + json(encoded.ids).dump() + " of ");
      EXPECT_EQ(tokenizer.encode(texts[i]), encoded.ids);
      const std::string decoded = tokenizer.decode(encoded.ids);
      check(short_digest(decoded), texts_wanted, i, "text '" + decoded + "' of ");
      EXPECT_EQ(stream(tokenizer, encoded.ids), decoded);
      int64_t end = 0;
      for (const ByteSpan& span : encoded.spans) {
        EXPECT_LE(span.begin, span.end);
        EXPECT_LE(end, span.end) << json(texts[i]).dump(-1, ' ', true);
        EXPECT_LE(span.end, static_cast<int64_t>(texts[i].size()));
        end = span.end;
      }
    }
    for (size_t i = 0; i < vectors["lists"].size(); ++i) {
      const auto ids = vectors["lists"][i].get<std::vector<int32_t>>();
      const std::string wanted = lists_wanted.substr(6 * i, 6);
      const std::string decoded = tokenizer.decode(ids);
      if (wanted != "------") {
        EXPECT_EQ(short_digest(decoded), wanted) << vectors["lists"][i] << " '" << decoded << "'";
      }
      EXPECT_EQ(stream(tokenizer, ids), decoded);
    }
  }
}

TEST_F(SentencePieceReference, FoldersThatSpeakOfBosAndEos) {
  const std::string plain[] = {"Hello there", " a", "", "<s>x"};
  int num_chats = 0;
  for (const json& entry : vectors["folders"]) {
    SCOPED_TRACE(entry["config"].dump() + entry["parts"].dump());
    write("tokenizer.json", document_with(entry["parts"]));
    write("tokenizer_config.json", entry["config"]);
    const Tokenizer tokenizer = Tokenizer::from_folder(folder.string());
    for (size_t i = 0; i < std::size(plain); ++i)
      EXPECT_EQ(tokenizer.encode(plain[i], {.add_special_tokens = true}),
                entry["ids"][i].get<std::vector<int32_t>>())
          << plain[i];
    for (size_t i = 0; i < entry["chats"].size(); ++i, ++num_chats) {
      const ChatTemplate chat_template = ChatTemplate::parse(tokenizer.chat_template(), "test");
      const nlohmann::ordered_json messages =
          nlohmann::ordered_json::parse(vectors["chat_messages"][i].dump());
      const RenderedChat chat = chat_template.render(messages, nullptr, render_options(tokenizer, true));
      EXPECT_EQ(encode_chat(tokenizer, chat).ids, entry["chats"][i].get<std::vector<int32_t>>())
          << chat.text();
    }
  }
  EXPECT_GT(num_chats, 8);
}

// The GGUF file has the pieces, scores and kinds of the model, as a converter writes them.
TEST_F(SentencePieceReference, GgufGivesTheSameIds) {
  std::vector<std::string> tokens(base["model"]["vocab"].size());
  for (const auto& [token, id] : base["model"]["vocab"].items()) tokens[id.get<size_t>()] = token;
  const auto writer_with = [&](bool has_prefix) {
    GgufWriter writer;
    writer.add("general.architecture", std::string("llama"));
    writer.add("tokenizer.ggml.model", std::string("llama"));
    writer.add("tokenizer.ggml.pre", std::string("default"));
    writer.add("tokenizer.ggml.tokens", tokens);
    writer.add("tokenizer.ggml.scores", vectors["scores"].get<std::vector<float>>());
    writer.add("tokenizer.ggml.token_type", vectors["types"].get<std::vector<int32_t>>());
    if (!has_prefix) writer.add("tokenizer.ggml.add_space_prefix", false);
    return writer;
  };
  for (const bool has_prefix : {true, false}) {
    json parts = vectors["variants"][has_prefix ? "llama_legacy" : "never_whole"]["parts"];
    if (!has_prefix) {
      parts["decoder"] = base["decoder"];
      parts["decoder"]["decoders"].erase(3);  // removes the step that strips the prefix
    }
    const Tokenizer wanted = load(parts);
    const Tokenizer tokenizer = Tokenizer::from_gguf(writer_with(has_prefix).open(folder / "model.gguf"));
    EXPECT_EQ(tokenizer.vocab_size(), wanted.vocab_size());
    EXPECT_EQ(tokenizer.bos_id(), 1);
    EXPECT_EQ(tokenizer.eos_id(), 2);
    EXPECT_EQ(tokenizer.unk_id(), 0);
    tokenizer.save((folder / "saved").string());
    const json saved = json::parse(std::ifstream(folder / "saved/tokenizer.json"));
    EXPECT_EQ(saved["model"]["merges"], base["model"]["merges"]);
    const Tokenizer again = Tokenizer::from_folder((folder / "saved").string());
    for (const std::string& text : texts) {
      std::vector<int32_t> ids = wanted.encode(text);
      EXPECT_EQ(tokenizer.encode(text), ids) << text;
      EXPECT_EQ(again.encode(text), ids) << text;
      EXPECT_EQ(tokenizer.decode(ids), wanted.decode(ids)) << text;
      ids.insert(ids.begin(), 1);
      EXPECT_EQ(tokenizer.encode(text, {.add_special_tokens = true}), ids) << text;
    }
  }
}

// The scores decide which merge comes first, not the order of the pieces.
TEST_F(SentencePieceReference, GgufScoresDecide) {
  GgufWriter writer;
  writer.add("tokenizer.ggml.model", std::string("llama"));
  writer.add("tokenizer.ggml.tokens",
             std::vector<std::string>{"<unk>", "<s>", "</s>", "a", "b", "c", "ab", "bc"});
  writer.add("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, -9, -9, -9, -2, -1});
  writer.add("tokenizer.ggml.token_type", std::vector<int32_t>{2, 3, 3, 1, 1, 1, 1, 1});
  writer.add("tokenizer.ggml.add_space_prefix", false);
  const Tokenizer tokenizer = Tokenizer::from_gguf(writer.open(folder / "model.gguf"));
  EXPECT_EQ(tokenizer.encode("abc"), (std::vector<int32_t>{3, 7}));
}

}  // namespace
}  // namespace tessera::text

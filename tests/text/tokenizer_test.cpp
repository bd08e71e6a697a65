// Tests of the tokenizer beside the reference tests: GGUF, saving, spans, streaming, limits.
#include "tessera/text/tokenizer/tokenizer.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/io/gguf.h"
#include "tessera/io/gguf_writer.h"
#include "tessera/text/tokenizer/normalizer.h"
#include "tessera/text/tokenizer/pre_tokenizer.h"
#include "tessera/text/tokenizer/regex.h"

#include "tests/testing/paths.h"
#include "tests/text/gguf_writer.h"

namespace tessera::text {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kFolder = testing::source_folder() + "/tests/reference/data/tokenizer/";

Tokenizer load(const std::string& family) {
  return Tokenizer::from_file(kFolder + family + "/tokenizer.json");
}

json read_json(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return json::parse(file);
}

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

std::vector<std::string> hard_strings() {
  return read_json(kFolder + "strings.json")["strings"].get<std::vector<std::string>>();
}

class TokenizerFolder : public ::testing::Test {
 protected:
  TokenizerFolder() {
    std::string name = (fs::temp_directory_path() / "tessera-tokenizer-XXXXXX").string();
    folder = mkdtemp(name.data());
  }
  ~TokenizerFolder() override { fs::remove_all(folder); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder / name, std::ios::binary) << text;
  }
  Tokenizer sentencepiece() const;

  fs::path folder;
};

// Returns the metadata that a converter makes of one of the reference tokenizers.
GgufWriter gguf_of(const std::string& family, const std::string& pre) {
  const json document = read_json(kFolder + family + "/tokenizer.json");
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  const auto put = [&](size_t id, const std::string& text, int32_t type) {
    if (tokens.size() <= id) {
      tokens.resize(id + 1);
      types.resize(id + 1, 5);
    }
    tokens[id] = text;
    types[id] = type;
  };
  for (const auto& [token, id] : document["model"]["vocab"].items()) put(id, token, 1);
  for (const auto& added : document["added_tokens"])
    put(added["id"], added["content"], added["special"] ? 3 : 4);
  std::vector<std::string> merges;
  for (const auto& merge : document["model"]["merges"])
    merges.push_back(merge.is_string() ? merge.get<std::string>()
                                       : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  put(tokens.size(), "[PAD]", 5);
  GgufWriter writer;
  writer.add("general.architecture", std::string("llama"));
  writer.add("llama.context_length", uint32_t{2048});
  writer.add("tokenizer.ggml.model", std::string("gpt2"));
  writer.add("tokenizer.ggml.pre", pre);
  writer.add("tokenizer.ggml.tokens", tokens);
  writer.add("tokenizer.ggml.token_type", types);
  writer.add("tokenizer.ggml.merges", merges);
  return writer;
}

TEST_F(TokenizerFolder, GgufGivesTheSameIds) {
  const std::pair<const char*, const char*> families[] = {
      {"gpt2", "gpt-2"}, {"llama3", "llama-bpe"}, {"qwen2", "qwen2"}, {"smollm2", "smollm"}};
  for (const auto& [family, pre] : families) {
    const Tokenizer wanted = load(family);
    GgufWriter writer = gguf_of(family, pre);
    if (std::string(family) == "llama3")
      writer.add("tokenizer.ggml.bos_token_id",
                 static_cast<uint32_t>(*wanted.token_to_id("<|begin_of_text|>")));
    const Tokenizer tokenizer = Tokenizer::from_gguf(writer.open(folder / "model.gguf"));
    EXPECT_EQ(tokenizer.vocab_size(), wanted.vocab_size()) << family;
    for (const std::string& text : hard_strings()) {
      EXPECT_EQ(tokenizer.encode(text), wanted.encode(text)) << family << ' ' << text;
      EXPECT_EQ(tokenizer.encode(text, {.add_special_tokens = true}),
                wanted.encode(text, {.add_special_tokens = true}))
          << family << ' ' << text;
      EXPECT_EQ(tokenizer.encode(text, {.parse_special = false}),
                wanted.encode(text, {.parse_special = false}));
      EXPECT_EQ(tokenizer.decode(wanted.encode(text), true), wanted.decode(wanted.encode(text), true));
    }
  }
}

TEST_F(TokenizerFolder, GgufRolesAndSaving) {
  GgufWriter writer = gguf_of("smollm2", "smollm");
  writer.add("tokenizer.ggml.bos_token_id", uint32_t{1});
  writer.add("tokenizer.ggml.eos_token_id", uint32_t{2});
  writer.add("tokenizer.ggml.unknown_token_id", uint32_t{0});
  writer.add("tokenizer.ggml.add_eos_token", true);
  writer.add("tokenizer.chat_template", std::string("{{ messages[0].content }}"));
  const Tokenizer tokenizer = Tokenizer::from_gguf(writer.open(folder / "model.gguf"));
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_EQ(tokenizer.pad_id(), std::nullopt);
  EXPECT_EQ(tokenizer.unk_id(), 0);
  tokenizer.save((folder / "saved").string());
  const Tokenizer again = Tokenizer::from_folder((folder / "saved").string());
  EXPECT_EQ(again.bos_id(), 1);
  EXPECT_EQ(again.eos_id(), 2);
  EXPECT_EQ(again.pad_id(), std::nullopt);
  EXPECT_EQ(again.unk_id(), 0);
  EXPECT_EQ(again.chat_template(), "{{ messages[0].content }}");
  EXPECT_EQ(again.encode("x", {.add_special_tokens = true}).back(), 2);
  for (const std::string& text : hard_strings()) EXPECT_EQ(again.encode(text), tokenizer.encode(text));
  const json config = read_json((folder / "saved/tokenizer_config.json").string());
  EXPECT_EQ(config["model_max_length"], 2048);
  EXPECT_EQ(config["eos_token"], "<|im_end|>");
}

// Writes the tokenizer to a GGUF file of a model with so many embeddings, and reads it back.
Tokenizer through_gguf(const Tokenizer& tokenizer, int64_t num_tokens, const fs::path& path) {
  io::GgufMetadata metadata;
  metadata.add("general.architecture", "llama");
  tokenizer.add_gguf_metadata(num_tokens, metadata);
  io::GgufWriter(path.string(), metadata, {}).commit();
  return Tokenizer::from_gguf(io::GgufFile::open(path.string()));
}

// Returns the tokenizer that SentencePiece trained, spelled as Transformers does.
Tokenizer TokenizerFolder::sentencepiece() const {
  json document = read_json(testing::source_folder() + "/tests/reference/data/sentencepiece/tokenizer.json");
  const json llama = read_json(kFolder + "llama2/tokenizer.json");
  document["normalizer"] = llama["normalizer"];
  document["post_processor"] = llama["post_processor"];
  write("tokenizer.json", document.dump());
  return Tokenizer::from_file((folder / "tokenizer.json").string());
}

TEST_F(TokenizerFolder, WrittenToGgufItGivesTheSameIds) {
  const std::pair<const char*, const char*> families[] = {{"gpt2", ""},
                                                          {"llama3", "<|begin_of_text|>"},
                                                          {"qwen2", ""},
                                                          {"smollm2", "<|im_start|>"},
                                                          {"sentencepiece", "<s>"}};
  const std::map<std::string, std::string> pres = {{"gpt2", "gpt-2"},
                                                   {"llama3", "llama-bpe"},
                                                   {"qwen2", "qwen2"},
                                                   {"smollm2", "smollm"},
                                                   {"sentencepiece", "default"}};
  for (const auto& [family, bos] : families) {
    SCOPED_TRACE(family);
    Tokenizer wanted = std::string(family) == "sentencepiece" ? sentencepiece() : load(family);
    if (*bos != '\0') wanted.set_special_token("bos_token", bos);
    wanted.set_chat_template("{{ messages[0].content }}");
    const int64_t count = wanted.vocab_size();
    const Tokenizer read = through_gguf(wanted, count + 3, folder / "model.gguf");
    const io::GgufFile file = io::GgufFile::open((folder / "model.gguf").string());
    EXPECT_EQ(file.get_string("tokenizer.ggml.pre"), pres.at(family));
    EXPECT_EQ(file.get_strings("tokenizer.ggml.tokens").size(), static_cast<size_t>(count + 3));
    EXPECT_EQ(file.get_ints("tokenizer.ggml.token_type").back(), 5);
    EXPECT_EQ(read.chat_template(), wanted.chat_template());
    EXPECT_EQ(read.bos_id(), wanted.bos_id());
    for (int32_t id = 0; id < count; ++id) {
      ASSERT_EQ(read.id_to_token(id), wanted.id_to_token(id)) << id;
      if (wanted.is_added(id)) {
        ASSERT_EQ(read.is_added(id) && read.is_special(id) == wanted.is_special(id), true) << id;
      }
    }
    for (const std::string& text : hard_strings()) {
      for (const bool closes : {false, true}) {
        EXPECT_EQ(read.encode(text, {.add_special_tokens = closes}),
                  wanted.encode(text, {.add_special_tokens = closes}))
            << text;
      }
    }
    EXPECT_THROW(through_gguf(wanted, count - 1, folder / "small.gguf"), Error);
  }
}

TEST_F(TokenizerFolder, NullSettingsAreDefaultsInAGgufFile) {
  json document = read_json((fs::path(kFolder) / "smollm2/tokenizer.json").string());
  document["model"]["ignore_merges"] = document["model"]["byte_fallback"] = nullptr;
  write("tokenizer.json", document.dump());
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.string());
  const Tokenizer read = through_gguf(tokenizer, tokenizer.vocab_size(), folder / "model.gguf");
  EXPECT_EQ(read.encode("Hello 12"), tokenizer.encode("Hello 12"));
}

TEST_F(TokenizerFolder, WhatGgufCannotHoldIsRefused) {
  const auto error_of = [&](const Tokenizer& tokenizer) -> std::string {
    try {
      through_gguf(tokenizer, tokenizer.vocab_size(), folder / "model.gguf");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of(load("mixed")), HasSubstr("no name for this tokenizer's pre-tokenizer"));
  EXPECT_EQ(error_of(load("o200k")), "");
  // A text of this one begins with a token that no role tells.
  EXPECT_THAT(error_of(load("llama3")), HasSubstr("other tokens than bos and eos"));
  // This one was trained by `tokenizers`, which keeps one cut of a piece as a merge and not all.
  Tokenizer llama = load("llama2");
  llama.set_special_token("bos_token", "<s>");
  EXPECT_THAT(error_of(llama), HasSubstr("not those of a SentencePiece model"));
}

TEST_F(TokenizerFolder, GgufErrors) {
  const auto error_of = [&](const GgufWriter& writer) -> std::string {
    try {
      Tokenizer::from_gguf(writer.open(folder / "model.gguf"));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Model);
      return error.what();
    }
    return {};
  };
  EXPECT_THAT(error_of(gguf_of("smollm2", "novel")),
              HasSubstr("key 'tokenizer.ggml.pre': this tokenizer is not supported; got 'novel'"));
  GgufWriter writer = gguf_of("smollm2", "smollm");
  writer.add("tokenizer.ggml.eos_token_id", uint32_t{100000});
  writer.add("tokenizer.ggml.padding_token_id", uint32_t{4294967295});
  EXPECT_EQ(error_of(writer), "");
  EXPECT_EQ(Tokenizer::from_gguf(writer.open(folder / "model.gguf")).eos_id(), std::nullopt);
  EXPECT_EQ(Tokenizer::from_gguf(writer.open(folder / "model.gguf")).pad_id(), std::nullopt);
  GgufWriter word_pieces;
  word_pieces.add("tokenizer.ggml.model", std::string("rwkv"));
  EXPECT_THAT(error_of(word_pieces), HasSubstr("got 'rwkv', need 'gpt2', 'llama', 'bert' or 't5'"));
  // Every name of a pre-tokenizer has expressions that compile.
  for (const char* name :
       {"deepseek-llm", "deepseek-coder", "deepseek-v3", "falcon", "bloom", "viking", "tekken", "gpt-4o",
        "superbpe", "bailingmoe", "seed-coder", "glm4", "hunyuan", "minerva-7b"}) {
    EXPECT_EQ(error_of(gguf_of("smollm2", name)), "") << name;
    const Tokenizer tokenizer = Tokenizer::from_gguf(gguf_of("smollm2", name).open(folder / "model.gguf"));
    const std::string text = "It's 12345 \u4e2d\u6587, caf\u00e9\n\n  x!";
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << name;
  }
  GgufWriter short_scores;
  short_scores.add("tokenizer.ggml.model", std::string("llama"));
  short_scores.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
  short_scores.add("tokenizer.ggml.scores", std::vector<float>{0});
  EXPECT_THAT(error_of(short_scores), HasSubstr("tokenizer.ggml.scores"));
  GgufWriter bad_merge;
  bad_merge.add("tokenizer.ggml.model", std::string("gpt2"));
  bad_merge.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
  bad_merge.add("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  EXPECT_THAT(error_of(bad_merge), HasSubstr("merges[0]"));
  for (const char* kind : {"gpt2", "llama"}) {
    const auto with_token = [&](size_t bytes) {
      GgufWriter long_token;
      long_token.add("tokenizer.ggml.model", std::string(kind));
      long_token.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", std::string(bytes, 'a')});
      long_token.add("tokenizer.ggml.scores", std::vector<float>{0, 0});
      long_token.add("tokenizer.ggml.merges", std::vector<std::string>{});
      return error_of(long_token);
    };
    EXPECT_EQ(with_token(1024), "") << kind;
    EXPECT_THAT(with_token(1025),
                AllOf(HasSubstr("E-MODEL-TOKENIZER-LIMIT"), HasSubstr("token 1 is too long")));
  }
}

// Saves the tokenizer and expects the same ids of a text from what was read back.
Tokenizer saved_and_read(const Tokenizer& tokenizer, const std::string& folder) {
  tokenizer.save(folder);
  Tokenizer read = Tokenizer::from_folder(folder);
  for (const char* text : {"a<new>b <|ctl|>", "<new><new> dog <|ctl|>x", "no new token"})
    EXPECT_EQ(read.encode(text), tokenizer.encode(text)) << text;
  return read;
}

TEST_F(TokenizerFolder, NewTokensAreFoundWholeAndSaved) {
  const std::string source = read_text(kFolder + "qwen2/tokenizer.json");
  const std::vector<std::string> configs = {"", "{\"added_tokens_decoder\": {}}",
                                            "{\"extra_special_tokens\": []}"};
  for (const std::string& config : configs) {
    SCOPED_TRACE(config);
    write("tokenizer.json", source);
    if (!config.empty()) write("tokenizer_config.json", config);
    Tokenizer tokenizer = Tokenizer::from_folder(folder.string());
    const auto first = static_cast<int32_t>(tokenizer.vocab_size());
    // An ordinary word of the vocabulary keeps its id, and is found whole where it was pieces before.
    std::string word;
    for (int32_t id = 0; id < first && word.size() < 3; ++id)
      if (!tokenizer.is_added(id) && tokenizer.encode(tokenizer.id_to_token(id)).size() == 1)
        word = tokenizer.id_to_token(id);
    const int32_t word_id = tokenizer.token_to_id(word).value();
    tokenizer.add_tokens(std::vector<NewToken>{
        {"<new>"}, {"<|ctl|>", true, true}, {word}, {"<new>"}, {"<|endoftext|>", true}});
    EXPECT_EQ(tokenizer.vocab_size(), first + 2);
    EXPECT_EQ(tokenizer.token_to_id("<new>"), first);
    EXPECT_EQ(tokenizer.token_to_id("<|ctl|>"), first + 1);
    EXPECT_EQ(tokenizer.token_to_id(word), word_id);
    EXPECT_TRUE(tokenizer.is_added(word_id));
    EXPECT_FALSE(tokenizer.is_special(first));
    EXPECT_TRUE(tokenizer.is_special(first + 1));
    EXPECT_EQ(tokenizer.encode("<new><|ctl|>"), (std::vector<int32_t>{first, first + 1}));
    EXPECT_EQ(tokenizer.encode("<new>", {.parse_special = false}), (std::vector<int32_t>{first}));
    EXPECT_GT(tokenizer.encode("<|ctl|>", {.parse_special = false}).size(), 1U);
    EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{first, first + 1}, true), "<new>");

    const Tokenizer read = saved_and_read(tokenizer, (folder / "saved").string());
    EXPECT_EQ(read.vocab_size(), first + 2);
    EXPECT_TRUE(read.is_special(first + 1));
    EXPECT_FALSE(read.is_special(first));
    EXPECT_TRUE(read.is_added(word_id));
    // All of the document but the list of added tokens is as it was.
    const std::string text = read_text(folder / "saved/tokenizer.json");
    const json before = json::parse(source), after = json::parse(text);
    EXPECT_EQ(after["model"], before["model"]);
    EXPECT_EQ(after["added_tokens"].size(), before["added_tokens"].size() + 3);
    EXPECT_EQ(text.substr(text.size() - 1000), source.substr(source.size() - 1000));
    const json made = read_json((folder / "saved/tokenizer_config.json").string());
    const char* key =
        made.contains("extra_special_tokens") ? "extra_special_tokens" : "additional_special_tokens";
    EXPECT_EQ(made[key], json::array({"<|ctl|>"}));
    EXPECT_EQ(made.contains("added_tokens_decoder"), config.find("decoder") != std::string::npos);
    fs::remove_all(folder / "saved");
  }
}

TEST_F(TokenizerFolder, RenamedTokensKeepTheirIds) {
  write("tokenizer.json", read_text(kFolder + "qwen2/tokenizer.json"));
  write("tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\"}");
  const Tokenizer before = Tokenizer::from_folder(folder.string());
  const int32_t id = before.token_to_id("<|endoftext|>").value();
  const Tokenizer renamed = before.with_renamed_tokens({{id, "<|over|>"}});
  EXPECT_EQ(renamed.vocab_size(), before.vocab_size());
  EXPECT_EQ(renamed.token_to_id("<|over|>"), id);
  EXPECT_EQ(renamed.eos_id(), id);
  EXPECT_TRUE(renamed.is_special(id));
  EXPECT_EQ(renamed.encode("a b<|over|>"), before.encode("a b<|endoftext|>"));
  EXPECT_EQ(renamed.encode("what<|endoftext|>"),
            before.encode("what<|endoftext|>", {.parse_special = false}));
  EXPECT_EQ(renamed.decode(std::vector<int32_t>{id}), "<|over|>");
  renamed.save((folder / "saved").string());
  const Tokenizer read = Tokenizer::from_folder((folder / "saved").string());
  EXPECT_EQ(read.encode("a b<|over|>"), before.encode("a b<|endoftext|>"));
  EXPECT_EQ(read.eos_id(), id);
  for (const auto& [names, what] :
       {std::pair(std::map<int32_t, std::string>{{0, "x"}}, "no added token has this id"),
        {{{id, ""}}, "is empty"},
        {{{id, before.id_to_token(0)}}, "another token has this name"}}) {
    try {
      static_cast<void>(before.with_renamed_tokens(names));
      ADD_FAILURE() << what;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(what));
    }
  }
}

TEST_F(TokenizerFolder, BadNewTokensAreRefused) {
  write("tokenizer.json", read_text(kFolder + "qwen2/tokenizer.json"));
  Tokenizer tokenizer = Tokenizer::from_folder(folder.string());
  const int64_t size = tokenizer.vocab_size();
  for (const auto& [bad, what] : {std::pair("", "a new token is empty"), {"a\xff", "not valid UTF-8"}}) {
    try {
      tokenizer.add_tokens(std::vector<NewToken>{{bad}});
      ADD_FAILURE() << what;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(what));
    }
  }
  EXPECT_EQ(tokenizer.vocab_size(), size);
}

TEST_F(TokenizerFolder, SavingCopiesWhatWasRead) {
  const std::string source = read_text(kFolder + "qwen2/tokenizer.json");
  const std::string config =
      "{\"eos_token\": \"<|im_end|>\",\n \"chat_template\": \"old\", \"other\": [1.50]}\n";
  write("tokenizer.json", source);
  write("tokenizer_config.json", config);
  write("chat_template.jinja", "new template");
  Tokenizer tokenizer = Tokenizer::from_folder(folder.string());
  EXPECT_EQ(tokenizer.chat_template(), "new template");
  const fs::path saved = folder / "a/b";
  tokenizer.save(saved.string());
  EXPECT_EQ(read_text(saved / "tokenizer.json"), source);
  EXPECT_EQ(read_text(saved / "tokenizer_config.json"), config);
  EXPECT_EQ(read_text(saved / "chat_template.jinja"), "new template");
  EXPECT_EQ(read_json((saved / "special_tokens_map.json").string())["eos_token"], "<|im_end|>");
  int64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(saved)) bytes += static_cast<int64_t>(file.file_size());
  EXPECT_EQ(tokenizer.saved_bytes(), bytes);

  tokenizer.set_special_token("pad_token", "<|endoftext|>");
  tokenizer.save(saved.string());
  const json changed = read_json((saved / "tokenizer_config.json").string());
  EXPECT_EQ(changed["pad_token"], "<|endoftext|>");
  EXPECT_EQ(changed["eos_token"], "<|im_end|>");
  EXPECT_EQ(changed["other"][0], 1.5);
  EXPECT_EQ(Tokenizer::from_folder(saved.string()).pad_id(), tokenizer.token_to_id("<|endoftext|>"));
}

TEST_F(TokenizerFolder, NamedTemplatesAreReadAndKept) {
  using Templates = std::map<std::string, std::string>;
  const Templates all = {{"default", "a"}, {"rag", "c"}, {"tool_use", "b"}};
  const auto reopened = [&](const Tokenizer& tokenizer) {
    fs::remove_all(folder / "saved");
    tokenizer.save((folder / "saved").string());
    return Tokenizer::from_folder((folder / "saved").string()).chat_templates();
  };
  // A new default takes the template for tools away, and no other.
  const auto check = [&](Tokenizer tokenizer) {
    EXPECT_EQ(tokenizer.chat_templates(), all);
    EXPECT_EQ(tokenizer.chat_template(), "a");
    EXPECT_EQ(reopened(tokenizer), all);
    tokenizer.set_chat_template("a");
    EXPECT_EQ(reopened(tokenizer), all);
    tokenizer.set_chat_template("new");
    EXPECT_EQ(reopened(tokenizer), (Templates{{"default", "new"}, {"rag", "c"}}));
  };
  write("tokenizer.json", read_text(kFolder + "qwen2/tokenizer.json"));
  json list = json::array();
  for (const auto& [name, source] : all) list.push_back({{"name", name}, {"template", source}});
  write("tokenizer_config.json", json{{"chat_template", list}}.dump());
  check(Tokenizer::from_folder(folder.string()));

  // Files stand in place of all that the settings hold, as in Transformers.
  fs::create_directories(folder / "additional_chat_templates");
  write("additional_chat_templates/rag.jinja", "c");
  write("additional_chat_templates/notes.txt", "no template");
  EXPECT_EQ(Tokenizer::from_folder(folder.string()).chat_templates(), (Templates{{"rag", "c"}}));
  write("additional_chat_templates/tool_use.jinja", "b");
  write("chat_template.jinja", "a");
  check(Tokenizer::from_folder(folder.string()));

  GgufWriter writer = gguf_of("smollm2", "smollm");
  writer.add("tokenizer.chat_template", std::string("a"));
  writer.add("tokenizer.chat_template.tool_use", std::string("b"));
  writer.add("tokenizer.chat_template.rag", std::string("c"));
  writer.add("tokenizer.chat_templates", std::vector<std::string>{"tool_use", "rag"});
  Tokenizer named = Tokenizer::from_gguf(writer.open(folder / "model.gguf"));
  check(through_gguf(named, named.vocab_size(), folder / "again.gguf"));
  check(std::move(named));
  GgufWriter alone = gguf_of("smollm2", "smollm");
  alone.add("tokenizer.chat_template.rag", std::string("c"));
  EXPECT_EQ(reopened(Tokenizer::from_gguf(alone.open(folder / "model.gguf"))), (Templates{{"rag", "c"}}));
}

TEST_F(TokenizerFolder, SavingWhereThereIsNoFolderToMake) {
  write("file", "x");
  try {
    load("gpt2").save((folder / "file/sub").string());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Storage);
  }
}

TEST_F(TokenizerFolder, TokensOfTheConfigAreAdded) {
  json document = read_json(kFolder + "smollm2/tokenizer.json");
  const int64_t next = static_cast<int64_t>(document["model"]["vocab"].size());
  document["added_tokens"] = json::array();
  write("tokenizer.json", document.dump());
  json decoder;
  decoder[std::to_string(next)] = {{"content", "<extra>"}, {"special", false}};
  decoder["2"] = {{"content", "<|im_end|>"}, {"special", true}};
  write("tokenizer_config.json",
        json{{"added_tokens_decoder", decoder},
             {"bos_token", "<|im_start|>"},
             {"chat_template", json::array({{{"name", "default"}, {"template", "t"}}})}}
            .dump());
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.string());
  EXPECT_THAT(tokenizer.encode("<extra><|im_end|><|im_start|>"), ElementsAre(next, 2, 1));
  EXPECT_TRUE(tokenizer.is_special(1));  // the token is special by its role
  EXPECT_TRUE(tokenizer.is_special(2));
  EXPECT_FALSE(tokenizer.is_special(static_cast<int32_t>(next)));
  EXPECT_EQ(tokenizer.chat_template(), "t");
}

TEST(TokenizerTest, Lookups) {
  const Tokenizer tokenizer = load("smollm2");
  EXPECT_EQ(tokenizer.token_to_id("<|im_end|>"), 2);
  EXPECT_EQ(tokenizer.token_to_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(2), "<|im_end|>");
  for (const int32_t id : {-1, 1000000, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer.id_to_token(id), "");
    EXPECT_EQ(tokenizer.token_bytes(id), "");
    EXPECT_FALSE(tokenizer.is_special(id));
  }
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{-5, 2, 99999999}), "<|im_end|>");
  const auto the = tokenizer.token_to_id("\xc4\xa0the");
  ASSERT_TRUE(the);
  EXPECT_EQ(tokenizer.token_bytes(*the), " the");
}

TEST(TokenizerTest, TokenBytesJoinToTheText) {
  for (const char* family : {"gpt2", "llama3", "smollm2", "o200k"}) {
    const Tokenizer tokenizer = load(family);
    for (const std::string& text : hard_strings()) {
      std::string joined;
      for (const int32_t id : tokenizer.encode(text)) joined += tokenizer.token_bytes(id);
      EXPECT_EQ(joined, text) << family;
    }
  }
}

// The normalizer composes characters: all ids of the composed form span the bytes of the original.
TEST(TokenizerTest, SpansThroughNormalisation) {
  const Tokenizer tokenizer = load("qwen2");
  const std::string text = "cafe\xcc\x81 x";
  const Encoding encoding = tokenizer.encode_with_spans(text);
  std::string covered;
  bool composed = false;
  for (const ByteSpan& span : encoding.spans) composed = composed || (span.begin <= 3 && span.end == 6);
  EXPECT_TRUE(composed);
  EXPECT_EQ(encoding.spans.front().begin, 0);
  EXPECT_EQ(encoding.spans.back().end, static_cast<int64_t>(text.size()));
  EXPECT_EQ(tokenizer.decode(encoding.ids), "caf\xc3\xa9 x");
}

TEST(TokenizerTest, NoTokenReachesOverACut) {
  const std::string text = "Answer: H\u00e9llo there";
  for (const char* family : {"gpt2", "llama3", "qwen2", "smollm2"}) {
    const Tokenizer tokenizer = load(family);
    for (const int64_t cut : {int64_t{8}, int64_t{11}}) {
      const Encoding encoded = tokenizer.encode_with_spans(text, {.cuts = {&cut, 1}});
      EXPECT_EQ(tokenizer.decode(encoded.ids), text) << family;
      bool is_border = false;
      for (const ByteSpan& span : encoded.spans) {
        EXPECT_FALSE(span.begin < cut && cut < span.end) << family << ' ' << span.begin;
        is_border = is_border || span.begin == cut;
      }
      EXPECT_TRUE(is_border) << family;
      EXPECT_EQ(tokenizer.encode(text, {.cuts = {&cut, 1}}), encoded.ids) << family;
    }
    const int64_t at_start = 0;
    EXPECT_EQ(tokenizer.encode(text, {.cuts = {&at_start, 1}}), tokenizer.encode(text)) << family;
  }
}

TEST(TokenizerTest, SpansOfBrokenUtf8) {
  const Tokenizer tokenizer = load("smollm2");
  const std::string text = "ab\xe2\x82 c\xff";
  const Encoding encoding = tokenizer.encode_with_spans(text);
  EXPECT_EQ(encoding.ids, tokenizer.encode("ab\xef\xbf\xbd c\xef\xbf\xbd"));
  std::vector<bool> covered(text.size());
  for (const ByteSpan& span : encoding.spans)
    for (int64_t i = span.begin; i < span.end; ++i) covered[static_cast<size_t>(i)] = true;
  EXPECT_THAT(covered, ::testing::Each(true));
  EXPECT_EQ(tokenizer.decode(encoding.ids), "ab\xef\xbf\xbd c\xef\xbf\xbd");
}

TEST(TokenizerTest, SpansOfSpecialTokensAndOfThePostProcessor) {
  const Tokenizer tokenizer = load("llama3");
  const Encoding encoding = tokenizer.encode_with_spans("<|eot_id|>", {.add_special_tokens = true});
  ASSERT_EQ(encoding.ids.size(), 2u);
  EXPECT_EQ(encoding.spans[0].begin, 0);
  EXPECT_EQ(encoding.spans[0].end, 0);
  EXPECT_EQ(encoding.spans[1].begin, 0);
  EXPECT_EQ(encoding.spans[1].end, 10);
}

TEST(TokenizerTest, ManyThreadsShareOneTokenizer) {
  const Tokenizer tokenizer = load("qwen2");
  const auto texts = hard_strings();
  std::vector<std::vector<int32_t>> wanted;
  for (const auto& text : texts) wanted.push_back(tokenizer.encode(text));
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round)
        for (size_t i = 0; i < texts.size(); ++i) wrong += tokenizer.encode(texts[i]) != wanted[i];
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// A megabyte of one character is a single word, or a million of them; both are encoded quickly.
TEST(TokenizerTest, LongRuns) {
  for (const char* family : {"smollm2", "qwen2", "o200k", "llama2"}) {
    const Tokenizer tokenizer = load(family);
    for (const char* unit : {"a", " ", "\n", "1", "'", "\xc3\xa9", "<", " \n"}) {
      std::string text;
      while (text.size() < (size_t{1} << 18)) text += unit;
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << family << " '" << unit << "'";
    }
  }
}

TEST(TokenizerTest, ARunawayExpressionIsStopped) {
  const Regex regex("(a+)+$|(a|a)*b", "test");
  const std::string text(5000, 'a');
  int matches = 0;
  const auto run = [&] { regex.for_each_match(text + "c", [&](size_t, size_t) { ++matches; }); };
  try {
    run();
    FAIL() << "the expression ended by itself with " << matches << " matches";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("E-MODEL-TOKENIZER-REGEX-LIMIT"));
  }
}

std::vector<std::string> pieces(const Splitter& splitter, const std::string& text) {
  std::vector<std::string> out;
  splitter.split(text, [&](size_t begin, size_t end) { out.push_back(text.substr(begin, end - begin)); });
  return out;
}

TEST(SplitterTest, Behaviors) {
  const auto split = [](SplitBehavior behavior, bool invert = false) {
    return pieces(*make_split("-", false, behavior, invert, "test"), "The-final--countdown");
  };
  EXPECT_THAT(split(SplitBehavior::Removed), ElementsAre("The", "final", "countdown"));
  EXPECT_THAT(split(SplitBehavior::Isolated), ElementsAre("The", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(split(SplitBehavior::MergedWithPrevious), ElementsAre("The-", "final-", "-", "countdown"));
  EXPECT_THAT(split(SplitBehavior::MergedWithNext), ElementsAre("The", "-final", "-", "-countdown"));
  EXPECT_THAT(split(SplitBehavior::Contiguous), ElementsAre("The", "-", "final", "--", "countdown"));
  EXPECT_THAT(split(SplitBehavior::Removed, true), ElementsAre("-", "-", "-"));
}

TEST(SplitterTest, WhitespaceAndDigits) {
  EXPECT_THAT(pieces(*make_whitespace(), " Hey, you\xc2\xa0there_2! "),
              ElementsAre("Hey", ",", "you", "there_2", "!"));
  EXPECT_THAT(pieces(*make_whitespace_split(), " Hey, you\n"), ElementsAre("Hey,", "you"));
  EXPECT_THAT(pieces(*make_digits(false), "a12b\xd9\xa3"), ElementsAre("a", "12", "b", "\xd9\xa3"));
  EXPECT_THAT(pieces(*make_digits(true), "a12"), ElementsAre("a", "1", "2"));
}

// The scanners split texts like the regular expressions that they replace.
TEST(SplitterTest, ScannersEqualTheirExpressions) {
  const auto strings = read_json(kFolder + "strings.json");
  for (const KnownPattern pattern : {KnownPattern::Gpt2, KnownPattern::Llama3, KnownPattern::Qwen2}) {
    const Regex regex(known_pattern_regex(pattern), "test");
    for (const char* list : {"strings", "random"}) {
      for (const auto& item : strings[list]) {
        const std::string text = item.get<std::string>();
        std::vector<size_t> scanned, matched;
        scan_pattern(pattern, text, [&](size_t, size_t end) { scanned.push_back(end); });
        regex.for_each_match(text, [&](size_t, size_t end) { matched.push_back(end); });
        EXPECT_EQ(scanned, matched) << item.dump(-1, ' ', true);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::text

// Reads tiktoken's files and tekken.json.
#include <algorithm>
#include <charconv>

#include <nlohmann/json.hpp>

#include "tessera/core/base64.h"
#include "tessera/core/error.h"
#include "tessera/text/tokenizer/byte_ranks.h"
#include "tessera/text/tokenizer/json_field.h"
#include "tessera/text/tokenizer/patterns.h"
#include "tessera/text/tokenizer/tokenizer_json.h"
#include "tessera/text/tokenizer/vocabulary.h"

namespace tessera::text {
namespace {

constexpr const char* kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kEndOfText = "<|endoftext|>";

// A family whose files are known. `specials` are (id, text).
struct RanksFamily {
  const char* stem;  // the name of the file without ".tiktoken"
  std::string pattern;
  std::vector<std::pair<int64_t, std::string>> specials;
  std::string bos, eos;
  bool adds_bos = false;
};

std::string numbered(const char* before, int64_t number) { return before + std::to_string(number) + "|>"; }

RanksFamily qwen() {
  RanksFamily out{"qwen", known_pattern_regex(KnownPattern::Qwen2), {}, "", kEndOfText};
  out.specials = {{151643, kEndOfText}, {151644, "<|im_start|>"}, {151645, "<|im_end|>"}};
  for (int64_t i = 0; i < 205; ++i) out.specials.emplace_back(151646 + i, numbered("<|extra_", i));
  return out;
}

// The list of Llama 3 is that of its first version; tokenizer_config.json may rename the reserved ones.
RanksFamily llama3() {
  RanksFamily out{
      "tokenizer", known_pattern_regex(KnownPattern::Llama3), {}, "<|begin_of_text|>", "<|end_of_text|>"};
  out.adds_bos = true;
  const char* names[] = {"<|begin_of_text|>",   "<|end_of_text|>",   nullptr, nullptr,     nullptr, nullptr,
                         "<|start_header_id|>", "<|end_header_id|>", nullptr, "<|eot_id|>"};
  int64_t reserved = 0;
  for (int64_t i = 0; i < 256; ++i) {
    const char* name = i < 10 ? names[i] : nullptr;
    out.specials.emplace_back(128000 + i, name ? name : numbered("<|reserved_special_token_", reserved++));
  }
  return out;
}

std::vector<RanksFamily> families() {
  const std::string gpt2 = known_pattern_regex(KnownPattern::Gpt2);
  const std::string cl100k = known_pattern_regex(KnownPattern::Llama3);
  std::vector<RanksFamily> out = {
      {"r50k_base", gpt2, {{50256, kEndOfText}}, "", kEndOfText},
      {"p50k_base", gpt2, {{50256, kEndOfText}}, "", kEndOfText},
      {"gpt2", gpt2, {{50256, kEndOfText}}, "", kEndOfText},
      {"multilingual", gpt2, {{50257, kEndOfText}}, "", kEndOfText},
      {"cl100k_base",
       cl100k,
       {{100257, kEndOfText},
        {100258, "<|fim_prefix|>"},
        {100259, "<|fim_middle|>"},
        {100260, "<|fim_suffix|>"},
        {100276, "<|endofprompt|>"}},
       "",
       kEndOfText},
      {"o200k_base", kO200k, {{199999, kEndOfText}, {200018, "<|endofprompt|>"}}, "", kEndOfText}};
  out.push_back(qwen());
  out.push_back(llama3());
  return out;
}

std::vector<std::string> read_lines_of_ranks(std::string_view bytes, const std::string& place) {
  std::vector<std::string> tokens;
  int64_t number = 0;
  while (!bytes.empty()) {
    std::string_view line = bytes.substr(0, bytes.find('\n'));
    bytes.remove_prefix(std::min(bytes.size(), line.size() + 1));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    const auto token = space != std::string_view::npos ? from_base64(line.substr(0, space)) : std::nullopt;
    int64_t rank = -1;
    if (token) std::from_chars(line.data() + space + 1, line.data() + line.size(), rank);
    if (!token || rank < 0 || rank >= kMaxTokenId)
      throw Error(ErrorKind::Model, "TOKENIZER-RANKS", "a line is not a token in base64 and its rank")
          .at(place, number)
          .need("lines such as 'IQ== 0'")
          .hint("the file may be cut off, or of another format");
    if (static_cast<size_t>(rank) >= tokens.size()) tokens.resize(static_cast<size_t>(rank) + 1);
    tokens[static_cast<size_t>(rank)] = *token;
  }
  return tokens;
}

// The special tokens of a tekken file that does not list them, by rank.
constexpr const char* kOldTekkenSpecials[] = {"<unk>",
                                              "<s>",
                                              "</s>",
                                              "[INST]",
                                              "[/INST]",
                                              "[AVAILABLE_TOOLS]",
                                              "[/AVAILABLE_TOOLS]",
                                              "[TOOL_RESULTS]",
                                              "[/TOOL_RESULTS]",
                                              "[TOOL_CALLS]",
                                              "[IMG]",
                                              "<pad>",
                                              "[IMG_BREAK]",
                                              "[IMG_END]",
                                              "[PREFIX]",
                                              "[MIDDLE]",
                                              "[SUFFIX]",
                                              "[SYSTEM_PROMPT]",
                                              "[/SYSTEM_PROMPT]",
                                              "[TOOL_CONTENT]"};

}  // namespace

ByteRanks read_tiktoken(std::string_view bytes, const std::string& name, const FolderHints& hints,
                        const std::string& place) {
  std::string stem = name.substr(0, name.rfind('.'));
  if (hints.is_class("QWenTokenizer")) stem = "qwen";
  std::string known;
  for (RanksFamily& family : families()) {
    if (stem != family.stem) {
      known += (known.empty() ? "" : ", ") + std::string(family.stem);
      continue;
    }
    ByteRanks out;
    out.tokens = read_lines_of_ranks(bytes, place);
    out.pattern = std::move(family.pattern);
    out.bos = family.bos;
    out.eos = family.eos;
    out.adds_bos = family.adds_bos;
    for (auto& [id, text] : family.specials) {
      if (static_cast<size_t>(id) < out.tokens.size() && out.tokens[static_cast<size_t>(id)].empty()) {
        // A gap in the ranks holds the special token: the ranks behind it count on.
        out.specials_in_gaps.emplace_back(id, text);
        continue;
      }
      const int64_t index = id - static_cast<int64_t>(out.tokens.size());
      if (index < 0)
        throw Error(ErrorKind::Model, "TOKENIZER-RANKS", "the file has more tokens than its family")
            .in(place)
            .got(std::to_string(out.tokens.size()))
            .need("at most " + std::to_string(id) + " for '" + family.stem + "'");
      if (static_cast<size_t>(index) >= out.specials.size())
        out.specials.resize(static_cast<size_t>(index) + 1);
      out.specials[static_cast<size_t>(index)] = text;
    }
    return out;
  }
  throw Error(ErrorKind::Model, "TOKENIZER-RANKS",
              "a tiktoken file holds neither the pattern that cuts words nor the special tokens, and this "
              "family is not known")
      .in(place)
      .need("one of " + known)
      .hint("save the tokenizer as tokenizer.json with Transformers, and use that folder");
}

ByteRanks read_tekken(const std::string& bytes, const std::string& place) {
  const TokenizerDocument document = parse_tokenizer_document(bytes, place);
  const JsonField root(*document.root, place);
  const JsonField config = root.at("config");
  const auto num_specials = static_cast<size_t>(config.at("default_num_special_tokens").as_int(kMaxTokenId));
  const auto size = static_cast<size_t>(config.at("default_vocab_size").as_int(kMaxTokenId));
  if (size <= num_specials)
    throw config.error("TOKENIZER-RANKS", "default_vocab_size leaves no room for tokens");

  ByteRanks out;
  out.specials_first = true;
  out.pattern = config.at("pattern").as_string();
  for (size_t i = 0; i < num_specials; ++i) out.specials.push_back("<SPECIAL_" + std::to_string(i) + ">");
  const auto set = [&](const JsonField& where, size_t rank, const std::string& text) {
    if (rank >= num_specials) throw where.error("TOKENIZER-RANKS", "a special token has too large a rank");
    out.specials[rank] = text;
  };
  if (root.at("special_tokens").is_null()) {
    for (size_t i = 0; i < std::size(kOldTekkenSpecials); ++i) set(config, i, kOldTekkenSpecials[i]);
  } else {
    for (const JsonField& item : root.at("special_tokens").items())
      set(item, static_cast<size_t>(item.at("rank").as_int(kMaxTokenId)), item.at("token_str").as_string());
  }
  out.tokens.resize(size - num_specials);
  size_t num_found = 0;
  for (const JsonField& item : root.at("vocab").items()) {
    const auto rank = static_cast<size_t>(item.at("rank").as_int(kMaxTokenId));
    if (rank >= out.tokens.size()) continue;
    auto token = from_base64(item.at("token_bytes").as_string());
    if (!token || token->empty() || !out.tokens[rank].empty())
      throw item.error("TOKENIZER-RANKS", "a token is not base64, or its rank is given twice");
    out.tokens[rank] = std::move(*token);
    ++num_found;
  }
  if (num_found != out.tokens.size())
    throw root.at("vocab")
        .error("TOKENIZER-RANKS", "the vocabulary has gaps")
        .got(std::to_string(num_found) + " tokens")
        .need(std::to_string(out.tokens.size()));
  const auto role = [&](const char* token) -> std::string {
    return std::ranges::find(out.specials, token) != out.specials.end() ? token : "";
  };
  out.bos = role("<s>");
  out.eos = role("</s>");
  out.unk = role("<unk>");
  out.pad = role("<pad>");
  out.adds_bos = true;
  return out;
}

}  // namespace tessera::text

#include "tessera/text/tokenizer/vocabulary_files.h"

#include <algorithm>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"
#include "tessera/text/tokenizer/patterns.h"
#include "tessera/text/tokenizer/vocabulary.h"

namespace tessera::text {
namespace {

using nlohmann::ordered_json;

constexpr const char* kSaveHint =
    "save the tokenizer as tokenizer.json with Transformers (AutoTokenizer.from_pretrained(...)"
    ".save_pretrained(...)), and use that folder";

// Calls `sink` with the number, from 1, and the text of every line.
template <class Sink>
void for_each_line(std::string_view bytes, Sink sink) {
  for (int64_t number = 1; !bytes.empty(); ++number) {
    std::string_view line = bytes.substr(0, bytes.find('\n'));
    bytes.remove_prefix(std::min(bytes.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    sink(number, line);
  }
}

ordered_json or_null(std::optional<bool> flag) { return flag ? ordered_json(*flag) : ordered_json(); }

using Ids = std::unordered_map<std::string, int64_t>;

// Adds the tokens that the vocabulary has to "added_tokens", by id.
ordered_json added_of(const Ids& ids, std::initializer_list<const char*> tokens) {
  std::vector<std::pair<int64_t, std::string>> known;
  for (const char* token : tokens)
    if (const auto id = ids.find(token); id != ids.end()) known.emplace_back(id->second, token);
  std::sort(known.begin(), known.end());
  ordered_json added = ordered_json::array();
  for (const auto& [id, token] : known) added.push_back(added_token_entry(id, token, true));
  return added;
}

// The contents of a vocab.json.
struct VocabJson {
  std::vector<std::string> tokens;  // by id; "" where no token has the id
  Ids ids;
};

VocabJson read_vocab_json(const std::string& text, const std::string& place) {
  const auto parsed = nlohmann::json::parse(text, nullptr, false);
  if (!parsed.is_object())
    throw Error(ErrorKind::Model, "TOKENIZER-VOCAB", "vocab.json is not an object of ids").in(place);
  VocabJson out;
  for (const auto& [token, id] : parsed.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(kMaxTokenId))
      throw Error(ErrorKind::Model, "TOKENIZER-VOCAB", "an id is not a whole number in range")
          .in(place)
          .got("token '" + token + "'");
    const auto index = id.get<size_t>();
    if (index >= out.tokens.size()) out.tokens.resize(index + 1);
    if (!out.tokens[index].empty())
      throw Error(ErrorKind::Model, "TOKENIZER-VOCAB", "id " + std::to_string(index) + " is given twice")
          .in(place);
    out.tokens[index] = token;
    out.ids[token] = static_cast<int64_t>(index);
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> read_merges(std::string_view merges,
                                                             const std::string& place) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for_each_line(merges, [&](int64_t number, std::string_view line) {
    if (line.starts_with("#version") || line.empty()) return;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || valid_utf8_prefix(line) != line.size())
      throw Error(ErrorKind::Model, "TOKENIZER-MERGES", "a line of merges.txt is not two tokens")
          .in(place + ": merges.txt, line " + std::to_string(number));
    pairs.emplace_back(line.substr(0, space), line.substr(space + 1));
  });
  return pairs;
}

// The fields of a tokenizer.json that depend on the kind of a tokenizer with merges, and its roles.
struct KindSteps {
  ordered_json added, normalizer, pre_tokenizer, post_processor, decoder;
  std::map<std::string, std::string> roles;
};

ordered_json added_of_merges(const Ids& ids) {
  return added_of(ids, {"<s>", "<pad>", "</s>", "<unk>", "<|startoftext|>", "<|endoftext|>"});
}

// Returns a RobertaProcessing, which puts `cls` before a text and `sep` behind it.
ordered_json roberta_step(const Ids& ids, const char* cls, const char* sep, bool trims, bool adds_space) {
  return {{"type", "RobertaProcessing"},
          {"sep", {sep, ids.at(sep)}},
          {"cls", {cls, ids.at(cls)}},
          {"trim_offsets", trims},
          {"add_prefix_space", adds_space}};
}

KindSteps clip_steps(const Ids& ids, const std::string& place) {
  constexpr const char *kBegin = "<|startoftext|>", *kEnd = "<|endoftext|>";
  for (const char* token : {kBegin, kEnd})
    if (!ids.contains(token))
      throw Error(ErrorKind::Model, "TOKENIZER-VOCAB", "a CLIP tokenizer has a token that is missing here")
          .in(place)
          .need(token);
  ordered_json words = split_step(R"('s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)");
  words["behavior"] = "Removed";
  words["invert"] = true;
  return {.added = added_of_merges(ids),
          .normalizer = sequence_step(
              "normalizers", {{{"type", "NFC"}},
                              {{"type", "Replace"}, {"pattern", {{"Regex", "\\s+"}}}, {"content", " "}},
                              {{"type", "Lowercase"}}}),
          .pre_tokenizer = sequence_step("pretokenizers", {words, byte_level_step(false, true)}),
          .post_processor = roberta_step(ids, kBegin, kEnd, false, false),
          .decoder = sequence_step(
              "decoders", {{{"type", "Replace"}, {"pattern", {{"String", "</w>"}}}, {"content", " "}},
                           byte_level_step(true, true)}),
          .roles = {{"bos_token", kBegin}, {"eos_token", kEnd}, {"unk_token", kEnd}, {"pad_token", kEnd}}};
}

bool is_roberta(const Ids& ids, const FolderHints& hints) {
  return ids.contains("<s>") && ids.contains("</s>") && ids.contains("<mask>") &&
         (hints.tokenizer_class.empty() || hints.is_class("RobertaTokenizer") ||
          hints.is_class("BartTokenizer") || hints.is_class("LongformerTokenizer"));
}

KindSteps roberta_steps(const Ids& ids, bool adds_space) {
  KindSteps steps = {.added = added_of_merges(ids),
                     .normalizer = {},
                     .pre_tokenizer = byte_level_step(adds_space, true),
                     .post_processor = roberta_step(ids, "<s>", "</s>", true, adds_space),
                     .decoder = byte_level_step(true, true),
                     .roles = {{"bos_token", "<s>"},
                               {"eos_token", "</s>"},
                               {"cls_token", "<s>"},
                               {"sep_token", "</s>"},
                               {"mask_token", "<mask>"}}};
  ordered_json mask = added_token_entry(ids.at("<mask>"), "<mask>", true);
  mask["lstrip"] = true;
  steps.added.push_back(mask);
  if (ids.contains("<pad>")) steps.roles["pad_token"] = "<pad>";
  if (ids.contains("<unk>")) steps.roles["unk_token"] = "<unk>";
  return steps;
}

// Returns the steps of GPT-2's tokenizer, and of Qwen's, which cuts words by another expression.
KindSteps byte_level_steps(const Ids& ids, const FolderHints& hints, bool adds_space) {
  KindSteps steps = {.added = added_of_merges(ids),
                     .normalizer = {},
                     .pre_tokenizer = byte_level_step(adds_space, true),
                     .post_processor = byte_level_step(true, true),
                     .decoder = byte_level_step(true, true),
                     .roles = {}};
  if (hints.is_class("Qwen2Tokenizer")) {
    steps.normalizer = {{"type", "NFC"}};
    steps.pre_tokenizer = sequence_step(
        "pretokenizers",
        {split_step(known_pattern_regex(KnownPattern::Qwen2)), byte_level_step(adds_space, false)});
  } else if (constexpr const char* kEnd = "<|endoftext|>"; ids.contains(kEnd)) {
    steps.roles = {{"bos_token", kEnd}, {"eos_token", kEnd}, {"unk_token", kEnd}};
  }
  return steps;
}

}  // namespace

ConvertedTokenizer convert_vocab_txt(std::string_view bytes, const FolderHints& hints,
                                     const std::string& place) {
  std::vector<std::string> vocabulary;
  Ids ids;
  for_each_line(bytes, [&](int64_t number, std::string_view line) {
    const auto fail = [&](const std::string& what) {
      return Error(ErrorKind::Model, "TOKENIZER-VOCAB", what).at(place, number);
    };
    if (valid_utf8_prefix(line) != line.size()) throw fail("a token is not valid UTF-8");
    if (std::ssize(vocabulary) >= kMaxTokenId) throw fail("too many tokens");
    // The later line of a token given twice counts.
    const auto [entry, is_new] = ids.emplace(line, std::ssize(vocabulary));
    if (!is_new) {
      vocabulary[static_cast<size_t>(entry->second)].clear();
      entry->second = std::ssize(vocabulary);
    }
    vocabulary.emplace_back(line);
  });
  for (const char* token : {"[UNK]", "[CLS]", "[SEP]"}) {
    if (ids.contains(token)) continue;
    throw Error(ErrorKind::Model, "TOKENIZER-VOCAB", "this vocab.txt is not that of a BERT tokenizer")
        .in(place)
        .got("no token " + std::string(token))
        .need("the tokens [UNK], [CLS] and [SEP]")
        .hint(kSaveHint);
  }
  const ordered_json normalizer = {
      {"type", "BertNormalizer"},
      {"clean_text", true},
      {"handle_chinese_chars", hints.flag("tokenize_chinese_chars").value_or(true)},
      {"strip_accents", or_null(hints.flag("strip_accents"))},
      {"lowercase", hints.flag("do_lower_case").value_or(true)}};
  const EndToken cls = {"[CLS]", ids.at("[CLS]")}, sep = {"[SEP]", ids.at("[SEP]")};
  ConvertedTokenizer out;
  out.document =
      document_text(document_head(added_of(ids, {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}), normalizer,
                                  {{"type", "BertPreTokenizer"}}, template_step({cls}, {sep}, {sep}, true),
                                  {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}),
                    {{"type", "WordPiece"},
                     {"unk_token", "[UNK]"},
                     {"continuing_subword_prefix", "##"},
                     {"max_input_chars_per_word", 100}},
                    vocabulary, nullptr);
  for (const auto& [role, token] :
       {std::pair("unk_token", "[UNK]"), std::pair("cls_token", "[CLS]"), std::pair("sep_token", "[SEP]"),
        std::pair("pad_token", "[PAD]"), std::pair("mask_token", "[MASK]")})
    if (ids.contains(token)) out.roles[role] = token;
  return out;
}

ConvertedTokenizer convert_vocab_merges(const std::string& vocab, std::string_view merges,
                                        const FolderHints& hints, const std::string& place) {
  const VocabJson vocabulary = read_vocab_json(vocab, place);
  const Ids& ids = vocabulary.ids;
  const auto pairs = read_merges(merges, place);
  // "G with a dot" spells a space in the byte-level alphabet.
  const bool is_byte_level =
      std::ranges::any_of(ids, [](const auto& entry) { return entry.first.starts_with("\u0120"); });
  const bool has_suffix =
      std::ranges::any_of(ids, [](const auto& entry) { return entry.first.ends_with("</w>"); });
  const bool is_clip = hints.is_class("CLIPTokenizer");
  if ((has_suffix && !is_clip) || (!is_byte_level && !is_clip))
    throw Error(
        ErrorKind::Model, "TOKENIZER-VOCAB",
        "vocab.json and merges.txt do not hold a byte-level tokenizer, and what else they hold is known "
        "for CLIP alone")
        .in(place)
        .got(hints.tokenizer_class.empty() ? "no tokenizer_class" : hints.tokenizer_class)
        .hint(kSaveHint);

  const bool adds_space = hints.flag("add_prefix_space").value_or(false);
  KindSteps steps = is_clip                  ? clip_steps(ids, place)
                    : is_roberta(ids, hints) ? roberta_steps(ids, adds_space)
                                             : byte_level_steps(ids, hints, adds_space);
  ConvertedTokenizer out;
  out.document = document_text(
      document_head(steps.added, steps.normalizer, steps.pre_tokenizer, steps.post_processor, steps.decoder),
      bpe_model(nullptr, is_clip ? ordered_json("</w>") : ordered_json(), false, false), vocabulary.tokens,
      &pairs);
  out.roles = std::move(steps.roles);
  return out;
}

}  // namespace tessera::text

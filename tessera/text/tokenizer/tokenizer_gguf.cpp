#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/core/utf8.h"
#include "tessera/io/gguf.h"
#include "tessera/text/tokenizer/document_text.h"
#include "tessera/text/tokenizer/gguf_encoders.h"
#include "tessera/text/tokenizer/gguf_families.h"
#include "tessera/text/tokenizer/sentencepiece_merges.h"
#include "tessera/text/tokenizer/tokenizer_impl.h"

namespace tessera::text {
namespace {

using nlohmann::ordered_json;

using Family = GgufFamily;

// Far above the longest token of honest models. A limit is needed since the ways to cut a token, and so the
// work, grow with the square of its length.
constexpr size_t kMaxTokenBytes = 1 << 10;

class GgufConverter {
 public:
  explicit GgufConverter(const io::GgufFile& file) : file_(file) {
    const std::string model = file.get_string("tokenizer.ggml.model");
    if (model != "gpt2" && model != "llama")
      unsupported("tokenizer.ggml.model", model, "'gpt2', 'llama', 'bert' or 't5'");
    is_sentencepiece_ = model == "llama";
    family_ = is_sentencepiece_ ? &kGgufSentencePiece : find_family();

    tokens_ = file.get_strings("tokenizer.ggml.tokens");
    types_.assign(tokens_.size(), kNormal);
    if (file.contains("tokenizer.ggml.token_type")) types_ = file.get_ints("tokenizer.ggml.token_type");
    if (types_.size() != tokens_.size())
      throw fail("tokenizer.ggml.token_type", "its length is not that of tokenizer.ggml.tokens")
          .got(std::to_string(types_.size()))
          .need(std::to_string(tokens_.size()));
    if (static_cast<int64_t>(tokens_.size()) > kMaxTokenId)
      throw fail("tokenizer.ggml.tokens", "too many tokens");
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const std::string name = "token " + std::to_string(i);
      if (tokens_[i].size() > kMaxTokenBytes)
        throw fail("tokenizer.ggml.tokens", name + " is too long", "TOKENIZER-LIMIT")
            .got(std::to_string(tokens_[i].size()) + " bytes")
            .need("at most " + std::to_string(kMaxTokenBytes));
      if (valid_utf8_prefix(tokens_[i]) != tokens_[i].size())
        throw fail("tokenizer.ggml.tokens", name + " is not valid UTF-8");
    }

    const char* keys[] = {"bos_token_id", "eos_token_id", "padding_token_id", "unknown_token_id"};
    // Ids that the format assumes if a SentencePiece model gives none.
    const std::array<std::optional<int32_t>, 4> usual = {1, 2, std::nullopt, 0};
    for (size_t role = 0; role < roles.size(); ++role) {
      roles[role] = read_id(std::string("tokenizer.ggml.") + keys[role]);
      if (is_sentencepiece_ && !roles[role] && usual[role] && tokens_.size() > 2) roles[role] = usual[role];
      // A token with a role is never plain text, so it counts as a control token.
      if (roles[role]) types_[static_cast<size_t>(*roles[role])] = kControl;
    }
    if (const auto end_of_turn = read_id("tokenizer.ggml.eot_token_id")) stop_ids.push_back(*end_of_turn);
  }

  // Returns the same tokenizer as a tokenizer.json. It is written piece by piece, since the vocabulary is
  // large.
  std::string tokenizer_json() const {
    const ordered_json head =
        document_head(added_tokens(), normalizer(), pre_tokenizer(), post_processor(), decoder());
    std::string out = head.dump(2);
    out.erase(out.size() - 2);  // removes the closing "\n}"
    const ordered_json unk = is_sentencepiece_ && roles[3] ? ordered_json(token(*roles[3])) : ordered_json();
    const ordered_json model = bpe_model(unk, nullptr, is_sentencepiece_, family_->ignore_merges);
    out += ",\n  \"model\": " + model.dump(2);
    out.erase(out.size() - 2);
    out += ",\n    \"vocab\": {";
    // In this format rows of padding at the end of the embedding have tokens; tokenizer.json has none for
    // them.
    size_t count = tokens_.size();
    while (count > 0 && types_[count - 1] == kUnused) --count;
    for (size_t i = 0; i < count; ++i) {
      out += i == 0 ? "\n      " : ",\n      ";
      out += quoted(tokens_[i]) + ": " + std::to_string(i);
    }
    out += "\n    },\n    \"merges\": [";
    size_t number = 0;
    for (const ordered_json& merge : merges()) {
      out += number++ == 0 ? "\n      " : ",\n      ";
      out += merge.dump();
    }
    out += "\n    ]\n  }\n}\n";
    return out;
  }

  std::string tokenizer_config_json() const {
    ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                           {"clean_up_tokenization_spaces", false}};
    for (size_t role = 0; role < roles.size(); ++role)
      if (roles[role]) config[kRoleNames[role]] = token(*roles[role]);
    const std::string architecture = file_.get_string("general.architecture", "");
    const uint64_t context = file_.get_uint(architecture + ".context_length", 0);
    if (context > 0) config["model_max_length"] = context;
    return config.dump(2) + "\n";
  }

  // Returns the templates by name. The keys of all but the default carry the name; "tokenizer.chat_templates"
  // lists these names, and tells nothing that the keys do not.
  std::map<std::string, std::string> chat_templates() const {
    constexpr std::string_view kKey = "tokenizer.chat_template", kNamed = "tokenizer.chat_template.";
    std::map<std::string, std::string> templates;
    for (const auto& [key, value] : file_.metadata()) {
      if (key != kKey && !key.starts_with(kNamed)) continue;
      std::string text = file_.get_string(key);
      if (valid_utf8_prefix(text) != text.size()) throw fail(key, "it is not valid UTF-8");
      if (!text.empty()) templates[key == kKey ? kDefaultTemplate : key.substr(kNamed.size())] = text;
    }
    return templates;
  }

  std::array<std::optional<int32_t>, 4> roles;
  std::vector<int32_t> stop_ids;

 private:
  Error fail(const std::string& key, const std::string& what, const char* code = "TOKENIZER-GGUF") const {
    Error error(ErrorKind::Model, code, what);
    error.in(file_.path() + ": key '" + key + "'");
    return error;
  }
  [[noreturn]] void unsupported(const std::string& key, const std::string& got,
                                const std::string& need) const {
    throw fail(key, "this tokenizer is not supported").got("'" + got + "'").need(need);
  }

  const Family* find_family() const {
    const std::string pre = file_.get_string("tokenizer.ggml.pre", "gpt-2");
    std::vector<std::string> names;
    for (const Family& family : kGgufFamilies) {
      if (pre == family.name) return &family;
      names.emplace_back(family.name);
    }
    unsupported("tokenizer.ggml.pre", pre, "one of " + join(names, ", "));
  }

  const std::string& token(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }

  std::optional<int32_t> read_id(const std::string& key) const {
    if (!file_.contains(key)) return std::nullopt;
    const int64_t id = file_.get_int(key);
    if (id >= 0 && id < std::ssize(tokens_)) return static_cast<int32_t>(id);
    log::warn(file_.path() + ": key '" + key + "': no token has the id " + std::to_string(id) +
              ", so it is ignored; the vocabulary has ids below " + std::to_string(tokens_.size()));
    return std::nullopt;
  }

  static std::string quoted(const std::string& text) { return ordered_json(text).dump(); }

  static ordered_json byte_level(bool prefix, bool use_regex) {
    return {{"type", "ByteLevel"},
            {"add_prefix_space", prefix},
            {"trim_offsets", true},
            {"use_regex", use_regex}};
  }

  ordered_json added_tokens() const {
    ordered_json added = ordered_json::array();
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const bool special = types_[i] == kControl || types_[i] == kUnknown;
      if (!special && types_[i] != kUserDefined) continue;
      added.push_back({{"id", i},
                       {"content", tokens_[i]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", special}});
    }
    return added;
  }

  // Returns the merges in the order of their ranks, each as one string or as a pair.
  std::vector<ordered_json> merges() const {
    std::vector<ordered_json> out;
    if (is_sentencepiece_) {
      for (auto& [left, right] : sentencepiece_merges(pieces()))
        out.push_back(ordered_json::array({std::move(left), std::move(right)}));
      return out;
    }
    for (const std::string& merge : file_.get_strings("tokenizer.ggml.merges")) {
      if (valid_utf8_prefix(merge) != merge.size())
        throw fail("tokenizer.ggml.merges", "merge " + std::to_string(out.size()) + " is not valid UTF-8");
      out.emplace_back(merge);
    }
    return out;
  }

  std::vector<SentencePiece> pieces() const {
    const std::vector<double> scores = file_.get_floats("tokenizer.ggml.scores");
    if (scores.size() != tokens_.size())
      throw fail("tokenizer.ggml.scores", "its length is not that of tokenizer.ggml.tokens")
          .got(std::to_string(scores.size()))
          .need(std::to_string(tokens_.size()));
    std::vector<SentencePiece> out;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (!std::isfinite(scores[i]))
        throw fail("tokenizer.ggml.scores", "the score of token " + std::to_string(i) + " is not finite");
      const bool merges = types_[i] == kNormal || types_[i] == kUserDefined;
      out.push_back({tokens_[i], static_cast<float>(scores[i]), merges});
    }
    return out;
  }

  // Returns whether a space is put before the text, as SentencePiece does unless the file says no.
  bool has_space_prefix() const {
    return is_sentencepiece_ && file_.get_bool("tokenizer.ggml.add_space_prefix", true);
  }

  ordered_json normalizer() const {
    if (family_->nfc) return {{"type", "NFC"}};
    if (!is_sentencepiece_) return {};
    ordered_json steps = ordered_json::array();
    if (has_space_prefix()) steps.push_back({{"type", "Prepend"}, {"prepend", kSpaceSign}});
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceSign}});
    return {{"type", "Sequence"}, {"normalizers", steps}};
  }

  ordered_json decoder() const {
    if (!is_sentencepiece_) return byte_level(true, true);
    ordered_json steps = ordered_json::array(
        {ordered_json{{"type", "Replace"}, {"pattern", {{"String", kSpaceSign}}}, {"content", " "}},
         ordered_json{{"type", "ByteFallback"}}, ordered_json{{"type", "Fuse"}}});
    if (has_space_prefix()) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    return {{"type", "Sequence"}, {"decoders", steps}};
  }

  ordered_json pre_tokenizer() const {
    if (is_sentencepiece_) return {};
    if (family_->splits != nullptr) {
      ordered_json steps = ordered_json::array();
      for (const char* const* regex = family_->splits; *regex != nullptr; ++regex)
        steps.push_back({{"type", "Split"},
                         {"pattern", {{"Regex", *regex}}},
                         {"behavior", "Isolated"},
                         {"invert", false}});
      steps.push_back(byte_level(false, false));
      return {{"type", "Sequence"}, {"pretokenizers", steps}};
    }
    if (family_->individual_digits)
      return {{"type", "Sequence"},
              {"pretokenizers",
               ordered_json::array({ordered_json{{"type", "Digits"}, {"individual_digits", true}},
                                    byte_level(false, true)})}};
    if (family_->pattern == KnownPattern::Gpt2) return byte_level(false, true);
    const ordered_json split = {{"type", "Split"},
                                {"pattern", {{"Regex", known_pattern_regex(family_->pattern)}}},
                                {"behavior", "Isolated"},
                                {"invert", false}};
    return {{"type", "Sequence"}, {"pretokenizers", ordered_json::array({split, byte_level(false, false)})}};
  }

  ordered_json post_processor() const {
    const bool bos = file_.get_bool("tokenizer.ggml.add_bos_token", family_->add_bos && roles[0].has_value());
    const bool eos = file_.get_bool("tokenizer.ggml.add_eos_token", false);
    if (!bos && !eos) return is_sentencepiece_ ? ordered_json() : byte_level(true, true);
    ordered_json single = ordered_json::array(), pair = ordered_json::array(),
                 tokens = ordered_json::object();
    const auto special = [&](ordered_json& pieces, size_t role, int type_id) {
      if (!roles[role])
        throw fail(role == 0 ? "tokenizer.ggml.bos_token_id" : "tokenizer.ggml.eos_token_id",
                   "missing, and texts are to be closed by it");
      const std::string& text = token(*roles[role]);
      pieces.push_back({{"SpecialToken", {{"id", text}, {"type_id", type_id}}}});
      tokens[text] = {{"id", text},
                      {"ids", ordered_json::array({*roles[role]})},
                      {"tokens", ordered_json::array({text})}};
    };
    const auto sequence = [&](ordered_json& pieces, const char* name, int type_id) {
      if (bos) special(pieces, 0, type_id);
      pieces.push_back({{"Sequence", {{"id", name}, {"type_id", type_id}}}});
      if (eos) special(pieces, 1, type_id);
    };
    sequence(single, "A", 0);
    sequence(pair, "A", 0);
    sequence(pair, "B", 1);
    return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
  }

  const io::GgufFile& file_;
  const Family* family_ = nullptr;
  bool is_sentencepiece_ = false;
  std::vector<std::string> tokens_;
  std::vector<int64_t> types_;
};

}  // namespace

Tokenizer Tokenizer::from_gguf(const io::GgufFile& file) {
  const std::string kind = file.get_string("tokenizer.ggml.model");
  if (kind == "bert" || kind == "t5") {
    ConvertedTokenizer converted = kind == "bert" ? convert_gguf_bert(file) : convert_gguf_t5(file);
    auto impl = std::make_unique<Impl>();
    impl->place = file.path();
    impl->files["tokenizer.json"] = std::move(converted.document);
    impl->build(file.path(), {});
    for (size_t role = 0; role < kNumRoles; ++role)
      if (const auto token = converted.roles.find(kRoleNames[role]); token != converted.roles.end())
        impl->roles[role] = impl->pipeline.token_to_id(token->second);
    return Tokenizer(std::move(impl));
  }
  const GgufConverter converter(file);
  auto impl = std::make_unique<Impl>();
  impl->place = file.path();
  impl->files["tokenizer.json"] = converter.tokenizer_json();
  impl->files["tokenizer_config.json"] = converter.tokenizer_config_json();
  impl->build(file.path(), {});
  std::ranges::copy(converter.roles, impl->roles.begin());
  impl->more_stop_ids = converter.stop_ids;
  impl->chat_templates = converter.chat_templates();
  impl->template_changed = true;  // the files do not hold them yet
  return Tokenizer(std::move(impl));
}

}  // namespace tessera::text

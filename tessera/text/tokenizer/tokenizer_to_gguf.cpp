#include <algorithm>
#include <optional>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/io/gguf_writer.h"
#include "tessera/text/tokenizer/gguf_families.h"
#include "tessera/text/tokenizer/sentencepiece_merges.h"
#include "tessera/text/tokenizer/tokenizer_impl.h"

namespace tessera::text {
namespace {

using nlohmann::json;

// Returns a setting of a tokenizer.json, in which null stands for the default.
bool flag(const json& object, const char* key, bool otherwise) {
  const auto found = object.find(key);
  return found == object.end() || !found->is_boolean() ? otherwise : found->get<bool>();
}

// Steps of a pre-tokenizer by the names of those that GGUF's kinds are made of.
using Steps = std::vector<std::string>;

// Appends the steps of one pre-tokenizer of a tokenizer.json.
void add_steps(const json& pre, Steps& steps) {
  const std::string type = pre.is_object() ? pre.value("type", "") : "";
  if (type == "Sequence") {
    for (const json& part : pre.at("pretokenizers")) add_steps(part, steps);
  } else if (type == "ByteLevel" && !flag(pre, "add_prefix_space", true)) {
    if (flag(pre, "use_regex", true)) steps.emplace_back(known_pattern_regex(KnownPattern::Gpt2));
    steps.emplace_back("bytes");
  } else if (type == "Digits" && flag(pre, "individual_digits", false)) {
    steps.emplace_back("digits");
  } else if (type == "Split" && pre.value("behavior", "") == "Isolated" && !flag(pre, "invert", false) &&
             pre.at("pattern").contains("Regex")) {
    const std::string regex = pre.at("pattern").at("Regex");
    const auto known = find_known_pattern(regex);
    steps.emplace_back(known ? known_pattern_regex(*known) : regex);
  } else {
    steps.push_back(type);
  }
}

Steps steps_of(const GgufFamily& family) {
  Steps steps;
  if (family.splits != nullptr) {
    for (const char* const* regex = family.splits; *regex != nullptr; ++regex) steps.emplace_back(*regex);
    steps.emplace_back("bytes");
    return steps;
  }
  if (family.individual_digits) steps.emplace_back("digits");
  steps.emplace_back(known_pattern_regex(family.pattern));
  steps.emplace_back("bytes");
  return steps;
}

class GgufTokens {
 public:
  GgufTokens(const Tokenizer& tokenizer, const std::string& place, int64_t num_tokens)
      : tokenizer_(tokenizer),
        place_(place),
        document_(json::parse(tokenizer.saved_files().at("tokenizer.json"))),
        model_(document_.at("model")) {
    add_steps(document_.value("pre_tokenizer", json()), steps_);
    is_sentencepiece_ = flag(model_, "byte_fallback", false);
    if (num_tokens < tokenizer.vocab_size()) {
      throw fail("the tokenizer has more tokens than the model has embeddings")
          .got(std::to_string(tokenizer.vocab_size()))
          .need("at most " + std::to_string(num_tokens));
    }
    add_tokens(num_tokens);
  }

  void add_to(io::GgufMetadata& metadata) const {
    metadata.add("tokenizer.ggml.model", is_sentencepiece_ ? "llama" : "gpt2");
    metadata.add("tokenizer.ggml.pre", is_sentencepiece_ ? "default" : family().name);
    metadata.add("tokenizer.ggml.tokens", std::span<const std::string>(tokens_));
    metadata.add("tokenizer.ggml.token_type", std::span<const int32_t>(types_));
    if (is_sentencepiece_) {
      metadata.add("tokenizer.ggml.scores", std::span<const float>(scores()));
    } else {
      metadata.add("tokenizer.ggml.merges", std::span<const std::string>(merges()));
    }
    const std::pair<const char*, std::optional<int32_t>> ids[] = {{"bos", tokenizer_.bos_id()},
                                                                  {"eos", tokenizer_.eos_id()},
                                                                  {"eot", end_of_turn()},
                                                                  {"unknown", tokenizer_.unk_id()},
                                                                  {"padding", tokenizer_.pad_id()}};
    for (const auto& [role, id] : ids) {
      if (id) metadata.add(std::string("tokenizer.ggml.") + role + "_token_id", static_cast<uint32_t>(*id));
    }
    add_ends(metadata);
    add_templates(metadata);
  }

 private:
  Error fail(const std::string& what) const {
    Error error(ErrorKind::Model, "TOKENIZER-GGUF", what);
    error.in(place_);
    return error;
  }

  void add_templates(io::GgufMetadata& metadata) const {
    std::vector<std::string> names;
    for (const auto& [name, source] : tokenizer_.chat_templates()) {
      if (name == kDefaultTemplate) {
        metadata.add("tokenizer.chat_template", source);
        continue;
      }
      if (!std::ranges::all_of(name, [](unsigned char c) { return c > ' ' && c < 0x7f; })) {
        throw fail("a chat template has a name that no key of a GGUF file can have").got("'" + name + "'");
      }
      metadata.add("tokenizer.chat_template." + name, source);
      names.push_back(name);
    }
    if (!names.empty()) metadata.add("tokenizer.chat_templates", std::span<const std::string>(names));
  }

  void add_tokens(int64_t num_tokens) {
    for (int32_t id = 0; id < num_tokens; ++id) {
      std::string text = tokenizer_.id_to_token(id);
      int32_t type = kNormal;
      if (text.empty()) {
        text = "[PAD" + std::to_string(id) + "]";
        type = kUnused;
      } else if (is_sentencepiece_ && id == tokenizer_.unk_id()) {
        type = kUnknown;
      } else if (tokenizer_.is_special(id)) {
        type = kControl;
      } else if (tokenizer_.is_added(id)) {
        type = kUserDefined;
      } else if (is_sentencepiece_ && text.size() == 6 && text.starts_with("<0x") && text.ends_with('>')) {
        type = kByte;
      }
      tokens_.push_back(std::move(text));
      types_.push_back(type);
    }
  }

  // Finds the name of the pre-tokenizer.
  const GgufFamily& family() const {
    const json normalizer = document_.value("normalizer", json());
    const bool is_nfc = normalizer.is_object() && normalizer.value("type", "") == "NFC";
    if (is_nfc || normalizer.is_null()) {
      for (const GgufFamily& family : kGgufFamilies) {
        if (steps_of(family) == steps_ && family.nfc == is_nfc &&
            family.ignore_merges == flag(model_, "ignore_merges", false)) {
          return family;
        }
      }
    }
    std::vector<std::string> names;
    for (const GgufFamily& family : kGgufFamilies) names.emplace_back(family.name);
    throw fail("GGUF has no name for this tokenizer's pre-tokenizer")
        .got(normalizer.is_null() ? join(steps_, ", ") : normalizer.dump() + ", " + join(steps_, ", "))
        .need("that of " + join(names, ", "));
  }

  // Returns the two parts of each merge.
  std::vector<std::pair<std::string, std::string>> merge_parts() const {
    std::vector<std::pair<std::string, std::string>> parts;
    for (const json& merge : model_.at("merges")) {
      if (merge.is_array()) {
        parts.emplace_back(merge.at(0), merge.at(1));
      } else {
        const std::string& text = merge.get_ref<const std::string&>();
        const size_t space = text.find(' ');
        parts.emplace_back(text.substr(0, space), text.substr(space + 1));
      }
    }
    return parts;
  }

  std::vector<std::string> merges() const {
    std::vector<std::string> texts;
    for (const auto& [left, right] : merge_parts()) texts.push_back(left + " " + right);
    return texts;
  }

  // Returns scores by which the merges come in the order of their ranks: the earlier the first merge that
  // makes a token, the higher. Those that no merge makes come last.
  std::vector<float> scores() const {
    std::unordered_map<std::string, float> made;
    const auto parts = merge_parts();
    for (const auto& [left, right] : parts) made.emplace(left + right, -static_cast<float>(made.size()));
    std::vector<float> scores;
    std::vector<SentencePiece> pieces;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const auto found = made.find(tokens_[id]);
      const bool is_piece = types_[id] == kNormal || types_[id] == kUserDefined;
      scores.push_back(!is_piece             ? 0.0f
                       : found != made.end() ? found->second
                                             : -static_cast<float>(made.size() + id));
      pieces.push_back({tokens_[id], scores.back(), is_piece});
    }
    // A SentencePiece model merges any two pieces whose union is one. If the list lacks some of these merges,
    // a reader of the file would make other tokens.
    if (sentencepiece_merges(pieces).size() != parts.size()) {
      throw fail("the merges are not those of a SentencePiece model")
          .got(std::to_string(parts.size()) + " merges")
          .need(std::to_string(sentencepiece_merges(pieces).size()) + ", one for each cut of a piece in two");
    }
    return scores;
  }

  // Returns the id that ends a turn, if one beside eos does.
  std::optional<int32_t> end_of_turn() const {
    for (const int32_t id : tokenizer_.stop_ids()) {
      if (id != tokenizer_.eos_id()) return id;
    }
    return std::nullopt;
  }

  // Adds what is put before and behind a text, which a short one shows.
  void add_ends(io::GgufMetadata& metadata) const {
    const std::vector<int32_t> plain = tokenizer_.encode("a"),
                               whole = tokenizer_.encode("a", {.add_special_tokens = true});
    const auto inner = std::ranges::search(whole, plain);
    const std::vector<int32_t> before(whole.begin(), inner.begin()), behind(inner.end(), whole.end());
    const auto is_none_or = [](const std::vector<int32_t>& ids, std::optional<int32_t> id) {
      return ids.empty() || (ids.size() == 1 && ids.front() == id);
    };
    if (!is_none_or(before, tokenizer_.bos_id()) || !is_none_or(behind, tokenizer_.eos_id())) {
      throw fail("the tokenizer adds other tokens than bos and eos to texts");
    }
    metadata.add("tokenizer.ggml.add_bos_token", !before.empty());
    metadata.add("tokenizer.ggml.add_eos_token", !behind.empty());
    if (is_sentencepiece_) {
      const bool has_space = !plain.empty() && tokenizer_.id_to_token(plain.front()).starts_with(kSpaceSign);
      metadata.add("tokenizer.ggml.add_space_prefix", has_space);
    }
  }

  const Tokenizer& tokenizer_;
  std::string place_;
  json document_;
  const json& model_;
  Steps steps_;
  bool is_sentencepiece_ = false;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
};

}  // namespace

void Tokenizer::add_gguf_metadata(int64_t num_tokens, io::GgufMetadata& metadata) const {
  const auto saved = saved_files();
  const auto document = saved.find("tokenizer.json");
  const std::string type = document == saved.end()
                               ? "a file of SentencePiece"
                               : json::parse(document->second).at("model").value("type", "BPE");
  if (type != "BPE") {
    throw Error(ErrorKind::Model, "TOKENIZER-GGUF",
                "GGUF files are written of BPE tokenizers in tokenizer.json alone")
        .in(impl_->place)
        .got(type)
        .hint("save the tokenizer as tokenizer.json with Transformers first, if its model is BPE");
  }
  GgufTokens(*this, impl_->place, num_tokens).add_to(metadata);
}

}  // namespace tessera::text

#include "tessera/text/tokenizer/document_text.h"

#include <nlohmann/json.hpp>

namespace tessera::text {

using nlohmann::ordered_json;

std::string document_text(const ordered_json& head, const ordered_json& model,
                          const std::vector<std::string>& vocabulary,
                          const std::vector<std::pair<std::string, std::string>>* merges) {
  const auto open = [](const ordered_json& object) {
    std::string text = object.dump(2);
    text.erase(text.size() - 2);  // removes the closing "\n}"
    return text;
  };
  std::string out = open(head) + ",\n  \"model\": " + open(model) + ",\n    \"vocab\": {";
  const char* separator = "\n      ";
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary[id].empty()) continue;
    out += separator + ordered_json(vocabulary[id]).dump() + ": " + std::to_string(id);
    separator = ",\n      ";
  }
  out += "\n    }";
  if (merges != nullptr) {
    out += ",\n    \"merges\": [";
    separator = "\n      ";
    for (const auto& [left, right] : *merges) {
      out += separator + ("[" + ordered_json(left).dump()) + ", " + ordered_json(right).dump() + "]";
      separator = ",\n      ";
    }
    out += "\n    ]";
  }
  return out + "\n  }\n}\n";
}

ordered_json document_head(ordered_json added_tokens, ordered_json normalizer, ordered_json pre_tokenizer,
                           ordered_json post_processor, ordered_json decoder) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added_tokens)},
          {"normalizer", std::move(normalizer)},
          {"pre_tokenizer", std::move(pre_tokenizer)},
          {"post_processor", std::move(post_processor)},
          {"decoder", std::move(decoder)}};
}

ordered_json bpe_model(const ordered_json& unk_token, const ordered_json& suffix, bool has_bytes,
                       bool ignores_merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", unk_token},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", suffix},
          {"fuse_unk", has_bytes},
          {"byte_fallback", has_bytes},
          {"ignore_merges", ignores_merges}};
}

ordered_json byte_level_step(bool adds_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", adds_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

ordered_json split_step(const std::string& regex) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
}

ordered_json sequence_step(const char* list, const ordered_json& steps) {
  return {{"type", "Sequence"}, {list, steps}};
}

ordered_json added_token_entry(int64_t id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

ordered_json template_step(const std::vector<EndToken>& before, const std::vector<EndToken>& between,
                           const std::vector<EndToken>& behind, bool second_type) {
  ordered_json single = ordered_json::array(), pair = ordered_json::array(), tokens = ordered_json::object();
  const auto add = [&](ordered_json& pieces, const std::vector<EndToken>& ends, int type_id) {
    for (const EndToken& end : ends) {
      pieces.push_back({{"SpecialToken", {{"id", end.text}, {"type_id", type_id}}}});
      tokens[end.text] = {{"id", end.text},
                          {"ids", ordered_json::array({end.id})},
                          {"tokens", ordered_json::array({end.text})}};
    }
  };
  const auto text = [&](ordered_json& pieces, const char* name, int type_id) {
    pieces.push_back({{"Sequence", {{"id", name}, {"type_id", type_id}}}});
  };
  const int second = second_type ? 1 : 0;
  add(single, before, 0);
  text(single, "A", 0);
  add(single, behind, 0);
  add(pair, before, 0);
  text(pair, "A", 0);
  add(pair, between, 0);
  text(pair, "B", second);
  add(pair, behind, second);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

}  // namespace tessera::text

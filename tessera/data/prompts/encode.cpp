#include "tessera/data/prompts/encode.h"

#include <algorithm>
#include <optional>
#include <string>

namespace tessera::data {

std::vector<int32_t> encode_document(const text::Tokenizer& tokenizer, std::string_view text,
                                     DocumentEnds ends) {
  return set_ends(tokenizer, tokenizer.encode(text, {.parse_special = false, .add_special_tokens = ends.bos}),
                  ends);
}

std::vector<int32_t> set_ends(const text::Tokenizer& tokenizer, std::vector<int32_t> ids, DocumentEnds ends) {
  const auto eos = tokenizer.eos_id();
  if (ends.bos && eos && !ids.empty() && ids.back() == *eos)
    ids.pop_back();  // a post-processor may add both ends
  if (ends.eos && eos) ids.push_back(*eos);
  return ids;
}

std::string_view without_own_ends(const text::Tokenizer& tokenizer, std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  // Many texts contain a token of one or two bytes and do not mean it.
  constexpr size_t kShortest = 3;
  const auto spelling = [&](std::optional<int32_t> id) { return id ? tokenizer.id_to_token(*id) : ""; };
  const std::string bos = spelling(tokenizer.bos_id()), eos = spelling(tokenizer.eos_id());
  while (bos.size() >= kShortest) {
    const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
    if (!text.substr(begin).starts_with(bos)) break;
    text.remove_prefix(begin + bos.size());
  }
  while (eos.size() >= kShortest) {
    const std::string_view rest = text.substr(0, text.find_last_not_of(kSpace) + 1);
    if (!rest.ends_with(eos)) break;
    text = rest.substr(0, rest.size() - eos.size());
  }
  return text;
}

bool spells_own_ends(const text::Tokenizer& tokenizer, std::string_view text) {
  return without_own_ends(tokenizer, text).size() < text.size();
}

void append_ids(Row& row, const std::vector<int32_t>& ids, bool trained) {
  row.input_ids.insert(row.input_ids.end(), ids.begin(), ids.end());
  if (trained) {
    row.labels.insert(row.labels.end(), ids.begin(), ids.end());
  } else {
    row.labels.insert(row.labels.end(), ids.size(), static_cast<int32_t>(kIgnoreLabel));
  }
}

std::vector<int32_t> eos_tokens(const text::Tokenizer& tokenizer) {
  const auto eos = tokenizer.eos_id();
  return eos ? std::vector<int32_t>{*eos} : std::vector<int32_t>{};
}

}  // namespace tessera::data

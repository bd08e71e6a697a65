#include "tessera/data/prompts/encode.h"

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

#include "tessera/generation/drafts.h"

#include <algorithm>

#include "tessera/device/device.h"

namespace tessera::generation {

std::string why_no_drafts(const models::CausalLM& model) {
  if (has_streams(model.device()))
    return "decoding steps on a device are recorded for one token of each answer";
  if (model.keeps_states())
    return "layers of the model keep a state of all tokens so far, which cannot go back behind wrong ones";
  if (model.cache_options().window > 0)
    return "all layers of the model look back over a window alone, and their cache drops what is before it";
  if (model.config().is_encoder_decoder) return "the model makes targets of sources";
  return "";
}

std::vector<int64_t> draft_tokens(std::span<const int64_t> text, int64_t most) {
  constexpr size_t kLongest = 4, kShortest = 2;
  // The number of tokens that are the same before the best place so far and before the end, and that place.
  size_t matched = kShortest - 1, next = 0;
  for (size_t place = text.empty() ? 0 : text.size() - 1; place > matched && matched < kLongest; --place) {
    size_t same = 0;
    while (same < std::min(place, kLongest) && text[place - 1 - same] == text[text.size() - 1 - same]) ++same;
    if (same <= matched) continue;
    matched = same;
    next = place;
  }
  std::vector<int64_t> draft;
  if (next == 0) return draft;
  for (size_t place = next; std::ssize(draft) < most; ++place)
    draft.push_back(place < text.size() ? text[place] : draft[place - text.size()]);
  return draft;
}

void DraftPace::note(size_t num_right) {
  constexpr int64_t kLongestPause = 32;
  pause_ = num_right > 0 ? 0 : std::clamp<int64_t>(2 * pause_, 1, kLongestPause);
  left_ = pause_ == 0 ? 0 : pause_ + 1;
}

}  // namespace tessera::generation

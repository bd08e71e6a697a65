#include "tessera/data/token_masks.h"

#include "tessera/core/rng.h"

namespace tessera::data {

std::vector<MaskedToken> TokenMasks::draw(std::span<const LabelRun> runs, int64_t place,
                                          int64_t epoch) const {
  const CounterRng rng(options_.seed, stream_of(options_.stream), static_cast<uint64_t>(epoch));
  // A position is below 2^32.
  const auto index = [&](int32_t position) {
    return (static_cast<uint64_t>(place) << 32U) | static_cast<uint32_t>(position);
  };
  std::vector<MaskedToken> masked;
  const auto mask = [&](const LabelRun& unit) {
    for (int32_t position = unit.begin; position < unit.end; ++position) {
      // The words 0 and 1 are those of uniform(), which decides whether the token is masked.
      const auto words = rng.words(index(position));
      const double kind = static_cast<double>(words[2]) / 4294967296.0;
      MaskedToken token{position, std::nullopt};
      if (kind < options_.mask_share) {
        token.shown = options_.mask_token_id;
      } else if (kind < options_.mask_share + options_.random_share) {
        token.shown = static_cast<int64_t>((words[3] * static_cast<uint64_t>(options_.vocab_size)) >> 32U);
      }
      masked.push_back(token);
    }
  };
  LabelRun nearest;
  double least = 1.0;
  const auto take = [&](const LabelRun& unit) {
    const double drawn = rng.uniform(index(unit.begin));
    if (drawn < options_.probability) return mask(unit);
    if (drawn >= least) return;
    least = drawn;
    nearest = unit;
  };
  for (const LabelRun& run : runs) {
    if (options_.whole_runs) take(run);
    for (int32_t i = run.begin; !options_.whole_runs && i < run.end; ++i) take({i, i + 1});
  }
  if (masked.empty()) mask(nearest);
  return masked;
}

}  // namespace tessera::data

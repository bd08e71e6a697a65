#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/text/constraint/constraint.h"

#include "tests/fuzz/fuzz_target.h"

// A constraint, whose kind is the first byte, is refused or leads a text on until the text may end or has
// been taken far enough. Whatever the mask allows can be taken.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  using text::ConstraintSource;
  static const auto trie = [] {
    std::vector<std::string> bytes = {"", "\"}", "\",\"", "]}", "ab", "00", "\xc3\xa9\""};
    for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
    return std::make_shared<const text::TokenTrie>(bytes);
  }();
  if (size == 0) return 0;
  const std::string rest(fuzz::text_of(data + 1, size - 1));
  const auto kind = static_cast<ConstraintSource::Kind>(data[0] % 4);
  ConstraintSource source{.kind = kind, .value = rest, .allows_space = data[0] % 8 < 4};
  if (kind == ConstraintSource::Kind::JsonSchema || kind == ConstraintSource::Kind::Choice) {
    if (std::ranges::count(rest, '[') + std::ranges::count(rest, '{') > 64) return 0;
    source.value = nlohmann::ordered_json::parse(rest, nullptr, /*allow_exceptions=*/false);
    if (source.value.is_discarded()) return 0;
  }
  fuzz::take_or_refuse("constraint", [&] {
    text::ConstraintState state(std::make_shared<text::Constraint>(source, trie));
    const std::vector<int64_t> stop = {0};
    uint64_t chance = size;
    for (int step = 0; step < 12 && !state.must_end(); ++step) {
      const std::vector<uint64_t> mask = state.allowed(stop);
      int64_t id =
          static_cast<int64_t>((chance = chance * 6364136223846793005U + 1) >> 33) % trie->vocabulary();
      while (id == 0 || (mask[static_cast<size_t>(id) / 64] >> (id % 64) & 1) == 0) {
        id = (id + 1) % trie->vocabulary();
        if (id == 0 && (mask[0] & 1) != 0) return;
      }
      state.take(id);
    }
  });
  return 0;
}

#include "tessera/text/tokenizer/sentencepiece_merges.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_set>

#include "tessera/core/utf8.h"

namespace tessera::text {

std::vector<std::pair<std::string, std::string>> sentencepiece_merges(std::span<const SentencePiece> pieces) {
  std::unordered_set<std::string_view> known;
  std::vector<size_t> order;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!pieces[i].merges) continue;
    known.insert(pieces[i].text);
    order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return pieces[a].score > pieces[b].score; });

  std::vector<std::pair<std::string, std::string>> merges;
  for (const size_t i : order) {
    const std::string_view text = pieces[i].text;
    // Every way to cut the piece into two known pieces is a merge that makes it.
    for (size_t cut = 0; cut < text.size();) {
      cut += decode_char(text.data(), cut).size;
      if (cut == text.size()) break;
      const std::string_view left = text.substr(0, cut), right = text.substr(cut);
      if (known.contains(left) && known.contains(right)) merges.emplace_back(left, right);
    }
  }
  return merges;
}

}  // namespace tessera::text

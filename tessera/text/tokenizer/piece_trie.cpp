#include "tessera/text/tokenizer/piece_trie.h"

#include <algorithm>
#include <string>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"

namespace tessera::text {
namespace {

constexpr size_t kMaxBytes = 64 << 20;
constexpr size_t kAlphabet = 256;
// Places that are tried for the children of a node before they are put behind all others, so that the time is
// linear whatever the pieces are.
constexpr size_t kMaxTries = 256;
constexpr int32_t kTaken = -2;  // parent of the root, which is nobody's child

// The pieces [begin, end) of the sorted list, which share their first `depth` bytes: those of one node.
struct Range {
  int32_t node;
  size_t begin, end, depth;
};

}  // namespace

PieceTrie::PieceTrie(std::vector<std::pair<std::string_view, int32_t>> pieces) {
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  size_t bytes = 0;
  for (const auto& [piece, value] : pieces) bytes += piece.size();
  if (bytes > kMaxBytes)
    throw Error(ErrorKind::Model, "TOKENIZER-LIMIT", "the tokens of the vocabulary are too long together")
        .got(format_bytes(static_cast<int64_t>(bytes)))
        .need("at most " + format_bytes(kMaxBytes));

  units_.resize(1 + 2 * kAlphabet);
  units_[0].parent = kTaken;
  size_t first_free = 1;  // the search for free units begins here
  size_t last_used = 0;
  std::vector<Range> open = {{kRoot, 0, pieces.size(), 0}};
  std::vector<Range> children;
  while (!open.empty()) {
    const Range range = open.back();
    open.pop_back();
    children.clear();
    for (size_t i = range.begin; i < range.end; ++i) {
      const std::string_view piece = pieces[i].first;
      if (piece.size() == range.depth) {
        if (range.depth > 0) units_[static_cast<size_t>(range.node)].value = pieces[i].second;
        continue;
      }
      const auto byte = static_cast<unsigned char>(piece[range.depth]);
      if (children.empty() || children.back().node != byte) children.push_back({byte, i, i, range.depth + 1});
      children.back().end = i + 1;
    }
    if (children.empty()) continue;
    const auto is_free = [&](size_t base) {
      return std::all_of(children.begin(), children.end(), [&](const Range& child) {
        return units_[base + static_cast<size_t>(child.node)].parent == kNone;
      });
    };
    const auto lowest = static_cast<size_t>(children.front().node);
    size_t num_taken = 0, num_tries = 0, position = std::max(first_free, lowest + 1);
    const size_t start = position;
    for (;; ++position) {
      if (num_tries == kMaxTries) position = std::max(position, last_used + 1);
      if (position + 2 * kAlphabet >= units_.size()) units_.resize(2 * position + 2 * kAlphabet + 1);
      if (units_[position].parent != kNone) {
        ++num_taken;
      } else if (is_free(position - lowest)) {
        break;
      } else {
        ++num_tries;
      }
    }
    // Later searches need not look again at a stretch that is nearly full.
    if (position - start > 16 && 20 * num_taken > 19 * (position - start)) first_free = position;
    const size_t base = position - lowest;
    units_[static_cast<size_t>(range.node)].base = static_cast<int32_t>(base);
    for (Range& child : children) {
      const size_t place = base + static_cast<size_t>(child.node);
      units_[place].parent = range.node;
      last_used = std::max(last_used, place);
      child.node = static_cast<int32_t>(place);
    }
    open.insert(open.end(), children.rbegin(), children.rend());
  }
  units_.resize(last_used + 1 + kAlphabet);
  units_.shrink_to_fit();
}

int32_t PieceTrie::walk(std::string_view prefix) const {
  int32_t node = kRoot;
  for (const char byte : prefix) {
    node = step(node, static_cast<unsigned char>(byte));
    if (node == kNone) return kNone;
  }
  return node;
}

}  // namespace tessera::text

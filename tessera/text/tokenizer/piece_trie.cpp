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

using TriePieces = std::vector<std::pair<std::string_view, int32_t>>;

// The pieces [begin, end) of the sorted list, which share their first `depth` bytes: those of one node.
struct Range {
  int32_t node;
  size_t begin, end, depth;
};

void check_bytes(const TriePieces& pieces) {
  size_t bytes = 0;
  for (const auto& [piece, value] : pieces) bytes += piece.size();
  if (bytes > kMaxBytes)
    throw Error(ErrorKind::Model, "TOKENIZER-LIMIT", "the tokens of the vocabulary are too long together")
        .got(format_bytes(static_cast<int64_t>(bytes)))
        .need("at most " + format_bytes(kMaxBytes));
}

}  // namespace

// Fills the units of a trie, in which the children of a node lie at its base plus their bytes.
class PieceTrie::Builder {
 public:
  explicit Builder(std::vector<Unit>& units) : units_(units) {
    units_.resize(1 + 2 * kAlphabet);
    units_[0].parent = kTaken;
  }

  void add(const TriePieces& pieces) {
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
        if (children.empty() || children.back().node != byte)
          children.push_back({byte, i, i, range.depth + 1});
        children.back().end = i + 1;
      }
      if (children.empty()) continue;
      place(range.node, children);
      open.insert(open.end(), children.rbegin(), children.rend());
    }
    units_.resize(last_used_ + 1 + kAlphabet);
    units_.shrink_to_fit();
  }

 private:
  // Gives the children of a node their places. Their `node` is the byte before, and the place afterwards.
  void place(int32_t node, std::vector<Range>& children) {
    const size_t base = find_base(children);
    units_[static_cast<size_t>(node)].base = static_cast<int32_t>(base);
    for (Range& child : children) {
      const size_t place = base + static_cast<size_t>(child.node);
      units_[place].parent = node;
      last_used_ = std::max(last_used_, place);
      child.node = static_cast<int32_t>(place);
    }
  }

  // Finds a base from which the units of all children are free.
  size_t find_base(const std::vector<Range>& children) {
    const auto is_free = [&](size_t base) {
      return std::all_of(children.begin(), children.end(), [&](const Range& child) {
        return units_[base + static_cast<size_t>(child.node)].parent == kNone;
      });
    };
    const auto lowest = static_cast<size_t>(children.front().node);
    size_t num_taken = 0, num_tries = 0, position = std::max(first_free_, lowest + 1);
    const size_t start = position;
    for (;; ++position) {
      if (num_tries == kMaxTries) position = std::max(position, last_used_ + 1);
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
    if (position - start > 16 && 20 * num_taken > 19 * (position - start)) first_free_ = position;
    return position - lowest;
  }

  std::vector<Unit>& units_;
  size_t first_free_ = 1;  // the search for free units begins here
  size_t last_used_ = 0;
};

PieceTrie::PieceTrie(std::vector<std::pair<std::string_view, int32_t>> pieces) {
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  check_bytes(pieces);
  Builder(units_).add(pieces);
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

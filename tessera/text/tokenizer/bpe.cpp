#include "tessera/text/tokenizer/bpe.h"

#include <algorithm>
#include <bit>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"
#include "tessera/text/tokenizer/byte_level.h"
#include "tessera/text/tokenizer/byte_tokens.h"

namespace tessera::text {
namespace {

// Largest number of symbols for which merge_short() beats merge_long().
constexpr size_t kShortWord = 48;

// Order of the heap: its front is the candidate with the smallest rank, the leftmost of several.
struct WorseCandidate {
  bool operator()(const ModelScratch::Candidate& a, const ModelScratch::Candidate& b) const {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  }
};

}  // namespace

// [Note: BPE merging]
// A word begins as one symbol for each byte (byte level) or character. While any pair of neighbours is in the
// table of merges, the pair with the smallest rank is replaced by its union, the leftmost of several. Two
// ways do this, with the same result:
// - merge_short() keeps the rank of every pair in an array and scans it before each merge. That is
//   quadratic, but needs no heap, and words of more than kShortWord symbols are rare.
// - merge_long() keeps the symbols in a linked list and the mergeable pairs in a heap, which takes n log n.
//   Long words do occur where no pre-tokenizer cuts, such as a megabyte of one letter or of base64.
// Both look up pairs of ids, not of texts, in one hash table with open addressing.

Bpe::Bpe(Vocabulary vocabulary, BpeOptions options)
    : WordModel(std::move(vocabulary), options.unk_id),
      options_(std::move(options)),
      has_affixes_(!options_.continuing_prefix.empty() || !options_.word_suffix.empty()),
      unk_id_or_none_(unk_id().value_or(-1)),
      fallback_ids_(byte_token_ids(this->vocabulary())),
      merges_(16),
      shift_(60) {
  for (size_t place = 0; place < kNumPlaces; ++place) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      std::string spelling;
      append_utf8(spelling, options_.byte_level ? byte_to_char(static_cast<uint8_t>(byte)) : byte);
      byte_ids_[place][byte] =
          this->vocabulary().find(spelled(spelling, static_cast<Place>(place))).value_or(-1);
    }
  }
  if (options_.ignore_merges) {
    for (int32_t id = 0; id < this->vocabulary().id_limit(); ++id) {
      const std::string* text = this->vocabulary().text(id);
      if (text == nullptr || text->empty()) continue;
      // A spelling with characters outside the byte-level alphabet is not that of any bytes.
      std::string bytes = options_.byte_level ? spelling_to_bytes(*text) : *text;
      if (options_.byte_level && bytes_to_spelling(bytes) != *text) continue;
      whole_words_.add(std::move(bytes), id);
    }
  }
}

std::string Bpe::spelled(std::string_view character, Place place) const {
  std::string text;
  if (place == kMiddle || place == kLast) text = options_.continuing_prefix;
  text += character;
  if (place == kAlone || place == kLast) text += options_.word_suffix;
  return text;
}

std::string Bpe::add_merge(std::string_view left, std::string_view right, uint32_t rank) {
  const auto left_id = vocabulary().find(left);
  if (!left_id) return std::string(left);
  const auto right_id = vocabulary().find(right);
  if (!right_id) return std::string(right);
  std::string joined(left);
  joined += right.substr(std::min(right.size(), options_.continuing_prefix.size()));
  const auto joined_id = vocabulary().find(joined);
  if (!joined_id) return joined;

  if (2 * (num_merges_ + 1) > merges_.size()) grow();
  const uint64_t key = pair_key(*left_id, *right_id);
  size_t i = home(key);
  while (merges_[i].key != kNoKey && merges_[i].key != key) i = (i + 1) & (merges_.size() - 1);
  if (merges_[i].key == kNoKey) ++num_merges_;  // a pair given twice keeps its slot and takes the later rank
  merges_[i] = {key, rank, *joined_id};
  return {};
}

void Bpe::grow() {
  std::vector<Merge> old(merges_.size() * 2);
  old.swap(merges_);
  --shift_;
  for (const Merge& merge : old) {
    if (merge.key == kNoKey) continue;
    size_t i = home(merge.key);
    while (merges_[i].key != kNoKey) i = (i + 1) & (merges_.size() - 1);
    merges_[i] = merge;
  }
}

inline const Bpe::Merge* Bpe::find_merge(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  // The table is at most half full, so a free slot ends every search.
  for (size_t i = home(key);; i = (i + 1) & (merges_.size() - 1)) {
    if (merges_[i].key == key) return &merges_[i];
    if (merges_[i].key == kNoKey) return nullptr;
  }
}

void Bpe::encode_new(std::string_view word, ModelScratch& scratch) const {
  std::vector<WordToken>& symbols = scratch.tokens;
  const auto whole = options_.ignore_merges ? whole_words_.find(word) : std::nullopt;
  if (whole) {
    symbols.push_back({*whole, static_cast<uint32_t>(word.size())});
    return;
  }
  if (options_.byte_level) {
    split(word, symbols);
  } else {
    split_chars(word, symbols);
  }
  if (symbols.size() <= kShortWord) {
    merge_short(symbols);
  } else {
    merge_long(symbols, scratch);
  }
}

void Bpe::split(std::string_view word, std::vector<WordToken>& symbols) const {
  // A byte that has no token, while there is no unknown token either, gives no id. The token behind it, or
  // the last one, takes its length, so that the lengths still add up to the word's.
  uint32_t dropped = 0;
  bool after_unk = false;
  for (size_t i = 0; i < word.size(); ++i) {
    Place place = kMiddle;
    if (has_affixes_) {
      const bool is_last = i + 1 == word.size();
      place = i == 0 ? (is_last ? kAlone : kFirst) : is_last ? kLast : kMiddle;
    }
    const int32_t id = byte_ids_[place][static_cast<uint8_t>(word[i])];
    if (id >= 0) {
      symbols.push_back({id, 1 + dropped});
      dropped = 0;
      after_unk = false;
    } else if (unk_id_or_none_ < 0) {
      ++dropped;
    } else if (after_unk && options_.fuse_unk) {
      ++symbols.back().length;
    } else {
      symbols.push_back({unk_id_or_none_, 1});
      after_unk = true;
    }
  }
  if (dropped > 0 && !symbols.empty()) symbols.back().length += dropped;
}

void Bpe::split_chars(std::string_view word, std::vector<WordToken>& symbols) const {
  uint32_t dropped = 0;  // bytes of characters that give no id, as in split()
  bool after_unk = false;
  std::string spelling;  // of the character with its prefix and suffix, if there are any
  for (size_t i = 0; i < word.size();) {
    const auto [code_point, size] = decode_char(word.data(), i);
    std::string_view character = word.substr(i, size);
    Place place = kMiddle;
    if (has_affixes_) {
      const bool is_last = i + size == word.size();
      place = i == 0 ? (is_last ? kAlone : kFirst) : is_last ? kLast : kMiddle;
    }
    i += size;
    std::optional<int32_t> id;
    if (code_point < 256) {
      if (const int32_t known = byte_ids_[place][code_point]; known >= 0) id = known;
    } else if (!has_affixes_) {
      id = vocabulary().find(character);
    }
    if (!id && has_affixes_) {
      spelling = spelled(character, place);
      character = spelling;
      if (code_point >= 256) id = vocabulary().find(character);
    }
    if (id) {
      symbols.push_back({*id, size + dropped});
      dropped = 0;
      after_unk = false;
      continue;
    }
    if (options_.byte_fallback && std::all_of(character.begin(), character.end(), [&](char byte) {
          return fallback_ids_[static_cast<uint8_t>(byte)] >= 0;
        })) {
      // The bytes of a prefix or suffix stand for no text.
      uint32_t left = size + dropped;
      for (const char byte : character) {
        const uint32_t length = std::min(left, 1 + dropped);
        symbols.push_back({fallback_ids_[static_cast<uint8_t>(byte)], length});
        left -= length;
        dropped = 0;
      }
      symbols.back().length += left;
      after_unk = false;
    } else if (unk_id_or_none_ < 0) {
      dropped += size;
    } else if (after_unk && options_.fuse_unk) {
      symbols.back().length += size;
    } else {
      symbols.push_back({unk_id_or_none_, size});
      after_unk = true;
    }
  }
  if (dropped > 0 && !symbols.empty()) symbols.back().length += dropped;
}

void Bpe::merge_short(std::vector<WordToken>& symbols) const {
  size_t count = symbols.size();
  if (count < 2) return;
  // Rank and result of the pair (i, i + 1).
  uint32_t ranks[kShortWord];
  int32_t ids[kShortWord];
  const auto look_up = [&](size_t i) {
    const Merge* merge = find_merge(symbols[i].id, symbols[i + 1].id);
    ranks[i] = merge != nullptr ? merge->rank : kNoRank;
    ids[i] = merge != nullptr ? merge->id : -1;
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (ranks[i] < ranks[best]) best = i;
    if (ranks[best] == kNoRank) break;
    symbols[best] = {ids[best], symbols[best].length + symbols[best + 1].length};
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i] = ranks[i + 1];
      ids[i] = ids[i + 1];
    }
    // Only the pairs on both sides of the new symbol have changed.
    if (best + 1 < count) look_up(best);
    if (best > 0) look_up(best - 1);
  }
  symbols.resize(count);
}

void Bpe::merge_long(std::vector<WordToken>& tokens, ModelScratch& scratch) const {
  std::vector<ModelScratch::Symbol>& symbols = scratch.symbols;
  std::vector<ModelScratch::Candidate>& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  const auto count = static_cast<int32_t>(tokens.size());
  for (int32_t i = 0; i < count; ++i) {
    const WordToken& token = tokens[static_cast<size_t>(i)];
    symbols.push_back({token.id, token.length, i - 1, i + 1 < count ? i + 1 : -1});
  }
  const auto candidate = [&](int32_t left, int32_t right) -> std::optional<ModelScratch::Candidate> {
    const Merge* merge =
        find_merge(symbols[static_cast<size_t>(left)].id, symbols[static_cast<size_t>(right)].id);
    if (merge == nullptr) return std::nullopt;
    return ModelScratch::Candidate{merge->rank, static_cast<uint32_t>(left), merge->id};
  };
  const auto push = [&](int32_t left, int32_t right) {
    if (const auto found = candidate(left, right)) {
      heap.push_back(*found);
      std::push_heap(heap.begin(), heap.end(), WorseCandidate());
    }
  };
  for (int32_t i = 0; i + 1 < count; ++i)
    if (const auto found = candidate(i, i + 1)) heap.push_back(*found);
  std::make_heap(heap.begin(), heap.end(), WorseCandidate());

  while (!heap.empty()) {
    const ModelScratch::Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), WorseCandidate());
    heap.pop_back();
    // A merge leaves the candidates of the pairs that it changes in the heap, so a candidate may be stale. It
    // is stale if its left symbol is gone or is the last one, or if the pair there now does not merge into
    // the same token. The same token means the same pair: symbols only grow, so two different pairs that
    // start at one position never stand for the same text.
    ModelScratch::Symbol& left = symbols[top.position];
    if (left.id < 0 || left.next < 0) continue;
    ModelScratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    const Merge* merge = find_merge(left.id, right.id);
    if (merge == nullptr || merge->id != top.id) continue;
    left.id = top.id;
    left.length += right.length;
    left.next = right.next;
    right.id = -1;  // gone; `left` stands for its text
    const auto position = static_cast<int32_t>(top.position);
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = position;
    if (left.previous >= 0) push(left.previous, position);
    if (left.next >= 0) push(position, left.next);
  }
  tokens.clear();
  for (const ModelScratch::Symbol& symbol : symbols)
    if (symbol.id >= 0) tokens.push_back({symbol.id, symbol.length});
}

}  // namespace tessera::text

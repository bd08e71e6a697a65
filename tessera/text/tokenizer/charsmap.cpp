#include "tessera/text/tokenizer/charsmap.h"

#include <cstring>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"

namespace tessera::text {
namespace {

constexpr size_t kHeader = 4;

// Returns how far the children of a unit lie from it, to be combined by exclusive or.
size_t offset_of(uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & 0x200) >> 6); }
bool has_leaf(uint32_t unit) { return unit & 0x100; }

}  // namespace

Charsmap::Charsmap(std::string bytes, std::string place)
    : bytes_(std::move(bytes)), place_(std::move(place)) {
  keeps_.fill(true);
  if (bytes_.empty()) return;
  uint32_t trie_bytes = 0;
  if (bytes_.size() < kHeader) malformed("it has less than 4 bytes");
  std::memcpy(&trie_bytes, bytes_.data(), kHeader);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > bytes_.size() - kHeader)
    malformed("its trie has " + std::to_string(trie_bytes) + " bytes");
  num_units_ = trie_bytes / 4;
  texts_ = std::string_view(bytes_).substr(kHeader + trie_bytes);
  if (texts_.empty() || texts_.back() != '\0') malformed("its texts do not end with a zero byte");
  if (valid_utf8_prefix(texts_) != texts_.size()) malformed("its texts are not valid UTF-8");

  const size_t root = offset_of(unit(0));
  for (unsigned char first = 1; first < 128; ++first) {
    const auto node = step(root, first);
    bool keeps = !node || !this->first(std::string_view(reinterpret_cast<const char*>(&first), 1));
    for (unsigned char second = 1; node && keeps && second < 128; ++second)
      keeps = !step(*node ^ offset_of(unit(*node)), second);
    keeps_[first] = keeps;
  }
}

void Charsmap::malformed(const std::string& what) const {
  throw Error(ErrorKind::Model, "TOKENIZER-CHARSMAP", "the map of characters is malformed: " + what)
      .in(place_)
      .got(std::to_string(bytes_.size()) + " bytes")
      .need("a precompiled_charsmap of SentencePiece")
      .hint("the file is damaged; download it again");
}

uint32_t Charsmap::unit(size_t index) const {
  if (index >= num_units_) malformed("its trie leads out of it");
  uint32_t value = 0;
  std::memcpy(&value, bytes_.data() + kHeader + 4 * index, 4);
  return value;
}

// `node` is the place of the children.
std::optional<size_t> Charsmap::step(size_t node, unsigned char byte) const {
  const size_t child = node ^ byte;
  if (child >= num_units_ || (unit(child) & 0x800000ffu) != byte) return std::nullopt;
  return child;
}

std::string_view Charsmap::replacement(size_t leaf) const {
  const size_t begin = unit(leaf) & 0x7fffffffu;
  if (begin >= texts_.size() || (static_cast<unsigned char>(texts_[begin]) & 0xc0) == 0x80)
    malformed("a rule has no text");
  return texts_.substr(begin, texts_.find('\0', begin) - begin);
}

std::optional<Charsmap::Match> Charsmap::find(std::string_view text, bool shortest) const {
  if (num_units_ == 0) return std::nullopt;
  std::optional<Match> match;
  size_t node = offset_of(unit(0));
  for (size_t i = 0; i < text.size() && text[i] != '\0'; ++i) {
    const auto child = step(node, static_cast<unsigned char>(text[i]));
    if (!child) break;
    node = *child ^ offset_of(unit(*child));
    // A rule of a part of a character is none.
    const bool is_whole = i + 1 == text.size() || (static_cast<unsigned char>(text[i + 1]) & 0xc0) != 0x80;
    if (!has_leaf(unit(*child)) || !is_whole) continue;
    match = Match{i + 1, replacement(node)};
    if (shortest) break;
  }
  return match;
}

bool Charsmap::keeps_all(std::string_view text) const {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 128 || !keeps_[byte]) return false;
  }
  return true;
}

}  // namespace tessera::text

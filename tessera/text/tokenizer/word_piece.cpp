#include "tessera/text/tokenizer/word_piece.h"

#include "tessera/core/utf8.h"

namespace tessera::text {
namespace {

PieceTrie make_trie(const Vocabulary& vocabulary) {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (int32_t id = 0; id < vocabulary.id_limit(); ++id)
    if (const std::string* text = vocabulary.text(id)) entries.emplace_back(*text, id);
  return PieceTrie(std::move(entries));
}

bool has_more_chars(std::string_view word, size_t limit) {
  if (word.size() <= limit) return false;
  size_t count = 0;
  for (size_t i = 0; i < word.size(); i += decode_char(word.data(), i).size) ++count;
  return count > limit;
}

}  // namespace

WordPiece::WordPiece(Vocabulary vocabulary, const WordPieceOptions& options)
    : WordModel(std::move(vocabulary), options.unk_id),
      max_chars_(options.max_chars),
      trie_(make_trie(this->vocabulary())),
      continuing_root_(trie_.walk(options.continuing_prefix)) {}

void WordPiece::encode_new(std::string_view word, ModelScratch& scratch) const {
  bool is_known = !has_more_chars(word, max_chars_);
  for (size_t begin = 0; is_known && begin < word.size();) {
    int32_t node = begin == 0 ? PieceTrie::kRoot : continuing_root_, id = PieceTrie::kNone;
    size_t end = begin;
    for (size_t i = begin; node != PieceTrie::kNone && i < word.size(); ++i) {
      node = trie_.step(node, static_cast<unsigned char>(word[i]));
      if (node == PieceTrie::kNone || trie_.value(node) < 0) continue;
      id = trie_.value(node);
      end = i + 1;
    }
    is_known = id >= 0;
    if (is_known) scratch.tokens.push_back({id, static_cast<uint32_t>(end - begin)});
    begin = end;
  }
  if (is_known) return;
  scratch.tokens.assign(1, {need_unk_id(word), static_cast<uint32_t>(word.size())});
}

}  // namespace tessera::text

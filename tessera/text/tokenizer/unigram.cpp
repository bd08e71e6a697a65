#include "tessera/text/tokenizer/unigram.h"

#include <algorithm>

#include "tessera/core/utf8.h"
#include "tessera/text/tokenizer/byte_tokens.h"

namespace tessera::text {
namespace {

constexpr int32_t kNoPath = -2, kUnkEdge = -1;

PieceTrie make_trie(const std::vector<UnigramPiece>& pieces) {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (size_t id = 0; id < pieces.size(); ++id)
    if (pieces[id].in_text) entries.emplace_back(pieces[id].text, static_cast<int32_t>(id));
  return PieceTrie(std::move(entries));
}

}  // namespace

Unigram::Unigram(Vocabulary vocabulary, const std::vector<UnigramPiece>& pieces, UnigramOptions options)
    : WordModel(std::move(vocabulary), options.unk_id), options_(options), trie_(make_trie(pieces)) {
  for (const UnigramPiece& piece : pieces) scores_.push_back(piece.score);
  if (options.byte_fallback) {
    const auto ids = byte_token_ids(this->vocabulary());
    byte_ids_.assign(ids.begin(), ids.end());
  }
}

// The scores of paths are kept as doubles that hold a `Score`, in which all sums are made.
template <class Score>
void Unigram::find_best_path(std::string_view word, std::vector<ModelScratch::PathNode>& path) const {
  path.assign(word.size() + 1, {0.0, kNoPath, 0});
  const auto offer = [&](size_t end, Score score, int32_t id, size_t begin) {
    ModelScratch::PathNode& node = path[end];
    if (node.id == kNoPath || score > node.score) node = {score, id, static_cast<int32_t>(begin)};
  };
  const auto unk_score = static_cast<Score>(options_.unk_score);
  for (size_t begin = 0; begin < word.size();) {
    const auto till_here = static_cast<Score>(path[begin].score);
    const size_t next = begin + decode_char(word.data(), begin).size;
    bool has_character = false;
    int32_t node = PieceTrie::kRoot;
    for (size_t end = begin; end < word.size();) {
      node = trie_.step(node, static_cast<unsigned char>(word[end]));
      if (node == PieceTrie::kNone) break;
      ++end;
      const int32_t id = trie_.value(node);
      if (id < 0) continue;
      offer(end, static_cast<Score>(static_cast<Score>(scores_[static_cast<size_t>(id)]) + till_here), id,
            begin);
      has_character = has_character || end == next;
    }
    if (!has_character) offer(next, static_cast<Score>(unk_score + till_here), kUnkEdge, begin);
    begin = next;
  }
}

void Unigram::encode_new(std::string_view word, ModelScratch& scratch) const {
  std::vector<ModelScratch::PathNode>& path = scratch.path;
  if (options_.single_precision) {
    find_best_path<float>(word, path);
  } else {
    find_best_path<double>(word, path);
  }
  // Turns the links around: the node at the start of each piece then tells its end.
  for (size_t end = word.size(), after = word.size(); end > 0;) {
    const auto begin = static_cast<size_t>(path[end].begin);
    path[end].begin = static_cast<int32_t>(after);
    after = end;
    end = begin;
    if (begin == 0) path[0].begin = static_cast<int32_t>(after);
  }
  const bool unk_is_piece = unk_id().has_value();
  const auto is_unknown = [&](int32_t id) { return id == kUnkEdge || (unk_is_piece && id == *unk_id()); };
  for (size_t begin = 0; begin < word.size();) {
    auto end = static_cast<size_t>(path[begin].begin);
    if (!is_unknown(path[end].id)) {
      scratch.tokens.push_back({path[end].id, static_cast<uint32_t>(end - begin)});
    } else {
      while (end < word.size() && is_unknown(path[static_cast<size_t>(path[end].begin)].id))
        end = static_cast<size_t>(path[end].begin);
      add_unknown(word.substr(begin, end - begin), word, scratch.tokens);
    }
    begin = end;
  }
}

void Unigram::add_unknown(std::string_view part, std::string_view word,
                          std::vector<WordToken>& tokens) const {
  const auto length = static_cast<uint32_t>(part.size());
  if (const auto whole = options_.single_precision ? std::nullopt : vocabulary().find(part)) {
    tokens.push_back({*whole, length});
    return;
  }
  const auto id_of = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (!byte_ids_.empty() && std::ranges::all_of(part, [&](char byte) { return id_of(byte) >= 0; })) {
    for (const char byte : part) tokens.push_back({id_of(byte), 1});
    return;
  }
  tokens.push_back({need_unk_id(word), length});
}

}  // namespace tessera::text

#include "tessera/text/tokenizer/byte_ranks.h"

#include <algorithm>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/text/tokenizer/byte_level.h"
#include "tessera/text/tokenizer/vocabulary.h"

namespace tessera::text {
namespace {

using nlohmann::ordered_json;

// The ways to cut a token grow with its length, and each is one look-up.
constexpr size_t kMaxRankBytes = 1 << 10;

using Merges = std::vector<std::pair<std::string, std::string>>;

// Returns every way to cut a token into two others, by the rank of the token, then of its parts.
Merges merges_of(const std::vector<std::string>& tokens) {
  std::unordered_map<std::string_view, size_t> ranks;
  for (size_t rank = 0; rank < tokens.size(); ++rank)
    if (!tokens[rank].empty()) ranks.emplace(tokens[rank], rank);
  Merges merges;
  std::vector<std::pair<size_t, size_t>> cuts;
  for (const std::string& token : tokens) {
    cuts.clear();
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ranks.find(std::string_view(token).substr(0, cut));
      if (left == ranks.end()) continue;
      const auto right = ranks.find(std::string_view(token).substr(cut));
      if (right != ranks.end()) cuts.emplace_back(left->second, right->second);
    }
    std::sort(cuts.begin(), cuts.end());
    for (const auto& [left, right] : cuts)
      merges.emplace_back(bytes_to_spelling(tokens[left]), bytes_to_spelling(tokens[right]));
  }
  return merges;
}

}  // namespace

ConvertedTokenizer convert_byte_ranks(const ByteRanks& ranks, const std::string& place) {
  const auto fail = [&](const std::string& what) {
    Error error(ErrorKind::Model, "TOKENIZER-RANKS", what);
    error.in(place);
    return error;
  };
  const size_t first = ranks.specials_first ? ranks.specials.size() : 0;
  const size_t num_ids = ranks.tokens.size() + ranks.specials.size();
  if (static_cast<int64_t>(num_ids) > kMaxTokenId) throw fail("too many tokens");
  std::vector<std::string> vocabulary(num_ids);
  std::unordered_map<std::string_view, size_t> known;
  for (size_t rank = 0; rank < ranks.tokens.size(); ++rank) {
    const std::string& token = ranks.tokens[rank];
    if (token.size() > kMaxRankBytes)
      throw fail("the token of rank " + std::to_string(rank) + " is too long");
    if (!token.empty() && !known.emplace(token, rank).second)
      throw fail("the token of rank " + std::to_string(rank) + " is given twice");
    vocabulary[first + rank] = bytes_to_spelling(token);
  }
  ordered_json added = ordered_json::array();
  for (const auto& [id, text] : ranks.specials_in_gaps) {
    vocabulary[first + static_cast<size_t>(id)] = text;
    added.push_back(added_token_entry(id, text, true));
  }
  std::unordered_map<std::string_view, int64_t> special_ids;
  for (size_t i = 0; i < ranks.specials.size(); ++i) {
    const size_t id = ranks.specials_first ? i : ranks.tokens.size() + i;
    if (ranks.specials[i].empty()) continue;
    vocabulary[id] = ranks.specials[i];
    special_ids.emplace(ranks.specials[i], static_cast<int64_t>(id));
    added.push_back(added_token_entry(static_cast<int64_t>(id), ranks.specials[i], true));
  }
  ordered_json post = byte_level_step(true, true);
  if (const auto bos = special_ids.find(ranks.bos); ranks.adds_bos && bos != special_ids.end())
    post = template_step({{ranks.bos, bos->second}}, {{ranks.bos, bos->second}}, {}, true);
  const ordered_json words =
      sequence_step("pretokenizers", {split_step(ranks.pattern), byte_level_step(false, false)});
  const Merges merges = merges_of(ranks.tokens);
  ConvertedTokenizer out;
  out.document = document_text(document_head(added, nullptr, words, post, byte_level_step(true, true)),
                               bpe_model(nullptr, nullptr, false, true), vocabulary, &merges);
  const std::pair<const char*, const std::string*> roles[] = {{"bos_token", &ranks.bos},
                                                              {"eos_token", &ranks.eos},
                                                              {"unk_token", &ranks.unk},
                                                              {"pad_token", &ranks.pad}};
  for (const auto& [role, token] : roles)
    if (!token->empty()) out.roles[role] = *token;
  return out;
}

}  // namespace tessera::text

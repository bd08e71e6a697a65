#include "tessera/text/tokenizer/added_tokens.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/core/utf8.h"
#include "tessera/text/tokenizer/unicode.h"

namespace tessera::text {
namespace {

// Largest number of nodes of a matcher, one for each byte of the patterns (shared prefixes count once).
constexpr size_t kMaxNodes = 8 << 20;

uint8_t flags_before(std::string_view text, size_t end) {
  const size_t last = previous_char(text.data(), end);
  return CharTable::instance().flags(decode_char(text.data(), last).code_point);
}

uint8_t flags_at(std::string_view text, size_t position) {
  return CharTable::instance().flags(decode_char(text.data(), position).code_point);
}

}  // namespace

void AddedTokenMatcher::add(const std::string& pattern, const AddedToken& token) {
  if (nodes_.empty()) {
    nodes_.emplace_back();
    std::fill(std::begin(first_), std::end(first_), -1);
  }
  int32_t node = 0;
  for (const char c : pattern) {
    const auto byte = static_cast<unsigned char>(c);
    auto& children = nodes_[static_cast<size_t>(node)].children;
    auto place =
        std::lower_bound(children.begin(), children.end(), std::pair<unsigned char, int32_t>(byte, -1));
    if (place != children.end() && place->first == byte) {
      node = place->second;
      continue;
    }
    const auto child = static_cast<int32_t>(nodes_.size());
    children.insert(place, {byte, child});
    if (node == 0) first_[byte] = child;
    if (nodes_.size() >= kMaxNodes)
      throw Error(ErrorKind::Model, "TOKENIZER-LIMIT", "the added tokens are too many or too long")
          .got("'" + token.content.substr(0, 80) + "' beyond " + format_bytes(kMaxNodes) + " of them");
    nodes_.emplace_back();
    node = child;
  }
  nodes_[static_cast<size_t>(node)].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

const AddedToken* AddedTokenMatcher::match(std::string_view text, size_t begin, size_t& end) const {
  const AddedToken* found = nullptr;
  int32_t node = first_[static_cast<unsigned char>(text[begin])];
  for (size_t i = begin + 1; node >= 0; ++i) {
    const Node& here = nodes_[static_cast<size_t>(node)];
    if (here.token >= 0) {
      found = &tokens_[static_cast<size_t>(here.token)];
      end = i;
    }
    if (i >= text.size()) break;
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto place = std::lower_bound(here.children.begin(), here.children.end(),
                                        std::pair<unsigned char, int32_t>(byte, -1));
    node = place != here.children.end() && place->first == byte ? place->second : -1;
  }
  return found;
}

void AddedTokenMatcher::split(std::string_view text, bool parse_special,
                              FunctionRef<bool(size_t begin, size_t end)> is_plain,
                              std::vector<AddedSplit>& out) const {
  size_t done = 0;  // text before it is in `out`
  for (size_t i = 0; !empty() && i < text.size();) {
    // Most bytes begin no added token; this table spares them the walk through the trie.
    if (first_[static_cast<unsigned char>(text[i])] < 0) {
      ++i;
      continue;
    }
    size_t begin = i, end = 0;
    const AddedToken* token = match(text, begin, end);
    if (token == nullptr) {
      ++i;
      continue;
    }
    // The longest match takes its text even if the token is then rejected, as in `tokenizers`: nothing else
    // is looked for in it. Only a special token in plain text gives way to tokens that begin behind its first
    // byte, since plain text must come out as if the token did not exist.
    i = end;
    if (token->special && !parse_special) continue;
    if (token->special && is_plain(begin, end)) {
      i = begin + 1;
      continue;
    }
    if (token->single_word && ((begin > 0 && (flags_before(text, begin) & kWord)) ||
                               (end < text.size() && (flags_at(text, end) & kWord))))
      continue;
    if (token->lstrip) {
      while (begin > done && (flags_before(text, begin) & kSpace)) begin = previous_char(text.data(), begin);
      // White space that the token before has taken is not taken again.
      begin = std::min(std::max(begin, done), end);
    }
    while (token->rstrip && end < text.size() && (flags_at(text, end) & kSpace))
      end += decode_char(text.data(), end).size;
    if (done < begin) out.push_back({done, begin, -1});
    out.push_back({begin, end, token->id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
}

void AddedTokenMatcher::make_special(int32_t id) {
  for (AddedToken& token : tokens_)
    if (token.id == id) token.special = true;
}

void AddedTokens::make_special(const std::string& content) {
  AddedToken& token = tokens_.at(ids_.at(content));
  token.special = true;
  special_.insert(content);
  raw_.make_special(token.id);
  normalized_.make_special(token.id);
}

void AddedTokens::add(AddedToken token, const Normalizer* normalizer) {
  ids_.emplace(token.content, token.id);
  if (token.special) special_.insert(token.content);
  if (token.normalized) {
    std::string pattern = token.content;
    if (normalizer != nullptr && normalizer->changes(pattern)) {
      AlignedText text(pattern, 0, false);
      normalizer->apply(text);
      if (text.text != pattern) normalized_content_.emplace(token.id, text.text);
      pattern = std::move(text.text);
    }
    if (!pattern.empty()) normalized_.add(pattern, token);
  } else {
    raw_.add(token.content, token);
  }
  const int32_t id = token.id;
  id_limit_ = std::max<int64_t>(id_limit_, id + 1);
  tokens_.emplace(id, std::move(token));
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = ids_.find(std::string(content));
  return found != ids_.end() ? &tokens_.at(found->second) : nullptr;
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto found = tokens_.find(id);
  return found != tokens_.end() ? &found->second : nullptr;
}

const std::string& AddedTokens::decoder_text(const AddedToken& token) const {
  const auto found = normalized_content_.find(token.id);
  return found != normalized_content_.end() ? found->second : token.content;
}

}  // namespace tessera::text

#include "tessera/text/constraint/token_trie.h"

#include <algorithm>

namespace tessera::text {
namespace {

std::vector<std::string> text_tokens(const Tokenizer& tokenizer, int64_t vocabulary) {
  std::vector<std::string> bytes(static_cast<size_t>(vocabulary));
  const auto known = static_cast<int32_t>(std::min(vocabulary, tokenizer.vocab_size()));
  for (int32_t id = 0; id < known; ++id) {
    if (!tokenizer.is_special(id)) bytes[static_cast<size_t>(id)] = tokenizer.token_bytes(id);
  }
  return bytes;
}

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer, int64_t vocabulary)
    : TokenTrie(text_tokens(tokenizer, vocabulary)) {}

TokenTrie::TokenTrie(std::span<const std::string> bytes) : bytes_(bytes.begin(), bytes.end()) {
  for (size_t id = 0; id < bytes_.size(); ++id) {
    if (!bytes_[id].empty()) tokens_.push_back(static_cast<int32_t>(id));
  }
  std::ranges::sort(tokens_, {}, [this](int32_t id) -> const std::string& { return this->bytes(id); });
  std::vector<int32_t> open = {0};  // the nodes from the root to the last token
  nodes_.emplace_back();
  const auto close = [&](size_t depth) {
    for (; open.size() > depth + 1; open.pop_back())
      nodes_[static_cast<size_t>(open.back())].end = static_cast<int32_t>(nodes_.size());
  };
  const std::string* last = nullptr;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& token = this->bytes(tokens_[i]);
    depth_ = std::max(depth_, static_cast<int32_t>(token.size()));
    const size_t common =
        last == nullptr ? 0 : static_cast<size_t>(std::ranges::mismatch(token, *last).in1 - token.begin());
    close(common);
    for (size_t depth = common; depth < token.size(); ++depth) {
      open.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({.first_token = static_cast<int32_t>(i),
                        .depth = static_cast<int32_t>(depth) + 1,
                        .byte = static_cast<uint8_t>(token[depth])});
    }
    last = &token;
  }
  close(0);
  nodes_.front().end = static_cast<int32_t>(nodes_.size());
  nodes_.push_back({.first_token = static_cast<int32_t>(tokens_.size())});
}

}  // namespace tessera::text

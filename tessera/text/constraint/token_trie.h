// The tokens of a vocabulary, ordered by their bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::text {

// A tree whose edges are bytes: the way from the root to a node spells the tokens of that node. Nodes are
// numbered so that each is followed by all nodes below it.
class TokenTrie {
 public:
  struct Node {
    int32_t end = 0;          // the first node behind this one that is not below it
    int32_t first_token = 0;  // among tokens()
    int32_t depth = 0;        // 0 at the root
    uint8_t byte = 0;         // that leads here
  };

  // `bytes` has one entry for each id; ids without bytes are left out.
  explicit TokenTrie(std::span<const std::string> bytes);
  // Takes the tokens of a tokenizer with ids below `vocabulary` that stand for text: all but special ones.
  TokenTrie(const Tokenizer& tokenizer, int64_t vocabulary);

  int64_t vocabulary() const { return std::ssize(bytes_); }
  const std::string& bytes(int64_t id) const { return bytes_[static_cast<size_t>(id)]; }
  int32_t size() const { return static_cast<int32_t>(nodes_.size()) - 1; }
  const Node& node(int32_t number) const { return nodes_[static_cast<size_t>(number)]; }
  // Returns the ids that end at a node.
  std::span<const int32_t> tokens(int32_t number) const {
    const auto first = static_cast<size_t>(node(number).first_token);
    return {tokens_.data() + first, static_cast<size_t>(node(number + 1).first_token) - first};
  }
  // Returns the bytes of the longest token.
  int32_t depth() const { return depth_; }

 private:
  std::vector<std::string> bytes_;
  std::vector<Node> nodes_;  // with one more at the end
  std::vector<int32_t> tokens_;
  int32_t depth_ = 0;
};

}  // namespace tessera::text

// Tokens that are cut out of the text before the model sees it, such as control tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tessera/text/tokenizer/function_ref.h"
#include "tessera/text/tokenizer/normalizer.h"

namespace tessera::text {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool single_word = false;  // no word character may touch it
  bool lstrip = false;       // takes the white space on its left
  bool rstrip = false;       // takes the white space on its right
  bool normalized = true;    // looked for in the normalised text, by its normalised content
  bool special = false;
};

// A piece of text: an added token (id >= 0), or the text between two of them (id -1).
struct AddedSplit {
  size_t begin, end;
  int32_t id;
};

// Finds added tokens in a text: from left to right, at each position the longest one, never overlapping.
class AddedTokenMatcher {
 public:
  // Adds a pattern, which must not be empty, for `token`. A pattern given twice takes the later id.
  void add(const std::string& pattern, const AddedToken& token);
  bool empty() const { return nodes_.empty(); }
  // Makes the token a special one, if it is one of these.
  void make_special(int32_t id);

  // Cuts the whole of `text` (valid UTF-8) into splits in order, without empty ones between tokens. If
  // `parse_special` is false, special tokens are passed over, and so is the text that they cover. A special
  // token whose text [begin, end) lies in plain text, as `is_plain` tells, is none; other tokens may begin
  // within it.
  void split(std::string_view text, bool parse_special, FunctionRef<bool(size_t begin, size_t end)> is_plain,
             std::vector<AddedSplit>& out) const;

 private:
  struct Node {
    int32_t token = -1;  // index into tokens_ of the pattern that ends here, or -1
    std::vector<std::pair<unsigned char, int32_t>> children;  // sorted by byte
  };

  // Returns the longest token that starts at `begin`, and its end in `end`; null when there is none.
  const AddedToken* match(std::string_view text, size_t begin, size_t& end) const;

  std::vector<Node> nodes_;  // a trie; node 0 is the root
  int32_t first_[256];       // the root's children by byte, -1 for none
  std::vector<AddedToken> tokens_;
};

// The added tokens of a tokenizer.
class AddedTokens {
 public:
  // Adds a token. Its content and id must be new. `normalizer`, which may be null, gives the text under which
  // a `normalized` token is looked for.
  void add(AddedToken token, const Normalizer* normalizer);

  // Makes a token that was added a special one.
  void make_special(const std::string& content);

  const AddedToken* find(std::string_view content) const;
  const AddedToken* find(int32_t id) const;
  // Returns the text that the decoder sees of the token: its content, as normalised if it is looked for so.
  const std::string& decoder_text(const AddedToken& token) const;
  // Returns whether some special token has this text.
  bool is_special(const std::string& text) const { return special_.count(text) != 0; }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  // Returns one more than the largest id.
  int64_t id_limit() const { return id_limit_; }

  const AddedTokenMatcher& raw_matcher() const { return raw_; }
  const AddedTokenMatcher& normalized_matcher() const { return normalized_; }

 private:
  std::unordered_map<int32_t, AddedToken> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_map<int32_t, std::string> normalized_content_;  // only where it differs from the content
  std::unordered_set<std::string> special_;
  AddedTokenMatcher raw_, normalized_;
  int64_t id_limit_ = 0;
};

}  // namespace tessera::text

// A YAML document as a tree that remembers where each value stands in its file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/config/recipe.h"
#include "tessera/core/error.h"

namespace tessera::config {

// Position of a node in its file. Nodes of one file share its name.
struct Place {
  std::shared_ptr<const std::string> file;
  int64_t line = 0, column = 0;  // 1-based
  bool is_override = false;      // the node came from the command line
};

struct Entry;

// One value. Aliases and merge keys (<<) are already expanded, duplicate keys already refused.
struct Node {
  enum class Kind { Null, Scalar, Sequence, Map };

  Kind kind = Kind::Null;
  std::string text;        // text of a scalar
  bool is_quoted = false;  // the scalar stood in quotes: it is text, never a number or a boolean
  std::string tag;         // a tag of the scalar that YAML does not define, such as "!function" (KeepTags)
  Place place;
  std::vector<Node> items;     // items of a sequence
  std::vector<Entry> entries;  // entries of a map, in file order

  bool is_null() const { return kind == Kind::Null; }
  bool is_scalar() const { return kind == Kind::Scalar; }
  bool is_sequence() const { return kind == Kind::Sequence; }
  bool is_map() const { return kind == Kind::Map; }

  // Returns the entry of a map with this key, or nullptr.
  Entry* find(std::string_view key);
  const Entry* find(std::string_view key) const;
  void erase(std::string_view key);
};

struct Entry {
  std::string key;
  Place key_place;
  Node value;
  // The key path as the user wrote it, if it differs from `key` (an alias was translated); else "".
  std::string origin;

  const std::string& name_in_file() const { return origin.empty() ? key : origin; }
};

// Makes a plain scalar node.
Node make_scalar(std::string text, const Place& place);

// Describes a value for the got-part of an error: "null", "a list of 3", "the text 'abc'", "2.5".
std::string describe(const Node& node);

// Makes an error of kind Config at a place.
Error config_error(std::string_view name, std::string what, const Place& place);

KeyPlace to_key_place(const Place& place);
// Returns "line 3", or "r.yaml:3" if the file differs from that of `other`, or "the command line".
std::string describe_place(const Place& place, const Place& other);
// Returns "r.yaml:3"; a place of the command line gives "command line", without a line number.
std::string place_text(const SourcePlace& place);
// Returns the beginning of a warning: "r.yaml:3: ", "command line: ", or "" when no file is known.
std::string place_prefix(const Place& place);

}  // namespace tessera::config

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

// Where a node stands. Nodes of one file share its name.
struct Place {
  std::shared_ptr<const std::string> file;
  int64_t line = 0, column = 0;  // 1-based
  bool is_override = false;      // from the command line
};

struct Entry;

// One value. Aliases and merge keys (<<) are already expanded, duplicate keys already refused.
struct Node {
  enum class Kind { Null, Scalar, Sequence, Map };

  Kind kind = Kind::Null;
  std::string text;        // of a scalar
  bool is_quoted = false;  // the scalar is text for sure, never a number or a boolean
  Place place;
  std::vector<Node> items;     // of a sequence
  std::vector<Entry> entries;  // of a map, in file order

  bool is_null() const { return kind == Kind::Null; }
  bool is_scalar() const { return kind == Kind::Scalar; }
  bool is_sequence() const { return kind == Kind::Sequence; }
  bool is_map() const { return kind == Kind::Map; }

  // The entry of a map, or nullptr.
  Entry* find(std::string_view key);
  const Entry* find(std::string_view key) const;
  void erase(std::string_view key);
};

struct Entry {
  std::string key;
  Place key_place;
  Node value;
  // The key path as the user wrote it, when an alias stands behind `key`; else "".
  std::string origin;

  const std::string& name_in_file() const { return origin.empty() ? key : origin; }
};

// Makes a plain scalar node.
Node make_scalar(std::string text, const Place& place);

// "null", "a list of 3", "the text 'abc'", "2.5": for the got-part of an error.
std::string describe(const Node& node);

// An error of kind Config at a place.
Error config_error(std::string_view name, std::string what, const Place& place);

KeyPlace to_key_place(const Place& place);
// "line 3", "r.yaml:3" where the file differs from `other`, or "the command line".
std::string describe_place(const Place& place, const Place& other);
// "r.yaml:3", or "command line", which has no lines.
std::string place_text(const KeyPlace& place);
// What a warning begins with: "r.yaml:3: ", "command line: ", or nothing where no file is known.
std::string place_prefix(const Place& place);

}  // namespace tessera::config

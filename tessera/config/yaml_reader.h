// Parses YAML text into a Node, within limits that hold for any input.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tessera/config/node.h"

namespace tessera::config {

constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr int kMaxDepth = 64;
constexpr int kMaxAliases = 64;
constexpr size_t kMaxNodes = 100'000;  // counted after aliases are expanded

// Returns the bytes of a regular file of at most kMaxFileBytes. Throws E-CONFIG-NOT-FOUND, -NOT-A-FILE,
// -UNREADABLE or -TOO-LARGE.
std::string read_config_file(const std::string& path);

// Throws unless `text` is UTF-8 text within the size limit: E-CONFIG-TOO-LARGE, -ENCODING.
// A UTF-8 byte order mark is accepted.
void check_text(std::string_view text, const Place& file);

// Yes: a scalar may have a tag of its own, which its Node then keeps. No: such a tag is refused.
enum class KeepTags : bool { No, Yes };

// Parses one YAML document (JSON is YAML). `file.file` names it in errors. An empty document is Null.
// Throws E-CONFIG-SYNTAX, -DUPLICATE-KEY (both lines), -TOO-DEEP, -TOO-MANY-ALIASES, -TOO-LARGE, -TAB,
// -ENCODING. Never uses more than a fixed stack.
Node parse_yaml(std::string_view text, const Place& file, KeepTags keep_tags = KeepTags::No);

}  // namespace tessera::config

// Strings that remember where their bytes came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text::jinja {

// The origin of a byte. The default is scaffold: written by the template.
struct Origin {
  bool content = false;     // the byte came from the messages or the tools
  bool generation = false;  // the byte was written inside {% generation %}
  int32_t message = -1;     // index of the message that the byte came from, or -1

  bool operator==(const Origin&) const = default;
};

// Thrown when a text would take more than kMaxText bytes, the spans of its origins counted.
struct TextTooLong {};
constexpr size_t kMaxText = 8u << 20;

// UTF-8 text with the origin of each byte. Bytes outside every span are plain scaffold; spans are in order,
// do not overlap and are not empty.
struct Text {
  struct Span {
    size_t begin = 0, end = 0;
    Origin origin;
  };
  std::string bytes;
  std::vector<Span> spans;

  Text() = default;
  explicit Text(std::string_view text, Origin origin = {}) { append(text, origin); }

  size_t size() const { return bytes.size(); }
  bool empty() const { return bytes.empty(); }
  // Append text. Every growth of a text goes through these, which throw TextTooLong.
  void append(std::string_view text, Origin origin = {});
  void append(const Text& text);
  // Appends the bytes [begin, end) of `text`.
  void append(const Text& text, size_t begin, size_t end);
  Text part(size_t begin, size_t end) const;
  // Returns the origin of the byte at `offset`. `hint` is the span index to start from, and is moved along,
  // so that a walk from left to right costs no search.
  Origin origin_at(size_t offset, size_t& hint) const;
  // Marks every byte as written inside {% generation %}.
  void mark_generation();

 private:
  void add_span(size_t begin, size_t end, const Origin& origin);
  // Throws TextTooLong when `more` bytes do not fit.
  void make_room(size_t more) const;
};

// Python's str operations. Positions and lengths are in code points; an invalid byte counts as one. Each
// takes time linear in the bytes that it reads and writes.

int64_t length_of(std::string_view text);

// Returns text[index]; 0 <= index < length.
Text char_at(const Text& text, int64_t index);
// Returns text[start:stop:step] after Python's clamping: `count` code points from `start`, every `step`.
Text slice_of(const Text& text, int64_t start, int64_t step, int64_t count);
// Removes white space, or the code points in `chars`, from the ends, as strip() does.
Text strip(const Text& text, std::optional<std::string_view> chars, bool left, bool right);
// Return the byte offset of the first occurrence of `what` at or after `from`, and of the last occurrence, or
// npos.
size_t find_in(std::string_view text, std::string_view what, size_t from = 0);
size_t find_last_in(std::string_view text, std::string_view what);
// Replaces `from` by `to` at most `limit` times, or always when `limit` is negative.
Text replace(const Text& text, std::string_view from, const Text& to, int64_t limit);
// Splits at `separator`, or at runs of white space, as split() and rsplit() do; makes at most `limit` cuts
// unless it is negative.
std::vector<Text> split(const Text& text, std::optional<std::string_view> separator, int64_t limit,
                        bool from_right);
std::vector<Text> split_lines(const Text& text, bool keep_ends);
size_t count_line_ends(std::string_view text);
// Returns `text` repeated `count` times; count >= 0.
Text repeated(const Text& text, int64_t count);
// Returns at most 200 bytes of a text for a message, cut between characters.
std::string excerpt(std::string_view text);

enum class Case { Lower, Upper, Title, Capitalize, Fold };
// Changes case by the full Unicode mapping, one code point at a time, so that each keeps its origin. Title is
// str.title().
Text change_case(const Text& text, Case change);
// Applies the `title` filter: a letter after white space or one of -({[< becomes upper case, every other
// lower case.
Text title_filter(const Text& text);

}  // namespace tessera::text::jinja

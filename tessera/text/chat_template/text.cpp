#include "tessera/text/chat_template/text.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "tessera/core/utf8.h"

namespace tessera::text::jinja {

void Text::add_span(size_t begin, size_t end, const Origin& origin) {
  if (begin == end || origin == Origin{}) return;
  if (!spans.empty() && spans.back().end == begin && spans.back().origin == origin) {
    spans.back().end = end;
  } else {
    spans.push_back({begin, end, origin});
  }
}

void Text::make_room(size_t more) const {
  if (more > kMaxText || size() + more + spans.size() * sizeof(Span) > kMaxText) throw TextTooLong{};
}

void Text::append(std::string_view text, Origin origin) {
  make_room(text.size());
  const size_t begin = bytes.size();
  bytes.append(text);
  add_span(begin, bytes.size(), origin);
}

void Text::append(const Text& text) { append(text, 0, text.size()); }

void Text::append(const Text& text, size_t begin, size_t end) {
  make_room(end - begin);
  const size_t base = bytes.size();
  bytes.append(text.bytes, begin, end - begin);
  auto span = std::partition_point(text.spans.begin(), text.spans.end(),
                                   [&](const Span& s) { return s.end <= begin; });
  for (; span != text.spans.end() && span->begin < end; ++span) {
    const size_t from = std::max(span->begin, begin), to = std::min(span->end, end);
    add_span(base + from - begin, base + to - begin, span->origin);
  }
  make_room(0);
}

Text Text::part(size_t begin, size_t end) const {
  Text out;
  out.append(*this, begin, end);
  return out;
}

Origin Text::origin_at(size_t offset, size_t& hint) const {
  while (hint < spans.size() && spans[hint].end <= offset) ++hint;
  if (hint < spans.size() && spans[hint].begin <= offset) return spans[hint].origin;
  return {};
}

void Text::mark_generation() {
  std::vector<Span> old;
  old.swap(spans);
  size_t at = 0;
  for (Span& span : old) {
    add_span(at, span.begin, {false, true, -1});
    span.origin.generation = true;
    add_span(span.begin, span.end, span.origin);
    at = span.end;
  }
  add_span(at, bytes.size(), {false, true, -1});
}

int64_t length_of(std::string_view text) {
  if (is_ascii(text)) return static_cast<int64_t>(text.size());
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); at += utf8_step(text, at)) ++count;
  return count;
}

namespace {

std::vector<size_t> offsets_of(std::string_view text) {
  std::vector<size_t> offsets;
  for (size_t at = 0; at < text.size(); at += utf8_step(text, at)) offsets.push_back(at);
  offsets.push_back(text.size());
  return offsets;
}

bool is_line_end(int32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

Text char_at(const Text& text, int64_t index) {
  if (is_ascii(text.bytes)) return text.part(static_cast<size_t>(index), static_cast<size_t>(index) + 1);
  size_t at = 0;
  for (; index > 0; --index) at += utf8_step(text.bytes, at);
  return text.part(at, at + utf8_step(text.bytes, at));
}

Text slice_of(const Text& text, int64_t start, int64_t step, int64_t count) {
  if (count <= 0) return {};
  const bool ascii = is_ascii(text.bytes);
  const std::vector<size_t> offsets = ascii ? std::vector<size_t>{} : offsets_of(text.bytes);
  const auto offset = [&](int64_t i) {
    return ascii ? static_cast<size_t>(i) : offsets[static_cast<size_t>(i)];
  };
  if (step == 1) return text.part(offset(start), offset(start + count));
  Text out;
  for (int64_t i = 0, at = start; i < count; ++i, at += step) out.append(text, offset(at), offset(at + 1));
  return out;
}

Text strip(const Text& text, std::optional<std::string_view> chars, bool left, bool right) {
  if (!chars) {
    const std::string_view kept = strip_spaces(text.bytes, left, right);
    const auto begin = static_cast<size_t>(kept.data() - text.bytes.data());
    return text.part(begin, begin + kept.size());
  }
  std::unordered_set<std::string_view> dropped;
  for (size_t at = 0; at < chars->size(); at += utf8_step(*chars, at)) {
    dropped.insert(chars->substr(at, utf8_step(*chars, at)));
  }
  const auto drops = [&](size_t begin, size_t end) {
    return dropped.count(std::string_view(text.bytes).substr(begin, end - begin)) != 0;
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const size_t next = begin + utf8_step(text.bytes, begin);
    if (!drops(begin, next)) break;
    begin = next;
  }
  while (right && begin < end) {
    const size_t last = utf8_step_back(text.bytes, end);
    if (!drops(last, end)) break;
    end = last;
  }
  return text.part(begin, end);
}

size_t find_in(std::string_view text, std::string_view what, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  // memmem() takes linear time whatever the two texts hold; find() does not.
  const void* found = ::memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t find_last_in(std::string_view text, std::string_view what) {
  const std::string backwards(text.rbegin(), text.rend()), wanted(what.rbegin(), what.rend());
  const size_t found = find_in(backwards, wanted);
  return found == std::string_view::npos ? found : text.size() - found - what.size();
}

Text replace(const Text& text, std::string_view from, const Text& to, int64_t limit) {
  Text out;
  size_t at = 0;
  if (from.empty()) {
    for (; at <= text.size() && limit != 0; --limit) {
      out.append(to);
      if (at == text.size()) return out;
      const size_t next = at + utf8_step(text.bytes, at);
      out.append(text, at, next);
      at = next;
    }
    out.append(text, at, text.size());
    return out;
  }
  for (; limit != 0; --limit) {
    const size_t found = find_in(text.bytes, from, at);
    if (found == std::string::npos) break;
    out.append(text, at, found);
    out.append(to);
    at = found + from.size();
  }
  out.append(text, at, text.size());
  return out;
}

namespace {

std::vector<Text> split_spaces(const Text& text, int64_t limit) {
  std::vector<Text> out;
  size_t at = 0;
  const auto space_at = [&](size_t i) { return is_python_space(utf8_decode(text.bytes, i)); };
  while (true) {
    while (at < text.size() && space_at(at)) at += utf8_step(text.bytes, at);
    if (at == text.size()) return out;
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.push_back(text.part(at, text.size()));
      return out;
    }
    size_t end = at;
    while (end < text.size() && !space_at(end)) end += utf8_step(text.bytes, end);
    out.push_back(text.part(at, end));
    at = end;
  }
}

std::vector<Text> split_spaces_from_right(const Text& text, int64_t limit) {
  std::vector<Text> out;
  size_t end = text.size();
  const auto space_before = [&](size_t i) {
    return is_python_space(utf8_decode(text.bytes, utf8_step_back(text.bytes, i)));
  };
  while (true) {
    while (end > 0 && space_before(end)) end = utf8_step_back(text.bytes, end);
    if (end == 0) break;
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.push_back(text.part(0, end));
      break;
    }
    size_t begin = end;
    while (begin > 0 && !space_before(begin)) begin = utf8_step_back(text.bytes, begin);
    out.push_back(text.part(begin, end));
    end = begin;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace

std::vector<Text> split(const Text& text, std::optional<std::string_view> separator, int64_t limit,
                        bool from_right) {
  if (!separator)
    return from_right && limit >= 0 ? split_spaces_from_right(text, limit) : split_spaces(text, limit);
  std::vector<Text> out;
  if (from_right && limit >= 0) {
    const std::string backwards(text.bytes.rbegin(), text.bytes.rend());
    const std::string wanted(separator->rbegin(), separator->rend());
    size_t at = 0;
    while (static_cast<int64_t>(out.size()) < limit) {
      const size_t found = find_in(backwards, wanted, at);
      if (found == std::string::npos) break;
      out.push_back(text.part(text.size() - found, text.size() - at));
      at = found + wanted.size();
    }
    out.push_back(text.part(0, text.size() - at));
    std::reverse(out.begin(), out.end());
    return out;
  }
  size_t at = 0;
  while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
    const size_t found = find_in(text.bytes, *separator, at);
    if (found == std::string::npos) break;
    out.push_back(text.part(at, found));
    at = found + separator->size();
  }
  out.push_back(text.part(at, text.size()));
  return out;
}

Text repeated(const Text& text, int64_t count) {
  Text out, block = text;
  for (; count > 0 && !text.empty(); count >>= 1) {
    if ((count & 1) != 0) out.append(block);
    if (count > 1) block.append(Text(block));
  }
  return out;
}

std::string excerpt(std::string_view text) {
  constexpr size_t kLongest = 200;
  if (text.size() <= kLongest) return std::string(text);
  size_t end = kLongest - 3;
  while (end > kLongest - 8 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

size_t count_line_ends(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += utf8_step(text, at))
    count += is_line_end(utf8_decode(text, at)) ? 1 : 0;
  return count;
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  std::vector<Text> out;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t next = at + utf8_step(text.bytes, at);
    if (!is_line_end(utf8_decode(text.bytes, at))) {
      at = next;
      continue;
    }
    const bool pair = text.bytes[at] == '\r' && next < text.size() && text.bytes[next] == '\n';
    const size_t end = next + (pair ? 1 : 0);
    out.push_back(text.part(begin, keep_ends ? end : at));
    at = begin = end;
  }
  if (begin < text.size()) out.push_back(text.part(begin, text.size()));
  return out;
}

}  // namespace tessera::text::jinja

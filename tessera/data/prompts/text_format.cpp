#include "tessera/data/prompts/text_format.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"

namespace tessera::data {

void MarkedText::add_content(std::string_view piece) {
  if (piece.empty()) return;
  const auto begin = static_cast<int64_t>(text.size());
  text += piece;
  const auto end = static_cast<int64_t>(text.size());
  if (!contents.empty() && contents.back().end == begin) {
    contents.back().end = end;
  } else {
    contents.push_back({begin, end});
  }
}

std::vector<int32_t> encode_marked(const text::Tokenizer& tokenizer, const MarkedText& marked,
                                   DocumentEnds ends, std::span<const int64_t> cuts) {
  if (marked.text.empty()) return {};
  std::vector<int32_t> ids = tokenizer.encode(
      marked.text,
      {.parse_special = true, .plain = marked.contents, .cuts = cuts, .add_special_tokens = ends.bos});
  return set_ends(tokenizer, std::move(ids), ends);
}

JoinedIds encode_joined(const text::Tokenizer& tokenizer, const MarkedText& prompt, std::string_view answer,
                        bool splits) {
  const std::vector<int32_t> alone = encode_marked(tokenizer, prompt, {.bos = true, .eos = false});
  MarkedText whole = prompt;
  whole.add_content(answer);
  JoinedIds out;
  const auto encode = [&](std::span<const int64_t> cuts) {
    out.ids = encode_marked(tokenizer, whole, {.bos = true, .eos = true}, cuts);
    out.answer = static_cast<size_t>(
        std::mismatch(alone.begin(), alone.end(), out.ids.begin(), out.ids.end()).first - alone.begin());
  };
  encode({});
  out.merges = out.answer < alone.size();
  const auto border = static_cast<int64_t>(prompt.text.size());
  if (out.merges && splits) encode({&border, 1});
  return out;
}

Row joined_row(const JoinedIds& joined, bool trains_prompt) {
  const auto border = joined.ids.begin() + static_cast<ptrdiff_t>(joined.answer);
  Row row;
  append_ids(row, {joined.ids.begin(), border}, trains_prompt);
  append_ids(row, {border, joined.ids.end()}, true);
  return row;
}

TextFormat::TextFormat(std::string_view format, const std::string& key, const config::DatasetConfig& dataset)
    : key_(key), source_file_(dataset.source_file), source_line_(dataset.source_line) {
  const auto literal = [&](std::string_view text) {
    if (text.empty()) return;
    if (pieces_.empty() || pieces_.back().is_place) pieces_.push_back({});
    pieces_.back().text += text;
  };
  while (!format.empty()) {
    const size_t brace = format.find_first_of("{}");
    literal(format.substr(0, brace));
    if (brace == std::string_view::npos) return;
    format.remove_prefix(brace);
    if (format.starts_with("{{") || format.starts_with("}}")) {
      literal(format.substr(0, 1));
      format.remove_prefix(2);
      continue;
    }
    const size_t end = format.find('}');
    if (format.front() == '}' || end == std::string_view::npos) {
      throw Error(ErrorKind::Config, "FORMAT", "key '" + key + "': unmatched brace")
          .at(source_file_, source_line_)
          .got(std::string(format.substr(0, 40)))
          .need("{name}, or {{ and }} for braces");
    }
    pieces_.push_back({std::string(format.substr(1, end - 1)), true});
    format.remove_prefix(end + 1);
  }
}

void TextFormat::check_names(const std::vector<std::string>& names) const {
  for (const Piece& piece : pieces_) {
    if (!piece.is_place || std::find(names.begin(), names.end(), piece.text) != names.end()) continue;
    const std::string near = nearest_name(piece.text, names);
    throw Error(ErrorKind::Config, "FORMAT", "key '" + key_ + "': unknown placeholder {" + piece.text + "}")
        .at(source_file_, source_line_)
        .need("{" + join(names, "}, {") + "}")
        .hint(near.empty() ? "" : "did you mean {" + near + "}?");
  }
}

void TextFormat::fill(const Lookup& value_of, MarkedText& out) const {
  for (const Piece& piece : pieces_) {
    if (piece.is_place) {
      out.add_content(value_of(piece.text));
    } else {
      out.add_scaffold(piece.text);
    }
  }
}

std::string TextFormat::fill(const Lookup& value_of) const {
  MarkedText out;
  fill(value_of, out);
  return out.text;
}

}  // namespace tessera::data

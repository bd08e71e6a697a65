#include "tessera/data/prompts/chat_spans.h"

#include <algorithm>

#include "tessera/core/error.h"

namespace tessera::data {
namespace {

struct Piece {
  int64_t message = -1;
  text::ByteSpan span;
  bool is_role = false;
};

// Returns the content pieces in order. A message's first piece that reads as its role is taken for the role
// in its header, unless the content reads so too and is all there is of the message.
std::vector<Piece> content_pieces(const text::RenderedChat& chat, const std::vector<Turn>& messages) {
  std::vector<Piece> pieces;
  std::vector<int64_t> count(messages.size(), 0);
  std::vector<int64_t> role_piece(messages.size(), -1);
  int64_t offset = 0;
  for (const text::RenderedSegment& segment : chat.segments) {
    const auto size = static_cast<int64_t>(segment.text.size());
    const bool known = segment.message >= 0 && segment.message < static_cast<int64_t>(messages.size());
    if (segment.is_content && known) {
      if (count[segment.message]++ == 0 && reads_as(segment.text, messages[segment.message].role)) {
        role_piece[segment.message] = static_cast<int64_t>(pieces.size());
      }
      pieces.push_back({segment.message, {offset, offset + size}});
    }
    offset += size;
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    if (role_piece[i] >= 0 && (count[i] > 1 || !messages[i].content_is_role))
      pieces[role_piece[i]].is_role = true;
  }
  return pieces;
}

std::vector<text::ByteSpan> generation_runs(const text::RenderedChat& chat) {
  std::vector<text::ByteSpan> runs;
  int64_t offset = 0;
  bool open = false;
  for (const text::RenderedSegment& segment : chat.segments) {
    const auto size = static_cast<int64_t>(segment.text.size());
    if (segment.in_generation && open) runs.back().end += size;
    if (segment.in_generation && !open) runs.push_back({offset, offset + size});
    open = segment.in_generation;
    offset += size;
  }
  return runs;
}

bool contains(const text::ByteSpan& outer, const text::ByteSpan& inner) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

}  // namespace

std::vector<TurnSpans> find_turn_spans(const text::RenderedChat& chat, const std::vector<Turn>& messages,
                                       bool generation_blocks) {
  std::vector<TurnSpans> turns(messages.size());
  const std::vector<Piece> pieces = content_pieces(chat, messages);
  int64_t size = 0;
  for (const text::RenderedSegment& segment : chat.segments)
    size += static_cast<int64_t>(segment.text.size());

  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    if (piece.is_role) continue;
    TurnSpans& turn = turns[piece.message];
    const bool continues = i > 0 && pieces[i - 1].message == piece.message && !pieces[i - 1].is_role;
    if (continues) {
      turn.ranges.back().end = piece.span.end;
    } else {
      turn.ranges.push_back(piece.span);
    }
    turn.closing = {piece.span.end, i + 1 < pieces.size() ? pieces[i + 1].span.begin : size};
  }
  if (!generation_blocks) return turns;

  const std::vector<text::ByteSpan> runs = generation_runs(chat);
  for (TurnSpans& turn : turns) {
    std::vector<text::ByteSpan> ranges;
    for (const text::ByteSpan& run : runs) {
      const bool holds = std::any_of(turn.ranges.begin(), turn.ranges.end(),
                                     [&](const text::ByteSpan& range) { return contains(run, range); });
      if (holds) ranges.push_back(run);
    }
    if (!ranges.empty()) turn.ranges = std::move(ranges);
  }
  return turns;
}

namespace {

// A text of a message, of which the template writes pieces in order. `cursor` is where the next piece is
// looked for.
struct SourceText {
  const std::string& text;
  const TrainSpans& spans;
  size_t cursor = 0;
  bool is_found = false;

  size_t find(std::string_view piece) const { return text.find(piece, cursor); }
  // Cuts a rendered piece into trained and masked ranges of `turn`. The piece stands in `text` from `at` on.
  void cut(size_t at, const text::ByteSpan& rendered, TurnSpans& turn) {
    const auto is_trained = [&](int64_t byte) {
      return std::any_of(spans->begin(), spans->end(), [&](const TrainSpan& span) {
        return span.train && byte >= span.begin && byte < span.end;
      });
    };
    cursor = at + static_cast<size_t>(rendered.end - rendered.begin);
    is_found = true;
    for (int64_t begin = rendered.begin; begin < rendered.end;) {
      const auto source = [&](int64_t byte) { return static_cast<int64_t>(at) + byte - rendered.begin; };
      const bool trained = spans && is_trained(source(begin));
      int64_t end = begin + 1;
      while (end < rendered.end && (spans && is_trained(source(end))) == trained) ++end;
      (trained ? turn.ranges : turn.masked).push_back({begin, end});
      begin = end;
    }
  }
};

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

}  // namespace

void apply_train_spans(const text::RenderedChat& chat, const std::vector<Turn>& messages, int64_t index,
                       const std::string& content, const std::string& reasoning, TurnSpans& turn) {
  const Turn& message = messages[static_cast<size_t>(index)];
  SourceText sources[] = {{reasoning, message.reasoning_spans}, {content, message.content_spans}};
  const std::string text = chat.text();
  turn.ranges.clear();
  for (const Piece& piece : content_pieces(chat, messages)) {
    if (piece.message != index || piece.is_role) continue;
    const std::string_view written = std::string_view(text).substr(
        static_cast<size_t>(piece.span.begin), static_cast<size_t>(piece.span.end - piece.span.begin));
    SourceText* source = nullptr;
    for (SourceText& candidate : sources) {
      if (source == nullptr && !candidate.text.empty() && candidate.find(written) != std::string::npos)
        source = &candidate;
    }
    if (source != nullptr) {
      source->cut(source->find(written), piece.span, turn);
    } else {
      turn.masked.push_back(piece.span);
    }
  }
  for (const SourceText& source : sources) {
    if (!source.spans || source.is_found || is_blank(source.text)) continue;
    throw Error(ErrorKind::Data, "TRAINING-DETAIL",
                "the chat template changes this text, so its parts cannot be located")
        .got(source.text.substr(0, 60));
  }
}

}  // namespace tessera::data

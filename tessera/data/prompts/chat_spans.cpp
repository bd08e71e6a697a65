#include "tessera/data/prompts/chat_spans.h"

#include <algorithm>

namespace tessera::data {
namespace {

struct Piece {
  int64_t message = -1;
  text::ByteSpan span;
  bool is_role = false;
};

// The content pieces in order. A message's first piece that reads as its role is the role in its header,
// unless the content reads so too and is all there is of the message.
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

}  // namespace tessera::data

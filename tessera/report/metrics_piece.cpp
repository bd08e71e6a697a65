#include "tessera/report/metrics_piece.h"

#include <algorithm>

#include "tessera/core/content_hash.h"
#include "tessera/io/file.h"
#include "tessera/report/run_folders.h"

namespace tessera::report {
namespace {

// Lines hold measured times, so that this many bytes of two runs are never alike.
constexpr int64_t kMarked = 1024;

std::string bytes_of(const io::File& file, int64_t offset, int64_t count) {
  std::string bytes(static_cast<size_t>(count), '\0');
  file.read_at(offset, bytes.data(), count);
  return bytes;
}

std::string mark_at(const io::File& file, int64_t offset) {
  if (offset == 0) return "";
  const int64_t count = std::min(offset, kMarked);
  ContentHash hash;
  hash.add(bytes_of(file, offset - count, count));
  return hash.text();
}

}  // namespace

MetricsPiece read_metrics_piece(const std::string& path, const MetricsPlace& after, int64_t max_bytes) {
  const io::File file = open_run_file(path);
  const bool goes_on =
      after.offset >= 0 && after.offset <= file.size() && mark_at(file, after.offset) == after.mark;
  MetricsPiece piece{.begin = goes_on ? after.offset : 0, .next = {}, .size = file.size(), .lines = ""};
  piece.lines = bytes_of(file, piece.begin, std::min(max_bytes, file.size() - piece.begin));
  const size_t end = piece.lines.rfind('\n');
  piece.next.offset = piece.begin;
  if (end != std::string::npos) {
    piece.lines.resize(end + 1);
    piece.next.offset += static_cast<int64_t>(piece.lines.size());
  } else {
    if (static_cast<int64_t>(piece.lines.size()) == max_bytes) piece.next.offset += max_bytes;
    piece.lines.clear();
  }
  piece.next.mark = mark_at(file, piece.next.offset);
  return piece;
}

}  // namespace tessera::report

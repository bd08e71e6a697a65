// Reads metrics.jsonl in pieces, while a run adds lines to it or another run begins it anew.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::report {

// Up to where a reader has come.
struct MetricsPlace {
  int64_t offset = 0;  // bytes
  std::string mark;    // names the bytes before the offset; empty at the beginning of the file
};

struct MetricsPiece {
  int64_t begin = 0;  // the offset of the first byte of `lines`; 0 if the reader has to begin anew
  MetricsPlace next;  // where the next piece begins
  int64_t size = 0;   // of the whole file in bytes
  std::string lines;  // whole lines, each with its line feed; empty if none has come
};

inline constexpr int64_t kMaxPiece = int64_t{1} << 20;

// Reads the whole lines that follow `after`, of at most `max_bytes` together. A last line without a line feed
// is left for later. A line that is longer than `max_bytes` is left out, and its rest is given as a line that
// no longer is an object. If the bytes before `after` are not those that the mark names, then the file is
// another one by now, and the piece is that at its beginning. Throws Error(Storage), also for a link.
MetricsPiece read_metrics_piece(const std::string& path, const MetricsPlace& after,
                                int64_t max_bytes = kMaxPiece);

}  // namespace tessera::report

#include "tessera/optim/tile_numbers.h"

#include <algorithm>

namespace tessera::optim {

TileNumbers::TileNumbers(const std::vector<int64_t>& shape, const parallel::Box& box) {
  for (const parallel::ElementRun& run : parallel::contiguous_runs(shape, box)) {
    if (!all_.empty()) {
      NumberedPart& last = all_.back();
      // A run continues the last part as its next row where it has the same width and the same distance from
      // the row before. The second row sets that distance.
      const int64_t rows = last.size / last.numbers.width;
      const int64_t stride = rows == 1 ? run.global_begin - last.numbers.first : last.numbers.row_stride;
      if (run.count == last.numbers.width && run.global_begin == last.numbers.first + rows * stride) {
        last.numbers.row_stride = stride;
        last.size += run.count;
        continue;
      }
    }
    all_.push_back({run.local_begin, run.count, {run.count, run.global_begin, 0}});
  }
}

std::vector<NumberedPart> TileNumbers::parts(int64_t begin, int64_t size) const {
  std::vector<NumberedPart> parts;
  for (const NumberedPart& part : all_) {
    const auto& [width, first, row_stride, of_rows] = part.numbers;
    const int64_t end = std::min(begin + size, part.begin + part.size);
    for (int64_t i = std::max(begin, part.begin); i < end;) {
      const int64_t row = (i - part.begin) / width, column = (i - part.begin) % width;
      const int64_t number = first + row * row_stride + column;
      // A part takes all whole rows that there are, or what there is of a single row.
      const int64_t rows = column == 0 ? (end - i) / width : 0;
      const int64_t count = rows > 0 ? rows * width : std::min(width - column, end - i);
      parts.push_back({i, count, {rows > 0 ? width : count, number, row_stride}});
      i += count;
    }
  }
  return parts;
}

}  // namespace tessera::optim

#include "tessera/nn/row_turns.h"

#include <algorithm>

namespace tessera::nn {

int64_t turn_of(int64_t rows) {
  int64_t turn = std::clamp<int64_t>(rows / 16, 1, 64);
  while (rows % turn != 0) --turn;
  return turn;
}

std::vector<StoredRows> rows_in_turns(int64_t rows, int64_t turn, int64_t parts) {
  std::vector<StoredRows> stored;
  for (int64_t begin = 0; begin < rows; begin += turn) {
    for (int64_t part = 0; part < parts; ++part)
      stored.push_back({parts * begin + part * turn, part * rows + begin, turn});
  }
  return stored;
}

}  // namespace tessera::nn

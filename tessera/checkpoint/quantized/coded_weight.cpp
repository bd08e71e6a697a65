#include "tessera/checkpoint/quantized/coded_weight.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/checkpoint/quantized/parts.h"
#include "tessera/core/error.h"
#include "tessera/core/round_up.h"
#include "tessera/device/host_memory.h"

namespace tessera::checkpoint::quantized {
namespace {

// Elements that are read at a time; they take at most 9 bytes each on the way.
constexpr int64_t kPieceElements = int64_t{1} << 20;
// Rows of a piece of a weight that is kept by columns: 16 KiB of a file's row in words.
constexpr int64_t kPieceRows = 4096;
constexpr int64_t kMostElements = 256;  // of a block

// The blocks of one piece of a weight, before they are put together.
struct Piece {
  Box box;
  std::vector<uint8_t> codes;
  std::vector<float> scales, zeros;
};

void check_piece(const io::ModelFiles& files, const CodedWeight& weight, const Piece& piece) {
  const auto is_finite = [](float x) { return std::isfinite(x); };
  if (!std::ranges::all_of(piece.scales, is_finite) || !std::ranges::all_of(piece.zeros, is_finite)) {
    throw broken(files, weight.codes_in, "a scale of this weight is not finite");
  }
  if (weight.form.kind != io::BlockKind::E4m3) return;
  if (std::ranges::any_of(piece.codes, [](uint8_t code) { return (code & 0x7f) == 0x7f; })) {
    throw broken(files, weight.codes_in, "a value of this weight is no number");
  }
}

// Calls use(piece) for all pieces of a box of whole blocks.
template <class Use>
void each_piece(const io::ModelFiles& files, const CodedWeight& weight, const Box& box, const Use& use) {
  const int64_t block = weight.form.elements, rows = box.size[0], columns = box.size[1];
  const int64_t most_rows =
      weight.is_by_columns ? kPieceRows : std::max<int64_t>(1, kPieceElements / columns);
  const int64_t row_step = std::min(rows, most_rows);
  const int64_t column_step =
      std::min(columns, std::max<int64_t>(1, kPieceElements / row_step / block) * block);
  Piece piece;
  for (int64_t row = 0; row < rows; row += row_step) {
    for (int64_t column = 0; column < columns; column += column_step) {
      piece.box = {{box.offset[0] + row, box.offset[1] + column},
                   {std::min(row_step, rows - row), std::min(column_step, columns - column)}};
      const auto num_blocks = static_cast<size_t>(piece.box.numel() / block);
      piece.codes.resize(static_cast<size_t>(piece.box.numel()));
      piece.scales.resize(num_blocks);
      piece.zeros.resize(io::has_zero(weight.form.kind) ? num_blocks : 0);
      weight.codes->read(piece.box, piece.codes.data());
      weight.scales->read(piece.box, block, piece.scales.data(),
                          piece.zeros.empty() ? nullptr : piece.zeros.data());
      check_piece(files, weight, piece);
      use(piece);
    }
  }
}

// Writes row `row` of a piece as blocks.
void write_row(const io::BlockForm& form, const Piece& piece, int64_t row, uint8_t* to) {
  const int64_t in_row = piece.box.size[1] / form.elements;
  for (int64_t k = row * in_row; k < (row + 1) * in_row; ++k, to += form.bytes) {
    const auto at = static_cast<size_t>(k);
    io::write_block(form, piece.scales[at], piece.zeros.empty() ? 0.0f : piece.zeros[at],
                    piece.codes.data() + k * form.elements, to);
  }
}

// Calls f(row) for all rows of a piece, on several threads if there is much to do.
template <class F>
void each_row(const Piece& piece, const F& f) {
  constexpr int64_t kPerTask = int64_t{1} << 15;
  at::parallel_for(0, piece.box.size[0], std::max<int64_t>(1, kPerTask / piece.box.size[1]),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t row = begin; row < end; ++row) f(row);
                   });
}

}  // namespace

io::BlockForm fitting_form(io::BlockKind kind, int64_t columns, int64_t group) {
  const int64_t common = std::gcd(columns, group);
  int64_t elements = std::min(common, kMostElements);
  while (common % elements != 0) --elements;
  return io::block_form(kind, elements);
}

void read_blocks(const io::ModelFiles& files, const CodedWeight& weight, const Box& box,
                 const at::Tensor& destination) {
  const io::BlockForm& form = weight.form;
  TESSERA_ASSERT(box.offset[1] % form.elements == 0 && box.size[1] % form.elements == 0, "whole blocks");
  TESSERA_ASSERT(is_on_host(destination) && destination.is_contiguous() &&
                     destination.sizes() == at::IntArrayRef({box.size[0], form.row_bytes(box.size[1])}),
                 "a destination for the box's blocks");
  if (destination.numel() == 0) return;
  const at::NoGradGuard no_grad;
  const int64_t row_bytes = destination.size(1);
  uint8_t* const to = destination.mutable_data_ptr<uint8_t>();
  each_piece(files, weight, box, [&](const Piece& piece) {
    const int64_t first = piece.box.offset[0] - box.offset[0];
    const int64_t skipped = form.row_bytes(piece.box.offset[1] - box.offset[1]);
    each_row(piece,
             [&](int64_t row) { write_row(form, piece, row, to + (first + row) * row_bytes + skipped); });
  });
}

void read_values(const io::ModelFiles& files, const CodedWeight& weight, const Box& box,
                 const at::Tensor& destination) {
  if (destination.numel() == 0) return;
  const at::NoGradGuard no_grad;
  const io::BlockForm& form = weight.form;
  // The box with whole blocks at its ends.
  const int64_t begin = box.offset[1] / form.elements * form.elements, end = box.offset[1] + box.size[1];
  const int64_t whole = round_up(end - begin, form.elements);
  each_piece(files, weight, {{box.offset[0], begin}, {box.size[0], whole}}, [&](const Piece& piece) {
    const int64_t rows = piece.box.size[0], columns = piece.box.size[1];
    const at::Tensor values = at::empty({rows, columns}, on_host(at::kFloat));
    float* const to = values.mutable_data_ptr<float>();
    each_row(piece, [&](int64_t row) {
      std::vector<uint8_t> blocks(static_cast<size_t>(form.row_bytes(columns)));
      write_row(form, piece, row, blocks.data());
      io::expand_blocks(form, blocks.data(), columns / form.elements, to + row * columns);
    });
    // The columns of the piece that the box has.
    const int64_t first = std::max(piece.box.offset[1], box.offset[1]);
    const int64_t count = std::min(piece.box.offset[1] + columns, end) - first;
    destination.narrow(0, piece.box.offset[0] - box.offset[0], rows)
        .narrow(1, first - box.offset[1], count)
        .copy_(values.narrow(1, first - piece.box.offset[1], count));
  });
}

}  // namespace tessera::checkpoint::quantized

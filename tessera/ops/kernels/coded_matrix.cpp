#include "tessera/ops/kernels/coded_matrix.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/io/ggml_expand.h"
#include "tessera/ops/kernels/vector_math.h"

namespace tessera::ops::kernels {
namespace {

// The largest block of any form (io/weight_blocks.h).
constexpr int64_t kMostElements = 256;
constexpr int64_t kEight = 8;

typedef float EightFloats __attribute__((vector_size(32)));
typedef int32_t EightInts __attribute__((vector_size(32)));

// The codes of a block, eight at a time. The tables of four-bit codes lie in two registers.
struct Table {
  EightFloats low, high;
};

TESSERA_INLINE Table load_table(const float* values) {
  Table table;
  memcpy(&table.low, values, sizeof table.low);
  memcpy(&table.high, values + kEight, sizeof table.high);
  return table;
}

// Returns eight codes of four bits from four bytes.
TESSERA_INLINE EightInts load_nibbles(const uint8_t* codes) {
  uint32_t word;
  memcpy(&word, codes, sizeof word);
  typedef uint32_t EightWords __attribute__((vector_size(32)));
  const EightWords all = EightWords{} + word, shifts = {0, 4, 8, 12, 16, 20, 24, 28};
  return reinterpret_cast<EightInts>((all >> shifts) & 15u);
}

// Returns the value of a code of e4m3, without branches and without denormals of float32.
TESSERA_INLINE float of_e4m3(uint8_t code) {
  const uint32_t magnitude = code & 0x7fu, sign = (code & 0x80u) << 24;
  const float small = static_cast<float>(static_cast<int32_t>(magnitude)) * 0.001953125f;  // 2^-9
  const uint32_t normal = magnitude == 0x7fu ? 0x7fc00000u : (magnitude << 20) + (120u << 23);
  return float_of((magnitude < 8u ? bits_of(small) : normal) | sign);
}

TESSERA_INLINE int8_t as_signed(uint8_t code) { return static_cast<int8_t>(code); }

TESSERA_INLINE EightFloats look_up(const Table& table, EightInts codes) {
  const EightInts low = codes & 7;
  return codes > 7 ? __builtin_shuffle(table.high, low) : __builtin_shuffle(table.low, low);
}

// Writes eight values at a time: value(codes) returns those of four bytes of codes.
template <class Value>
TESSERA_INLINE void expand_nibbles(const uint8_t* codes, int64_t count, float* to, const Value& value) {
  for (int64_t i = 0; i < count; i += kEight) {
    const EightFloats values = value(load_nibbles(codes + i / 2));
    memcpy(to + i, &values, sizeof values);
  }
}

// Expands blocks whose number of elements is a multiple of eight.
TESSERA_INLINE void expand_vectors(const io::BlockForm& form, const uint8_t* block, int64_t num_blocks,
                                   float* to) {
  using io::BlockKind;
  const int64_t count = form.elements;
  const bool has_table =
      form.kind == BlockKind::Nf4 || form.kind == BlockKind::Fp4 || form.kind == BlockKind::E2m1;
  Table table{};
  if (has_table) table = load_table(io::code_table(form.kind));
  for (int64_t i = 0; i < num_blocks; ++i, block += form.bytes, to += count) {
    float scale, zero;
    memcpy(&scale, block, sizeof scale);
    memcpy(&zero, block + 4, sizeof zero);
    const uint8_t *codes = block + 4, *after_zero = block + 8;
    switch (form.kind) {
      case BlockKind::Nf4:
      case BlockKind::Fp4:
      case BlockKind::E2m1:
        expand_nibbles(codes, count, to, [&](EightInts q) { return look_up(table, q) * scale; });
        break;
      case BlockKind::Affine4:
        expand_nibbles(after_zero, count, to,
                       [&](EightInts q) { return (__builtin_convertvector(q, EightFloats) - zero) * scale; });
        break;
      case BlockKind::Affine8:
        for (int64_t k = 0; k < count; ++k) to[k] = (static_cast<float>(after_zero[k]) - zero) * scale;
        break;
      case BlockKind::Int8:
        for (int64_t k = 0; k < count; ++k) to[k] = static_cast<float>(as_signed(codes[k])) * scale;
        break;
      case BlockKind::LlmInt8:
        for (int64_t k = 0; k < count; ++k) {
          to[k] = static_cast<float>(as_signed(codes[k])) * scale * (1.0f / 127.0f);
        }
        break;
      case BlockKind::E4m3:
        for (int64_t k = 0; k < count; ++k) to[k] = of_e4m3(codes[k]) * scale;
        break;
      case BlockKind::Ggml: break;
    }
  }
}

TESSERA_INLINE void expand(const io::BlockForm& form, const uint8_t* blocks, int64_t num_blocks, float* to) {
  if (form.kind == io::BlockKind::Ggml) {
    io::ggml::expand(form.ggml, blocks, num_blocks, to);
  } else if (form.elements % kEight == 0) {
    expand_vectors(form, blocks, num_blocks, to);
  } else {
    io::expand_blocks(form, blocks, num_blocks, to);
  }
}

// Expands the blocks that hold elements [first, first + count): those at the ends, of which only a part is
// wanted, by way of a buffer.
TESSERA_INLINE void read_row(const io::BlockForm& form, const uint8_t* row, int64_t first, int64_t count,
                             float* to) {
  float buffer[kMostElements];
  while (count > 0) {
    const int64_t block = first / form.elements, skipped = first % form.elements;
    const int64_t whole = skipped == 0 ? count / form.elements : 0;
    int64_t done = whole * form.elements;
    if (whole > 0) {
      expand(form, row + block * form.bytes, whole, to);
    } else {
      done = count < form.elements - skipped ? count : form.elements - skipped;
      expand(form, row + block * form.bytes, 1, buffer);
      memcpy(to, buffer + skipped, static_cast<size_t>(done) * sizeof(float));
    }
    first += done, count -= done, to += done;
  }
}

}  // namespace

void read_coded_row(const CodedMatrix& matrix, int64_t row, int64_t first, int64_t count, float* to) {
  TESSERA_ASSERT(matrix.form.elements <= kMostElements, "a block of a known form");
  const uint8_t* const from = matrix.row(row);
  const io::BlockForm* const form = &matrix.form;
  TESSERA_BEST_ISA(read_row(*form, from, first, count, to));
}

void read_coded_row(const CodedMatrix& matrix, int64_t row, int64_t first, int64_t count, Bf16* to) {
  float buffer[kMostElements];
  while (count > 0) {
    const int64_t done = std::min(count, kMostElements - first % kMostElements);
    read_coded_row(matrix, row, first, done, buffer);
    narrow(buffer, to, done);
    first += done, count -= done, to += done;
  }
}

}  // namespace tessera::ops::kernels

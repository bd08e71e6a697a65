// The forms in which quantised weights are kept: rows of blocks, each with its own scale.
//
// Every quantised format that Tessera reads becomes one of these forms when it is loaded, or is one as it
// stands (GGUF). A row of a weight is a whole number of blocks, so rows can be dealt to ranks, and columns in
// whole blocks. The values are those of the format's reference, to the last bit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/io/ggml_quants.h"

namespace tessera::io {

// How a block's codes become values. All but Ggml lie as: float32 scale, [float32 zero,] codes. Two codes of
// four bits share a byte, the first one in its low half.
enum class BlockKind : uint8_t {
  Ggml,     // a block of the ggml type `ggml`, as in a GGUF file
  Nf4,      // scale * t[code]: the NormalFloat4 of QLoRA (Dettmers et al., arXiv 2305.14314)
  Fp4,      // scale * t[code]: bitsandbytes' FP4, e2m1 over 12
  E2m1,     // scale * t[code]: the OCP's e2m1, of MXFP4 and NVFP4
  Int8,     // scale * q, q a signed byte
  LlmInt8,  // (q * scale) * fl(1 / 127): bitsandbytes' LLM.int8, the scale is the row's largest magnitude
  E4m3,     // scale * e4m3
  Affine4,  // scale * (q - zero), q four bits
  Affine8,  // scale * (q - zero), q an unsigned byte; also for codes of 2, 3, 5, 6 and 7 bits
};

// A form, and the size of its blocks in elements and in bytes.
struct BlockForm {
  BlockKind kind = BlockKind::Nf4;
  GgmlType ggml = GgmlType::F32;  // for BlockKind::Ggml
  int64_t elements = 0, bytes = 0;

  // Returns the bytes of a row of `columns` elements, a multiple of `elements`.
  int64_t row_bytes(int64_t columns) const { return columns / elements * bytes; }
  bool operator==(const BlockForm&) const = default;
};

// Tells whether blocks of this kind have a zero behind their scale.
constexpr bool has_zero(BlockKind kind) { return kind == BlockKind::Affine4 || kind == BlockKind::Affine8; }

// Returns the form with blocks of `elements` elements, or of a ggml type.
BlockForm block_form(BlockKind kind, int64_t elements);
BlockForm block_form(GgmlType type);
// Returns a name for messages: "nf4, blocks of 64", "Q4_K".
std::string name_of(const BlockForm& form);

// The sixteen values of a kind with a table (Nf4, Fp4, E2m1), by code.
const float* code_table(BlockKind kind);
// The values of all 256 codes of e4m3 (e4m3fn: no infinities; 0x7f and 0xff are NaN).
const float* e4m3_table();

// Expands `num_blocks` consecutive blocks to their values.
void expand_blocks(const BlockForm& form, const void* blocks, int64_t num_blocks, float* values);

// Writes one block of a kind other than Ggml. codes: `elements` of them, one a byte.
void write_block(const BlockForm& form, float scale, float zero, const uint8_t* codes, uint8_t* block);

// Cuts elements [first, first + count) of a row of blocks into blocks of `small`, the same kind with fewer
// elements that divide those of `form`; first and count are whole small blocks. Not for Ggml.
void split_blocks(const BlockForm& form, const uint8_t* row, int64_t first, int64_t count,
                  const BlockForm& small, uint8_t* to);

// Quantises as bitsandbytes' kernels for the processor do (QLoRA), where `scale` is the largest magnitude of
// the block of `block_elements` elements of the whole tensor to which the values belong.
//
// Writes the codes of kind Nf4 or Fp4, one a byte. is_short: the values belong to a last block that
// is not full, which is divided by the scale instead of multiplied by its inverse.
void code_in_four_bits(BlockKind kind, const float* values, int64_t count, float scale, bool is_short,
                       uint8_t* codes);

// The scales of a tensor's blocks after double quantisation (arXiv 2305.14314, section 3): the mean of all
// scales is taken away, the rest is coded in eight bits by the dynamic map, in groups of 256 with one scale
// each, and read again. Replaces `scales`, one for each block in the flat order of the tensor.
void quantize_scales(std::vector<float>& scales);

// The 256 values of bitsandbytes' signed dynamic map, ascending.
const float* dynamic_map();

}  // namespace tessera::io

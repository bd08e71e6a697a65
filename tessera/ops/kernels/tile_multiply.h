// Products of packed operands (tile_pack.h) on the processor's tile units, for one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/ops/kernels/tile_pack.h"

namespace tessera::ops::kernels {

// Whether this processor has tile units for bf16, the system lets this process use them, and the environment
// does not say TESSERA_TILES=0. The first call asks; the answer stays.
bool has_tiles();

// Sets the calling thread's tiles up for multiply_packed, and gives them free at its end. Needs has_tiles().
class TileSession {
 public:
  TileSession();
  ~TileSession();
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
};

// Packed lines of one operand.
struct Packed {
  const char* memory;
  int64_t lines, panel_bytes;
  int64_t panels() const { return panels_of(lines); }
  const char* panel(int64_t i) const { return memory + i * panel_bytes; }
  int64_t panel_lines(int64_t i) const { return std::min(kPanelLines, lines - i * kPanelLines); }
};

// C = L R + beta C for the whole depth of the panels, which is the same on both sides; C: [left.lines,
// right.lines], ldc elements between rows. Sums in float32. Every panel on the left meets `group` panels on
// the right before the next ones come: what is met again should fit in the second-level cache. C may hold NaN
// where beta is 0. Within the life of a TileSession of this thread.
//
// T is the type that was packed, float or Bf16; Out the type of C: float, or Bf16 where T is Bf16.
template <class T, class Out>
void multiply_packed(const Packed& left, const Packed& right, int64_t group, float beta, Out* c, int64_t ldc);

// C = L R, or C += L R with `adds`, for one panel by one, the first `blocks` blocks of each; C: [32, 32], ldc
// elements between rows. For many small products whose results stay in the first-level cache. Within the life
// of a TileSession of this thread.
template <class T>
void multiply_panel(const char* left, const char* right, int64_t blocks, bool adds, float* c, int64_t ldc);

// to = sum + beta to over n elements, for Out = float and Bf16.
template <class Out>
void add_sums(const float* sum, float beta, Out* to, int64_t n);

}  // namespace tessera::ops::kernels

// Tells what this processor offers and how much of it is used, and guards against AMX that is advertised but
// unusable.
#pragma once

#include <string>

namespace tessera {

struct CpuFeatures {
  bool avx2 = false;     // and FMA
  bool avx512f = false;  // and its parts BW, DQ and VL
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool avx512_fp16 = false;
  bool amx_bf16 = false;
  // AMX is advertised but CPUID leaf 0x1D holds no tile palette (some hypervisors hide it): oneDNN then
  // dies of SIGILL on its first bf16 product.
  bool amx_palette_missing = false;
};

// Reads CPUID; all false on another architecture than x86-64.
CpuFeatures detect_cpu_features();

// The instruction sets for which there are kernels of our own; each includes those before it.
enum class Isa { Baseline, Avx2, Avx512, Amx };

// Gives the best instruction set that this processor has and that the system lets the process use. Asks the
// system for its permission to use tile units.
Isa best_isa();

// Gives best_isa(), but none above the one that TESSERA_ISA names (baseline, avx2, avx512 or amx). The first
// call decides, and its answer stays. Throws as guard_cpu_features() does.
Isa usable_isa();

// The name that TESSERA_ISA has for it: "baseline", "avx2", "avx512" or "amx".
const char* name_of(Isa isa);

// Call before the first LibTorch call of the process. Holds LibTorch, oneDNN and MKL to TESSERA_ISA, by their
// own environment variables where the user did not set them. Where AMX is advertised without a palette, caps
// oneDNN below AMX (ONEDNN_MAX_CPU_ISA) and returns the line to log; otherwise returns "". Throws
// E-CONFIG-ENVIRONMENT where TESSERA_ISA names no instruction set.
std::string guard_cpu_features();

}  // namespace tessera

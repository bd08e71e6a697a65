// What this processor offers, and the guard against advertised but unusable AMX.
#pragma once

#include <string>

namespace tessera {

struct CpuFeatures {
  bool avx2 = false;
  bool avx512f = false;
  bool avx512_bf16 = false;
  bool avx512_fp16 = false;
  bool amx_bf16 = false;
  // AMX is advertised but CPUID leaf 0x1D holds no tile palette (some hypervisors hide it): oneDNN then
  // dies of SIGILL on its first bf16 product.
  bool amx_palette_missing = false;
};

// Reads CPUID; all false on another architecture than x86-64.
CpuFeatures detect_cpu_features();

// Call before the first LibTorch call of the process. Where AMX is advertised without a palette, caps
// oneDNN below AMX (environment variable ONEDNN_MAX_CPU_ISA, unless the user set it) and returns the line
// to log; otherwise returns "".
std::string guard_cpu_features();

}  // namespace tessera

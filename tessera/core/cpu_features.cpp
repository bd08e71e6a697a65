#include "tessera/core/cpu_features.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tessera {

CpuFeatures detect_cpu_features() {
  CpuFeatures features;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return features;
  features.avx2 = (b >> 5) & 1;
  features.avx512f = (b >> 16) & 1;
  features.avx512_fp16 = (d >> 23) & 1;
  features.amx_bf16 = ((d >> 22) & 1) && ((d >> 24) & 1);
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) features.avx512_bf16 = (a >> 5) & 1;
  if (features.amx_bf16) {
    constexpr unsigned kTileLeaf = 0x1D;
    bool has_palette = false;
    if (__get_cpuid_max(0, nullptr) >= kTileLeaf) {
      __cpuid_count(kTileLeaf, 1, a, b, c, d);
      has_palette = (a | b | c | d) != 0;
    }
    features.amx_palette_missing = !has_palette;
  }
#endif
  return features;
}

std::string guard_cpu_features() {
  if (!detect_cpu_features().amx_palette_missing) return "";
  if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr || std::getenv("DNNL_MAX_CPU_ISA") != nullptr) return "";
  setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16", 1);
  return "this machine advertises AMX but hides its tile palette: oneDNN is capped at AVX512_CORE_FP16";
}

}  // namespace tessera

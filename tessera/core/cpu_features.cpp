#include "tessera/core/cpu_features.h"

#include <algorithm>
#include <array>
#include <optional>

#include "tessera/core/environment.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#endif

namespace tessera {
namespace {

constexpr std::array kNames = {"baseline", "avx2", "avx512", "amx"};

// The instruction set that TESSERA_ISA names; empty if it is not set. Throws if it names none.
std::optional<Isa> wanted_isa() {
  const auto name = environment::get("TESSERA_ISA");
  if (!name) return std::nullopt;
  return static_cast<Isa>(std::find(kNames.begin(), kNames.end(), *name) - kNames.begin());
}

#if defined(__x86_64__)
bool bit(unsigned word, int i) { return ((word >> i) & 1u) != 0; }

// Tells whether the system saves and restores the registers of this mask of XCR0.
bool system_keeps(unsigned mask) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || !bit(c, 27)) return false;
  unsigned kept = 0, kept_high = 0;
  __asm__("xgetbv" : "=a"(kept), "=d"(kept_high) : "c"(0));
  return (kept & mask) == mask;
}

// Asks the kernel for the permission to use tile data, which holds for the whole process.
bool ask_for_tiles() {
#if defined(__linux__)
  constexpr int kArchRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kArchRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

Isa detect_isa(Isa most) {
#if defined(__x86_64__)
  // The registers, as bits of XCR0, that the system must save and restore.
  constexpr unsigned kVectors = 0x6, kVectorsAndMasks = 0xe6, kTiles = 0x600e6;
  const CpuFeatures cpu = detect_cpu_features();
  if (most < Isa::Avx2 || !cpu.avx2 || !system_keeps(kVectors)) return Isa::Baseline;
  if (most < Isa::Avx512 || !cpu.avx512f || !system_keeps(kVectorsAndMasks)) return Isa::Avx2;
  if (most < Isa::Amx || !cpu.amx_bf16 || !cpu.avx512_bf16 || !system_keeps(kTiles) || !ask_for_tiles()) {
    return Isa::Avx512;
  }
  return Isa::Amx;
#else
  static_cast<void>(most);
  return Isa::Baseline;
#endif
}

bool is_onednn_held() {
  return environment::get("ONEDNN_MAX_CPU_ISA") || environment::get("DNNL_MAX_CPU_ISA");
}

// Holds LibTorch, oneDNN and MKL to an instruction set, by the name that each has for it. Variables that the
// user has set stay.
void hold_libtorch_to(Isa isa) {
  struct Names {
    const char *aten, *onednn, *mkl;
  };
  if (isa == Isa::Amx) return;
  const Names names = isa == Isa::Avx512 ? Names{"avx512", "AVX512_CORE_FP16", "AVX512"}
                      : isa == Isa::Avx2 ? Names{"avx2", "AVX2", "AVX2"}
                                         : Names{"default", "SSE41", "SSE4_2"};
  environment::set_default("ATEN_CPU_CAPABILITY", names.aten);
  environment::set_default("MKL_ENABLE_INSTRUCTIONS", names.mkl);
  if (!is_onednn_held()) environment::set("ONEDNN_MAX_CPU_ISA", names.onednn);
}

}  // namespace

CpuFeatures detect_cpu_features() {
  CpuFeatures features;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  // All known processors that have AVX2 can convert float16, too (F16C).
  const bool has_fma_and_half = __get_cpuid(1, &a, &b, &c, &d) != 0 && bit(c, 12) && bit(c, 29);
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return features;
  features.avx2 = has_fma_and_half && bit(b, 5);
  features.avx512f = bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31);
  features.avx512_vnni = bit(c, 11);
  features.avx512_fp16 = bit(d, 23);
  features.amx_bf16 = bit(d, 22) && bit(d, 24);
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) features.avx512_bf16 = bit(a, 5);
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

Isa best_isa() { return detect_isa(Isa::Amx); }

Isa usable_isa() {
  static const Isa answer = detect_isa(wanted_isa().value_or(Isa::Amx));
  return answer;
}

const char* name_of(Isa isa) { return kNames[static_cast<size_t>(isa)]; }

std::string guard_cpu_features() {
  // LibTorch does not check what the machine has, so it is never held to more than is there.
  if (const auto wanted = wanted_isa()) hold_libtorch_to(std::min(*wanted, best_isa()));
  if (!detect_cpu_features().amx_palette_missing) return "";
  if (is_onednn_held()) return "";
  environment::set("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16");
  return "this machine advertises AMX but hides its tile palette: oneDNN is capped at AVX512_CORE_FP16";
}

}  // namespace tessera

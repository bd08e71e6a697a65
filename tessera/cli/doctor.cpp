// The verb `tessera doctor`.
#include <cstdio>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <torch/version.h>

#include "tessera/cli/before_main.h"
#include "tessera/cli/verbs.h"
#include "tessera/comm/nccl/nccl_library.h"
#include "tessera/comm/version.h"
#include "tessera/core/core_set.h"
#include "tessera/core/cpu_features.h"
#include "tessera/core/cuda_driver.h"
#include "tessera/core/cuda_library.h"
#include "tessera/core/environment.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/shared_library.h"
#include "tessera/core/strings.h"
#include "tessera/device/cuda_devices.h"
#include "tessera/device/device_memory.h"
#include "tessera/io/file.h"
#include "tessera/measure/device_rates.h"
#include "tessera/measure/speed_of_light.h"
#include "tessera/ops/cuda/attention_kernel.h"
#include "tessera/ops/cuda/cudnn_library.h"
#include "tessera/ops/cuda/lt_library.h"
#include "tessera/ops/cuda/own_kernels.h"
#include "tessera/ops/product_units.h"

namespace tessera::cli {
namespace {

void row(const char* name, const std::string& value) { std::printf("%-22s %s\n", name, value.c_str()); }

std::string cpu_name() {
  std::FILE* file = std::fopen("/proc/cpuinfo", "r");
  if (file == nullptr) return "unknown";
  char line[512];
  std::string name = "unknown";
  while (std::fgets(line, sizeof line, file) != nullptr) {
    const std::string text = line;
    if (text.rfind("model name", 0) != 0) continue;
    const size_t colon = text.find(": ");
    if (colon != std::string::npos) name = text.substr(colon + 2, text.size() - colon - 3);
    break;
  }
  std::fclose(file);
  return name;
}

double gemm_rate(at::ScalarType type, int threads, measure::GemmPath path) {
  const int saved = at::get_num_threads();
  at::set_num_threads(threads);
  const double rate = measure::gemm_rate(type, path);
  at::set_num_threads(saved);
  return rate;
}

// Lists the variables of this program that the user has set.
std::string settings() {
  std::vector<std::string> texts;
  for (const environment::Variable& variable : environment::variables()) {
    if (!variable.name.starts_with("TESSERA_")) continue;
    if (const auto value = environment::get(variable.name)) {
      texts.push_back(std::string(variable.name) + "=" + *value);
    }
  }
  return (texts.empty() ? "no variable set" : join(texts, ", ")) +
         " (all there are: tessera help environment)";
}

// Says how ranks would share the cores of this process.
std::string cores_of_ranks(size_t num_ranks) {
  const CoreSet all = usable_core_set();
  const std::vector<CoreSet> sets(num_ranks, all);
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    const CoreShare share = share_of_cores(sets, rank, by_topology(all));
    if (share.cores.empty()) return "unbound, " + std::to_string(share.threads) + " thread(s) each";
    texts.push_back(to_string(share.cores));
  }
  const bool is_crowded = running_threads_of_others() > kCrowd;
  return join(texts, " and ") +
         (is_crowded ? " when idle; not bound now, because other programs are computing" : "");
}

template <class T>
std::string units_in_use() {
  const ops::kernels::Units<T>* units = ops::product_units<T>();
  if (units == nullptr) return "in LibTorch";
  const std::string way = units->isa == Isa::Amx      ? "on the tile units"
                          : units->isa == Isa::Avx512 ? "on the vector units (AVX-512)"
                                                      : "on the vector units (AVX2)";
  const bool is_float = sizeof(T) == sizeof(float);
  const std::string form = is_float && units->isa == Isa::Amx    ? ", in three bfloat16 parts"
                           : !is_float && !ops::has_bf16_units() ? ", converted to float32 on the fly"
                                                                 : "";
  return way + form + " (TESSERA_PRODUCTS=libtorch: in LibTorch)";
}

// Returns the library's version and its purpose, or why it cannot be used.
template <class Library>
std::string describe_library(const std::string& purpose) {
  std::string why_not;
  const auto library = Library::open(why_not);
  return library ? version_text(library->version()) + ", for " + purpose : "not used: " + why_not;
}

// Prints the GPUs, or why they are not used.
void tell_gpus(const CudaDevices& devices) {
  const cuda::Driver& driver = cuda::driver();
  if (driver.gpus.empty() || cuda::missing() == cuda::Missing::Nothing) {
    if (devices.count == 0) row("GPU", "none: " + devices.why_none);
  } else {
    row("GPU", cuda::describe(driver.gpus.front()) + ", not used: " + devices.why_none);
  }
  if (devices.count == 0) return;
  for (const cuda::Gpu& gpu : driver.gpus) row("GPU", cuda::describe(gpu));
  row("driver of the GPU", "CUDA " + std::to_string(driver.cuda_version / 1000) + '.' +
                               std::to_string(driver.cuda_version % 1000 / 10));
  const std::string problem = ops::cuda::own_kernels().why_not;
  row("GPU kernels", problem.empty() ? "libtessera_cuda.so" : "LibTorch's: " + problem);
  row("cuDNN", ops::cuda::wants_cudnn()
                   ? describe_library<ops::cuda::CudnnLibrary>(
                         "attention over long documents (TESSERA_CUDNN=0: flash attention 2)")
                   : "not used: TESSERA_CUDNN=0");
  row("cuBLASLt", describe_library<ops::cuda::LtLibrary>("sums of fp8 products"));
  row("NCCL", describe_library<comm::detail::NcclLibrary>("several ranks"));
}

// Prints rates that are measured on the first device.
void print_device_rates() {
  const c10::Device device(c10::DeviceType::CUDA, 0);
  std::printf("\nthe first GPU has %s of free memory\n",
              format_bytes(device_room(device).free_bytes).c_str());
  for (const measure::DeviceRate& rate : measure::measure_device_rates(device)) {
    if (rate.problem.empty()) {
      std::printf("%-22s %10.0f %s\n", rate.name.c_str(), rate.value, rate.unit.c_str());
    } else {
      std::printf("%-22s %10s %s\n", rate.name.c_str(), "-", rate.problem.c_str());
    }
  }
}

std::string instruction_sets(const CpuFeatures& cpu) {
  std::vector<std::string> isa;
  if (cpu.avx2) isa.emplace_back("AVX2");
  if (cpu.avx512f) isa.emplace_back("AVX-512");
  if (cpu.avx512_vnni) isa.emplace_back("AVX512-VNNI");
  if (cpu.avx512_bf16) isa.emplace_back("AVX512-BF16");
  if (cpu.avx512_fp16) isa.emplace_back("AVX512-FP16");
  if (cpu.amx_bf16) isa.emplace_back(cpu.amx_palette_missing ? "AMX (tile palettes hidden)" : "AMX");
  return isa.empty() ? "baseline" : join(isa, ", ");
}

// Measures and prints the rates of matrix products; returns whether those in bfloat16 are faster than those
// in float32.
bool print_product_rates(int threads) {
  using measure::GemmPath;
  std::printf("\nmatrix products, 1024 x 1024 x 1024 (GFLOP/s)\n");
  const std::string all_threads = std::to_string(threads) + " threads";
  std::printf("%-10s %10s %10s %22s %10s\n", "type", "1 thread", all_threads.c_str(), "in LibTorch: 1 thread",
              all_threads.c_str());
  struct Rate {
    const char* name;
    at::ScalarType type;
    double all = 0.0;
  };
  std::vector<Rate> rates = {{"float32", at::kFloat}, {"bfloat16", at::kBFloat16}, {"float64", at::kDouble}};
  for (Rate& rate : rates) {
    rate.all = gemm_rate(rate.type, threads, GemmPath::Ours);
    std::printf("%-10s %10.0f %10.0f %22.0f %10.0f\n", rate.name, gemm_rate(rate.type, 1, GemmPath::Ours),
                rate.all, gemm_rate(rate.type, 1, GemmPath::LibTorch),
                gemm_rate(rate.type, threads, GemmPath::LibTorch));
  }
  return rates[1].all > rates[0].all;
}

int run_doctor() {
  // Devices are looked for before LibTorch is asked for anything.
  const CudaDevices devices = find_cuda_devices();
  const std::string float_products = units_in_use<float>(),
                    bf16_products = units_in_use<ops::kernels::Bf16>();
  const CpuFeatures cpu = detect_cpu_features();
  const int64_t cores = usable_cores();
  row("processor", cpu_name());
  row("cores",
      std::to_string(cores) + " (threads of one process: " + std::to_string(at::get_num_threads()) + ")");
  row("cores of --nproc 2", cores_of_ranks(2));
  row("waiting threads", describe_wait_policy());
  row("instruction sets", instruction_sets(cpu));
  if (cpu.amx_palette_missing) {
    row("AMX trap", "CPUID reports AMX without tile palettes; oneDNN is held at " +
                        environment::get("ONEDNN_MAX_CPU_ISA").value_or("its own choice"));
  }
  row("in use", name_of(usable_isa()) + std::string(" (limited by TESSERA_ISA)"));
  row("float32 products", float_products);
  row("bfloat16 products", bf16_products);
  row("memory",
      format_bytes(usable_memory_bytes()) + ", " + format_bytes(available_memory_bytes()) + " free");
  row("disk here", format_bytes(io::free_space(".")) + " free");
  row("environment", settings());
  row("LibTorch", TORCH_VERSION);
  row("MPI", comm::mpi_library_version());
  tell_gpus(devices);
  const bool prefers_half = print_product_rates(static_cast<int>(cores));
  if (devices.count > 0) {
    print_device_rates();
    std::printf(
        "\ntessera will use: the GPU (device: cpu for the CPU), float32 by default (bf16: true is faster)\n");
    return 0;
  }
  std::printf("\ntessera will use: CPU, %s by default%s; `--nproc N` through mpirun\n", "float32",
              prefers_half ? " (bf16: true is faster here)" : " (bf16: true is not faster here)");
  return 0;
}

}  // namespace

void add_doctor(CLI::App& app, CommandLine& line) {
  CLI::App* verb = app.add_subcommand("doctor", "Show what this machine has and what Tessera will use");
  line.set_action(*verb, run_doctor);
}

}  // namespace tessera::cli

#include "tessera/core/environment.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"

namespace tessera::environment {
namespace {

constexpr std::string_view kSeconds = "seconds, above 0";

constexpr std::string_view kFlag[] = {"0", "1"};
constexpr std::string_view kSets[] = {"baseline", "avx2", "avx512", "amx"};
constexpr std::string_view kWays[] = {"own", "libtorch"};
constexpr std::string_view kOps[] = {"kernels", "plain"};

constexpr Variable kVariables[] = {
    {"TESSERA_BIND", kFlag, "", "bind if there are enough cores and no other program computes",
     "bind ranks to cores: 0 never, 1 even if other programs compute"},
    {"TESSERA_SHARED_MEMORY", kFlag, "", "1",
     "0: ranks on one machine exchange messages instead of using shared memory"},
    {"TESSERA_CACHING_ALLOCATOR", kFlag, "", "1",
     "0: tensors are allocated by the C library, without the memory pool"},
    {"TESSERA_ISA", kSets, "", "the best of this machine",
     "the highest instruction set that Tessera and LibTorch may use"},
    {"TESSERA_PRODUCTS", kWays, "", "own",
     "libtorch: LibTorch computes the matrix products of layers, for comparison"},
    {"TESSERA_OPS", kOps, "", "kernels",
     "plain: do not use Tessera's kernels, but the formulas that run on any device"},
    {"TESSERA_GRAPHS", kFlag, "", "1", "0: do not record decoding steps as CUDA graphs"},
    {"TESSERA_CUDNN", kFlag, "", "1", "0: use flash attention instead of cuDNN for long documents on a GPU"},
    {"TESSERA_START_TIMEOUT", {}, kSeconds, "40, plus 1 for each rank", "time limit for the ranks to start"},
    {"TESSERA_LAUNCHER_OUTPUT", kFlag, "", "0", "1: show the output of mpirun itself"},
    {"NO_COLOR", {}, "any text", "colours on terminals", "if set, errors and warnings have no colour"},
    {"TORCH_SHOW_CPP_STACKTRACES", {}, "0 or 1", "0", "1: show the stack traces of LibTorch's errors"},
    {"TESSERA_LAUNCHED_BY",
     {},
     "a socket",
     "none",
     "set by --nproc for its ranks, which connect to it there"},
    {"OMP_NUM_THREADS",
     {},
     "a number",
     "the cores of the process, divided among the ranks of a machine",
     "number of threads of a process; a value above both 256 and four times the cores is ignored"},
    {"GOMP_SPINCOUNT",
     {},
     "a number",
     "5000, unless OMP_WAIT_POLICY is set",
     "how long an idle thread spins before it sleeps; 1000 suits several runs on the same cores"},
    {"OMP_WAIT_POLICY",
     {},
     "active, passive",
     "see GOMP_SPINCOUNT",
     "whether idle threads spin or sleep, as in OpenMP"},
    {"OMP_PROC_BIND", {}, "as OpenMP has it", "not set", "if set, Tessera does not bind ranks to cores"},
    {"OMP_PLACES", {}, "as OpenMP has it", "not set", "the same"},
    {"GOMP_CPU_AFFINITY", {}, "as OpenMP has it", "not set", "the same"},
    {"OMP_*", {}, "as OpenMP has it", "not set", "read by OpenMP; an invalid value is reported and ignored"},
    {"GOMP_*", {}, "as OpenMP has it", "not set", "the same"},
    {"ATEN_CPU_CAPABILITY", {}, "as LibTorch has it", "by TESSERA_ISA", "instruction sets of LibTorch"},
    {"MKL_ENABLE_INSTRUCTIONS", {}, "as MKL has it", "by TESSERA_ISA", "instruction sets of MKL"},
    {"ONEDNN_MAX_CPU_ISA",
     {},
     "as oneDNN has it",
     "by TESSERA_ISA; below AMX if the machine hides its tiles",
     "instruction sets of oneDNN"},
    {"DNNL_MAX_CPU_ISA", {}, "as oneDNN has it", "not set", "the same, by its older name"},
    {"CUDA_VISIBLE_DEVICES",
     {},
     "as CUDA has it",
     "all devices",
     "which GPUs a process sees, in which order"},
    {"CUBLAS_WORKSPACE_CONFIG",
     {},
     "as cuBLAS has it",
     ":4096:8 with deterministic: true",
     "workspace of cuBLAS for matrix products on a GPU"},
    {"PYTORCH_ALLOC_CONF",
     {},
     "as LibTorch has it",
     "expandable_segments:True",
     "how LibTorch allocates GPU memory"},
    {"PYTORCH_CUDA_ALLOC_CONF", {}, "as LibTorch has it", "not set", "the same, by its older name"},
    {"HF_HUB_CACHE", {}, "a folder", "hub in HF_HOME", "the cache for models and datasets from the hub"},
    {"HF_HOME",
     {},
     "a folder",
     "huggingface in XDG_CACHE_HOME",
     "see HF_HUB_CACHE; the file token in it has the token of hf auth login"},
    {"XDG_CACHE_HOME", {}, "a folder", "~/.cache", "see HF_HOME"},
    {"HF_TOKEN",
     {},
     "a token",
     "the file token in HF_HOME",
     "access token for gated and private files on the hub, and for uploads"},
    {"HF_ENDPOINT", {}, "an address", "https://huggingface.co", "the hub, or a mirror of it"},
    {"HF_HUB_OFFLINE", {}, "1, true, yes, on", "0", "1: download nothing from the hub and upload nothing"},
    {"TRANSFORMERS_OFFLINE", {}, "1, true, yes, on", "0", "the same"},
    {"SSL_CERT_FILE", {}, "a file", "the system's", "the trusted certificates for downloads"},
    {"HTTPS_PROXY",
     {},
     "an address",
     "none",
     "the proxy for the hub, read by libcurl, like https_proxy, ALL_PROXY and NO_PROXY"},
    {"TESSERA_API_KEY", {}, "a key", "none", "the key that clients of tessera serve must send"},
    {"OPENAI_API_KEY", {}, "a key", "none", "the key that tessera judge sends to the endpoint that it asks"},
    {"HOME", {}, "a folder", "/", "what ~ stands for"},
    {"TMPDIR", {}, "a folder", "/tmp, /var/tmp", "temporary files that do not fit in /dev/shm"},
    {"PATH", {}, "folders", "/usr/local/bin:/usr/bin:/bin", "where to look for mpirun"},
    {"OMPI_COMM_WORLD_*", {}, "set by mpirun", "one rank", "rank and number of ranks, of job and machine"},
    {"PMI_*", {}, "set by the launcher", "one rank", "the same under MPICH's launchers and Intel's"},
    {"MPI_LOCAL*", {}, "set by the launcher", "one rank", "the same, of the machine"},
    {"SLURM_*", {}, "set by Slurm", "one rank", "the same under Slurm, and the number of the job's restarts"},
    {"OMPI_ALLOW_RUN_AS_ROOT*", {}, "1", "1", "allows --nproc to run mpirun as root"},
    {"OMPI_MCA_*",
     {},
     "as OpenMPI has it",
     "one machine, shared memory, no remote shell",
     "settings of the mpirun that --nproc starts"},
    {"HWLOC_COMPONENTS", {}, "as hwloc has it", "-gl", "keeps hwloc from connecting to a display"},
    {"OPAL_PREFIX", {}, "a folder", "OpenMPI's own", "set by a package for its own mpirun"},
    {"PMIX_*", {}, "as PMIx has it", "PMIx's own", "the same"},
};

bool matches(const Variable& variable, std::string_view name) {
  const bool is_family = variable.name.ends_with('*');
  return is_family ? name.starts_with(variable.name.substr(0, variable.name.size() - 1))
                   : name == variable.name;
}

// Gives the first row that matches, so narrow names stand in the table before wide ones.
const Variable& row_of(std::string_view name) {
  const auto found = std::find_if(std::begin(kVariables), std::end(kVariables),
                                  [&](const Variable& variable) { return matches(variable, name); });
  TESSERA_ASSERT(found != std::end(kVariables), "an environment variable that is not in the table");
  return *found;
}

[[noreturn]] void refuse(const Variable& variable, const std::string& value) {
  throw Error(ErrorKind::Config, "ENVIRONMENT", "the environment variable " + std::string(variable.name))
      .got("'" + value + "'")
      .need(variable.values_text())
      .hint("tessera help environment");
}

}  // namespace

std::string Variable::values_text() const {
  if (choices.empty()) return std::string(values);
  std::string text;
  for (const std::string_view& choice : choices) {
    if (!text.empty()) text += &choice == &choices.back() ? " or " : ", ";
    text += choice;
  }
  return text;
}

std::span<const Variable> variables() { return kVariables; }

std::optional<std::string> get(std::string_view name) {
  const Variable& variable = row_of(name);
  const char* text = std::getenv(std::string(name).c_str());
  if (text == nullptr || *text == '\0') return std::nullopt;
  std::string value = text;
  const auto& choices = variable.choices;
  if (!choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end()) {
    refuse(variable, value);
  }
  return value;
}

std::optional<bool> get_flag(std::string_view name) {
  TESSERA_ASSERT(row_of(name).choices.data() == kFlag, "no flag");
  const auto value = get(name);
  if (!value) return std::nullopt;
  return *value == "1";
}

std::optional<double> get_seconds(std::string_view name) {
  const auto value = get(name);
  if (!value) return std::nullopt;
  char* end = nullptr;
  const double seconds = std::strtod(value->c_str(), &end);
  if (*end != '\0' || !std::isfinite(seconds) || seconds <= 0.0) refuse(row_of(name), *value);
  return seconds;
}

void set(std::string_view name, const std::string& value) {
  static_cast<void>(row_of(name));
  setenv(std::string(name).c_str(), value.c_str(), 1);
}

void set_default(std::string_view name, const std::string& value) {
  if (!get(name)) set(name, value);
}

void unset(std::string_view name) {
  static_cast<void>(row_of(name));
  unsetenv(std::string(name).c_str());
}

void check() {
  for (const Variable& variable : kVariables) {
    if (variable.values == kSeconds) {
      get_seconds(variable.name);
    } else if (!variable.name.ends_with('*')) {
      get(variable.name);
    }
  }
}

}  // namespace tessera::environment

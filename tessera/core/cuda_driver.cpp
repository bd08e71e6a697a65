#include "tessera/core/cuda_driver.h"

#include "tessera/core/environment.h"
#include "tessera/core/shared_library.h"
#include "tessera/core/strings.h"

namespace tessera::cuda {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";
// The folders in which containers and WSL have the driver, beside the loader's own places.
constexpr const char* kFolders[] = {"/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib"};

// Numbers of cuda.h, which is not needed to build: the driver keeps them. Its functions give 0 for success.
constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76;

struct Functions {
  int (*init)(unsigned flags) = nullptr;
  int (*version)(int*) = nullptr;
  int (*count)(int*) = nullptr;
  int (*device)(int*, int index) = nullptr;
  int (*name)(char*, int size, int device) = nullptr;
  int (*memory)(size_t*, int device) = nullptr;
  int (*attribute)(int*, int attribute, int device) = nullptr;
  int (*error_text)(int code, const char**) = nullptr;
};

// Finds the driver's functions. Gives the reason why there are none, else an empty text.
std::string find(Functions& driver) {
  std::vector<std::string> candidates = {kLibrary};
  for (const char* folder : kFolders) candidates.push_back(std::string(folder) + '/' + kLibrary);
  SharedLibrary library(candidates);
  library.find(driver.init, "cuInit");
  library.find(driver.version, "cuDriverGetVersion");
  library.find(driver.count, "cuDeviceGetCount");
  library.find(driver.device, "cuDeviceGet");
  library.find(driver.name, "cuDeviceGetName");
  library.find(driver.memory, "cuDeviceTotalMem_v2");
  library.find(driver.attribute, "cuDeviceGetAttribute");
  library.find(driver.error_text, "cuGetErrorString");
  if (library.is_usable()) return "";
  return library.is_missing() ? "no NVIDIA driver: libcuda.so.1 is neither in the loader's search path "
                                "(LD_LIBRARY_PATH, /etc/ld.so.conf) nor in " +
                                    join({std::begin(kFolders), std::end(kFolders)}, ", ")
                              : "the NVIDIA driver cannot be used: " + library.why_not();
}

Gpu gpu_at(const Functions& driver, int index) {
  Gpu gpu;
  gpu.name = "unknown";
  int device = 0;
  if (driver.device(&device, index) != 0) return gpu;
  char name[256] = {};
  if (driver.name(name, sizeof name - 1, device) == 0) gpu.name = name;
  size_t bytes = 0;
  if (driver.memory(&bytes, device) == 0) gpu.memory_bytes = static_cast<int64_t>(bytes);
  driver.attribute(&gpu.multiprocessors, kMultiprocessors, device);
  driver.attribute(&gpu.major, kMajor, device);
  driver.attribute(&gpu.minor, kMinor, device);
  return gpu;
}

std::string error_text(const Functions& driver, int code) {
  const char* text = nullptr;
  const bool is_known = driver.error_text(code, &text) == 0 && text != nullptr;
  return is_known ? text : "error " + std::to_string(code);
}

Driver ask() {
  Driver found;
  Functions driver;
  found.why_no_gpu = find(driver);
  if (!found.why_no_gpu.empty()) return found;
  found.is_there = true;
  driver.version(&found.cuda_version);
  int num_gpus = 0;
  int code = driver.init(0);
  if (code == 0) code = driver.count(&num_gpus);
  for (int i = 0; code == 0 && i < num_gpus; ++i) found.gpus.push_back(gpu_at(driver, i));
  if (!found.gpus.empty()) return found;
  found.why_no_gpu = "the NVIDIA driver finds no device";
  if (code != 0) found.why_no_gpu += ": " + error_text(driver, code);
  if (const auto visible = environment::get("CUDA_VISIBLE_DEVICES"))
    found.why_no_gpu += " (CUDA_VISIBLE_DEVICES='" + *visible + "')";
  return found;
}

}  // namespace

const Driver& driver() {
  static const Driver kFound = ask();
  return kFound;
}

std::string describe(const Gpu& gpu) {
  return gpu.name + " (" + format_bytes(gpu.memory_bytes) + ", " + std::to_string(gpu.multiprocessors) +
         " multiprocessors, compute capability " + std::to_string(gpu.major) + '.' +
         std::to_string(gpu.minor) + ')';
}

}  // namespace tessera::cuda

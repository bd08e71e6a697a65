#include "tessera/core/cuda_driver.h"

#include <dlfcn.h>

#include "tessera/core/environment.h"
#include "tessera/core/strings.h"

namespace tessera::cuda {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";
// Where containers and WSL have it, beside the loader's own places.
constexpr const char* kFolders[] = {"/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib"};

// Of cuda.h, which is not needed to build: the driver keeps these numbers.
constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76;

template <class Function>
Function* function_of(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

// A library that is there and does not open says why; one that is not there is looked for elsewhere.
void* open_driver(std::string& reason) {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const std::string said = dlerror();
  for (const char* folder : kFolders) {
    library = dlopen((std::string(folder) + '/' + kLibrary).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
  }
  const bool is_missing = said.starts_with(kLibrary) && said.find("No such file") != std::string::npos;
  reason = is_missing ? "no NVIDIA driver: libcuda.so.1 is not where the loader looks (LD_LIBRARY_PATH, "
                        "/etc/ld.so.conf), nor in " +
                            join({std::begin(kFolders), std::end(kFolders)}, ", ")
                      : "the NVIDIA driver cannot be opened: " + said;
  return nullptr;
}

using GetCount = int(int*);
using GetDevice = int(int*, int);
using GetName = int(char*, int, int);
using GetMemory = int(size_t*, int);
using GetAttribute = int(int*, int, int);
using GetErrorText = int(int, const char**);

Gpu gpu_at(void* library, int index) {
  const auto get_device = function_of<GetDevice>(library, "cuDeviceGet");
  const auto get_name = function_of<GetName>(library, "cuDeviceGetName");
  const auto get_memory = function_of<GetMemory>(library, "cuDeviceTotalMem_v2");
  const auto get_attribute = function_of<GetAttribute>(library, "cuDeviceGetAttribute");
  Gpu gpu;
  gpu.name = "unknown";
  int device = 0;
  if (get_device == nullptr || get_device(&device, index) != 0) return gpu;
  char name[256] = {};
  if (get_name != nullptr && get_name(name, sizeof name - 1, device) == 0) gpu.name = name;
  size_t bytes = 0;
  if (get_memory != nullptr && get_memory(&bytes, device) == 0)
    gpu.memory_bytes = static_cast<int64_t>(bytes);
  if (get_attribute != nullptr) {
    get_attribute(&gpu.multiprocessors, kMultiprocessors, device);
    get_attribute(&gpu.major, kMajor, device);
    get_attribute(&gpu.minor, kMinor, device);
  }
  return gpu;
}

std::string error_text(void* library, int code) {
  const auto get_text = function_of<GetErrorText>(library, "cuGetErrorString");
  const char* text = nullptr;
  if (get_text != nullptr && get_text(code, &text) == 0 && text != nullptr) return text;
  return "error " + std::to_string(code);
}

Driver ask() {
  Driver driver;
  void* const library = open_driver(driver.why_no_gpu);
  if (library == nullptr) return driver;
  driver.is_there = true;
  const auto init = function_of<int(unsigned)>(library, "cuInit");
  const auto count = function_of<GetCount>(library, "cuDeviceGetCount");
  const auto version = function_of<GetCount>(library, "cuDriverGetVersion");
  if (init == nullptr || count == nullptr) {
    driver.why_no_gpu = "libcuda.so.1 is no driver: it lacks cuInit";
    return driver;
  }
  if (version != nullptr) version(&driver.cuda_version);
  int num_gpus = 0;
  int code = init(0);
  if (code == 0) code = count(&num_gpus);
  for (int i = 0; code == 0 && i < num_gpus; ++i) driver.gpus.push_back(gpu_at(library, i));
  if (!driver.gpus.empty()) return driver;
  driver.why_no_gpu = "the NVIDIA driver finds no device";
  if (code != 0) driver.why_no_gpu += ": " + error_text(library, code);
  if (const auto visible = environment::get("CUDA_VISIBLE_DEVICES"))
    driver.why_no_gpu += " (CUDA_VISIBLE_DEVICES='" + *visible + "')";
  return driver;
}

}  // namespace

const Driver& driver() {
  static const Driver instance = ask();
  return instance;
}

std::string describe(const Gpu& gpu) {
  return gpu.name + " (" + format_bytes(gpu.memory_bytes) + ", " + std::to_string(gpu.multiprocessors) +
         " multiprocessors, compute capability " + std::to_string(gpu.major) + '.' +
         std::to_string(gpu.minor) + ')';
}

}  // namespace tessera::cuda

#include "tessera/core/cuda_library.h"

#include <mutex>

#include <dlfcn.h>
#include <link.h>

#include "tessera/core/cuda_driver.h"
#include "tessera/core/environment.h"
#include "tessera/core/own_library.h"

namespace tessera::cuda {
namespace {

constexpr char kTorch[] = "libtorch_cuda.so", kOwn[] = "libtessera_cuda.so";

struct State {
  std::mutex mutex;
  Missing missing = Missing::Request;
  std::string why_not = "nothing has asked for a CUDA device";
  void* own = nullptr;
  std::string why_no_own = "the CUDA part of LibTorch is not open";
};

State& state() {
  static State instance;
  return instance;
}

// dlopen()'s words for a file that is nowhere, as opposed to one that cannot be opened.
bool is_not_found(const std::string& said, const std::string& name) {
  return said.starts_with(name + ": ") && said.find("No such file") != std::string::npos;
}

// By the loader's places first, where LD_LIBRARY_PATH has the first word; then beside libtorch_cpu.so. All of
// its symbols must be found at once, so that a part of another version is an error here and not in a step.
bool open_libtorch(std::string& reason) {
  if (dlopen(kTorch, RTLD_NOW | RTLD_GLOBAL) != nullptr) return true;
  std::string said = dlerror();
  const std::string folder = libtorch_folder();
  if (!is_not_found(said, kTorch) || folder.empty()) {
    reason = "the CUDA part of LibTorch cannot be opened: " + said;
    return false;
  }
  const std::string beside = folder + '/' + kTorch;
  if (dlopen(beside.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return true;
  said = dlerror();
  reason = is_not_found(said, beside)
               ? "LibTorch has no CUDA part: libtorch_cuda.so is neither where the loader looks "
                 "(LD_LIBRARY_PATH) nor in " +
                     folder
               : "the CUDA part of LibTorch cannot be opened: " + said;
  return false;
}

void open_own(State& now) {
  const std::string path = find_own_library(kOwn);
  now.own = dlopen(path.empty() ? kOwn : path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (now.own != nullptr) {
    now.why_no_own.clear();
    return;
  }
  const std::string said = dlerror();
  now.why_no_own = is_not_found(said, kOwn) ? "this build has no libtessera_cuda.so" : said;
}

void open_now(State& now) {
  const Driver& found = driver();
  if (found.gpus.empty()) {
    now.missing = found.is_there ? Missing::Device : Missing::Driver;
    now.why_not = found.why_no_gpu;
    return;
  }
  if (!environment::get("PYTORCH_CUDA_ALLOC_CONF"))
    environment::set_default("PYTORCH_ALLOC_CONF", "expandable_segments:True");
  if (!open_libtorch(now.why_not)) {
    now.missing = Missing::Library;
    return;
  }
  now.missing = Missing::Nothing;
  now.why_not.clear();
  open_own(now);
}

// A copy of what is known now.
template <class T>
T get(T State::*member) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  return state().*member;
}

}  // namespace

std::string libtorch_folder() {
  void* const library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return "";
  link_map* map = nullptr;
  const bool is_known = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr;
  std::string path = is_known ? map->l_name : "";
  dlclose(library);
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

bool open() {
  State& now = state();
  const std::lock_guard<std::mutex> lock(now.mutex);
  if (now.missing == Missing::Request) open_now(now);
  return now.missing == Missing::Nothing;
}

bool is_open() { return missing() == Missing::Nothing; }

Missing missing() { return get(&State::missing); }

std::string why_not() { return get(&State::why_not); }

std::string what_to_do() {
  switch (missing()) {
    case Missing::Driver:
      return "install NVIDIA's driver (a container needs --gpus all), or take device: cpu; docs/gpu.md";
    case Missing::Device:
      return "nvidia-smi lists the devices that there are, CUDA_VISIBLE_DEVICES hides some; or take device: "
             "cpu";
    case Missing::Library:
      return "./dev setup --cuda fetches it, or TESSERA_LIBTORCH names the torch folder of a Python "
             "installation "
             "at build; docs/gpu.md";
    case Missing::Nothing:
    case Missing::Request: break;
  }
  return "";
}

void* own_kernels_library() { return get(&State::own); }

std::string why_no_own_kernels() { return get(&State::why_no_own); }

void* symbol(void* library, const char* name) {
  return dlsym(library == nullptr ? RTLD_DEFAULT : library, name);
}

}  // namespace tessera::cuda

#include "tessera/core/cuda_library.h"

#include <mutex>
#include <vector>

#include <dlfcn.h>
#include <link.h>

#include "tessera/core/cuda_driver.h"
#include "tessera/core/environment.h"

namespace tessera::cuda {
namespace {

struct State {
  std::mutex mutex;
  Missing missing = Missing::Request;
  std::string why_not = "nothing has asked for a CUDA device";
};

State& state() {
  static State instance;
  return instance;
}

// Opens LibTorch's CUDA part. Gives the reason why it is not open, else an empty text. The loader's places
// come first, in which LD_LIBRARY_PATH has the first word; then the folder of libtorch_cpu.so. All of its
// symbols must be found at once, so that a part of another version is an error here and not in a step.
std::string open_libtorch() {
  const std::string name = "libtorch_cuda.so", folder = libtorch_folder();
  std::vector<std::string> candidates = {name};
  if (!folder.empty()) candidates.push_back(folder + '/' + name);
  const SharedLibrary library(candidates, SharedLibrary::Symbols::OfAll);
  if (library.is_usable()) return "";
  return library.is_missing() && !folder.empty()
             ? "LibTorch has no CUDA part: libtorch_cuda.so is neither in the loader's search path "
               "(LD_LIBRARY_PATH) nor in " +
                   folder
             : "the CUDA part of LibTorch cannot be opened: " + library.why_not();
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
  now.why_not = open_libtorch();
  now.missing = now.why_not.empty() ? Missing::Nothing : Missing::Library;
}

// Gives a copy of what is known now.
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
      return "install NVIDIA's driver (a container needs --gpus all), or use device: cpu; see docs/gpu.md";
    case Missing::Device:
      return "nvidia-smi lists the devices, and CUDA_VISIBLE_DEVICES may hide some of them; or use device: "
             "cpu";
    case Missing::Library:
      return "./dev setup --cuda downloads it, or set TESSERA_LIBTORCH to the torch folder of a Python "
             "installation when you build; see docs/gpu.md";
    case Missing::Nothing:
    case Missing::Request: break;
  }
  return "";
}

SharedLibrary own_kernels_library() {
  return is_open() ? SharedLibrary::own("libtessera_cuda.so")
                   : SharedLibrary::none("the CUDA part of LibTorch is not open");
}

}  // namespace tessera::cuda

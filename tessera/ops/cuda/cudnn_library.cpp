#include "tessera/ops/cuda/cudnn_library.h"

#include <type_traits>

#include <dlfcn.h>

namespace tessera::ops::cuda {
namespace {

// What LibTorch 2.11 comes with. The graphs of attention are written for it: older ones want other masks.
constexpr size_t kOldest = 91900, kTooNew = 100000;

}  // namespace

bool open_cudnn(CudnnLibrary& library, std::string& why_not, const std::string& path) {
  // Never closed: it has code on devices.
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    why_not = dlerror();
    return false;
  }
  CudnnLibrary found;
  why_not.clear();
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && why_not.empty()) why_not = path + " has no " + name;
  };
  find(found.version, "cudnnGetVersion");
  find(found.status_text, "cudnnGetErrorString");
  find(found.last_error, "cudnnGetLastErrorString");
  find(found.create, "cudnnCreate");
  find(found.set_stream, "cudnnSetStream");
  find(found.desc_create, "cudnnBackendCreateDescriptor");
  find(found.desc_destroy, "cudnnBackendDestroyDescriptor");
  find(found.desc_finalize, "cudnnBackendFinalize");
  find(found.desc_set, "cudnnBackendSetAttribute");
  find(found.desc_get, "cudnnBackendGetAttribute");
  find(found.execute, "cudnnBackendExecute");
  if (!why_not.empty()) return false;
  if (const size_t version = found.version(); version < kOldest || version >= kTooNew) {
    why_not = path + " is of version " + std::to_string(version) + ", not of 9.19 or a later 9";
    return false;
  }
  library = found;
  return true;
}

}  // namespace tessera::ops::cuda

#include "tessera/ops/cuda/lt_library.h"

#include <type_traits>

#include <dlfcn.h>

namespace tessera::ops::cuda {
namespace {

constexpr size_t kOldest = 130000, kTooNew = 140000;

}  // namespace

bool open_lt(LtLibrary& library, std::string& why_not, const std::string& path) {
  // Never closed: it has code on devices.
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    why_not = dlerror();
    return false;
  }
  LtLibrary found;
  why_not.clear();
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && why_not.empty()) why_not = path + " has no " + name;
  };
  find(found.version, "cublasLtGetVersion");
  find(found.status_text, "cublasLtGetStatusString");
  find(found.create, "cublasLtCreate");
  find(found.desc_create, "cublasLtMatmulDescCreate");
  find(found.desc_destroy, "cublasLtMatmulDescDestroy");
  find(found.desc_set, "cublasLtMatmulDescSetAttribute");
  find(found.layout_create, "cublasLtMatrixLayoutCreate");
  find(found.layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(found.preference_create, "cublasLtMatmulPreferenceCreate");
  find(found.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(found.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(found.find_algorithms, "cublasLtMatmulAlgoGetHeuristic");
  find(found.matmul, "cublasLtMatmul");
  if (!why_not.empty()) return false;
  if (const size_t version = found.version(); version < kOldest || version >= kTooNew) {
    why_not = path + " is of version " + std::to_string(version) + ", not of 13";
    return false;
  }
  library = found;
  return true;
}

}  // namespace tessera::ops::cuda

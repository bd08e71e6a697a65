#include "tessera/ops/cuda/lt_library.h"

#include "tessera/core/shared_library.h"

namespace tessera::ops::cuda {

std::optional<LtLibrary> LtLibrary::open(std::string& why_not, const std::string& path) {
  SharedLibrary library({path});
  LtLibrary found;
  library.find(found.version, "cublasLtGetVersion");
  library.find(found.status_text, "cublasLtGetStatusString");
  library.find(found.create, "cublasLtCreate");
  library.find(found.desc_create, "cublasLtMatmulDescCreate");
  library.find(found.desc_destroy, "cublasLtMatmulDescDestroy");
  library.find(found.desc_set, "cublasLtMatmulDescSetAttribute");
  library.find(found.layout_create, "cublasLtMatrixLayoutCreate");
  library.find(found.layout_destroy, "cublasLtMatrixLayoutDestroy");
  library.find(found.preference_create, "cublasLtMatmulPreferenceCreate");
  library.find(found.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  library.find(found.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  library.find(found.find_algorithms, "cublasLtMatmulAlgoGetHeuristic");
  library.find(found.matmul, "cublasLtMatmul");
  if (library.is_usable()) library.expect_version(found.version(), 130000);
  why_not = library.why_not();
  return library.is_usable() ? std::optional(found) : std::nullopt;
}

}  // namespace tessera::ops::cuda

#include "tessera/ops/cuda/cudnn_library.h"

#include "tessera/core/shared_library.h"

namespace tessera::ops::cuda {

std::optional<CudnnLibrary> CudnnLibrary::open(std::string& why_not, const std::string& path) {
  SharedLibrary library({path});
  CudnnLibrary found;
  library.find(found.version, "cudnnGetVersion");
  library.find(found.status_text, "cudnnGetErrorString");
  library.find(found.last_error, "cudnnGetLastErrorString");
  library.find(found.create, "cudnnCreate");
  library.find(found.set_stream, "cudnnSetStream");
  library.find(found.desc_create, "cudnnBackendCreateDescriptor");
  library.find(found.desc_destroy, "cudnnBackendDestroyDescriptor");
  library.find(found.desc_finalize, "cudnnBackendFinalize");
  library.find(found.desc_set, "cudnnBackendSetAttribute");
  library.find(found.desc_get, "cudnnBackendGetAttribute");
  library.find(found.execute, "cudnnBackendExecute");
  // LibTorch 2.11 comes with this version, and the graphs of attention are written for it: older ones want
  // other masks.
  if (library.is_usable()) library.expect_version(found.version(), 91900);
  why_not = library.why_not();
  return library.is_usable() ? std::optional(found) : std::nullopt;
}

}  // namespace tessera::ops::cuda

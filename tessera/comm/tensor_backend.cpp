#include "tessera/comm/tensor_backend.h"

#include "tessera/comm/flight_recorder.h"
#include "tessera/core/check_argument.h"

namespace tessera::comm::detail {

void TensorBackend::check_tensor(const at::Tensor& tensor, std::string_view operation) const {
  TESSERA_CHECK_ARGUMENT(tensor.defined() && tensor.is_contiguous(),
                         std::string(operation) + " needs contiguous tensors");
  if (tensor.device() == device()) return;
  throw Error(ErrorKind::Config, "ARGUMENT", std::string(operation) + " of this group cannot reach a tensor")
      .got(tensor.device().str())
      .need(device().str());
}

at::Tensor TensorBackend::registered_bytes(const Call& call, int64_t) {
  flight::end(call.place);
  return {};
}

std::shared_ptr<Work> TensorBackend::write_shared(const Call& call, int64_t, std::function<void()>) {
  throw Error(ErrorKind::Config, "ARGUMENT", call.description + " needs ranks that share memory");
}

}  // namespace tessera::comm::detail

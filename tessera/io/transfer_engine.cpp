#include "tessera/io/transfer_engine.h"

#include <cerrno>
#include <cstring>

namespace tessera::io {

std::string error_name(int cause) {
  const char* const name = strerrorname_np(cause);
  return name == nullptr ? "errno " + std::to_string(cause) : name;
}

bool take_result(TransferRequest& request, int64_t result) {
  // A device that moves nothing again and again has failed, whatever it says.
  constexpr int64_t kMostStalls = 100;
  const auto fail = [&](int cause) {
    if (request.transfer->cause == 0) {
      request.transfer->cause = cause;
      request.transfer->failed_at = request.offset;
    }
    return false;
  };
  const bool is_busy = result == -EINTR || result == -EAGAIN;
  if (result < 0 && !is_busy) return fail(static_cast<int>(-result));
  if (result == 0) return fail(request.transfer->is_write ? EIO : TransferState::kEndOfFile);
  if (result >= request.num_bytes) return false;
  const int64_t moved = is_busy ? 0 : result / kSpillAlignment * kSpillAlignment;
  if (moved == 0 && ++request.num_stalls > kMostStalls) return fail(EIO);
  request.offset += moved;
  request.data += moved;
  request.num_bytes -= moved;
  return true;
}

}  // namespace tessera::io

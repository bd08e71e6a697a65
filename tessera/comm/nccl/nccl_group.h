// A communicator of NCCL and the stream on which its operations run.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/byte_exchange.h"
#include "tessera/comm/nccl/device_work.h"
#include "tessera/comm/nccl/nccl_library.h"
#include "tessera/comm/nccl/registered_memory.h"
#include "tessera/comm/nccl/watchdog.h"

namespace tessera::comm::detail {

// The device, the library and the watchdog that all groups of a process share.
struct NcclContext {
  at::Device device;
  std::shared_ptr<const NcclLibrary> library;
  std::shared_ptr<Watchdog> watchdog;
};

// [Note: operations on a device]
// run() makes the group's stream wait for all that the current stream holds, puts the operation there and
// marks its end with an event; the host waits for nothing. Operations of a group run one after the other,
// those of several groups side by side, so the device must have room for one of each at a time.
//
// The watchdog ends what is over. If an operation is late, its ranks disagree or NCCL reports an error, the
// watchdog aborts the group: its operations end without a result, and every group of the process throws that
// error from then on. An operation is open for the watchdog from before its first NCCL call, because NCCL
// connects ranks within calls, and only an abort ends such a call.
class NcclGroup : public ByteExchange, private Watched {
 public:
  // Waits until all ranks have come. Throws Error(Hang) of `call` if they have not within its timeout. The
  // place of `call` in the flight recorder stays open.
  NcclGroup(NcclContext context, const NcclId& id, int64_t size, int64_t rank, const Call& call);
  // Waits for open operations, 5 s at most, and then aborts those that are left.
  ~NcclGroup() override;
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  const NcclLibrary& library() const { return library_; }

  // Runs `body` with the group's stream as the current one: it puts the operation there, behind what the
  // caller's current stream holds. `held` are the tensors whose memory it uses. `agreement` is as in
  // DeviceWork.
  std::shared_ptr<DeviceWork> run(const Call& call, std::vector<at::Tensor> held,
                                  const std::function<void()>& body,
                                  std::shared_ptr<const PendingWork> agreement = nullptr);
  // Does the same behind `ready` instead of behind the caller's current stream.
  std::shared_ptr<DeviceWork> run_after(const DeviceEvent& ready, const Call& call,
                                        std::vector<at::Tensor> held, const std::function<void()>& body,
                                        std::shared_ptr<const PendingWork> agreement = nullptr);

  // See RegisteredMemory::make().
  at::Tensor registered_bytes(int64_t num_bytes);

  // The functions below are called in the body of run() only, and put an operation on the group's stream.
  void all_gather(void* output, const void* input, const std::vector<int64_t>& num_bytes) override;
  void all_to_all(void* output, const void* input, int64_t num_bytes) override;
  void all_to_all_v(void* output, const void* input, const std::vector<int64_t>& output_bytes,
                    const std::vector<int64_t>& input_bytes) override;
  void broadcast(void* data, int64_t num_bytes, int64_t root) override;
  void send(const void* data, int64_t num_bytes, int64_t peer);
  void recv(void* data, int64_t num_bytes, int64_t peer);

 private:
  bool poll() override;
  // Opens `work` for the watchdog. Throws the error that has ended the group, if any.
  void open(const std::shared_ptr<DeviceWork>& work);
  // Makes all groups of the process throw `error` from now on, and aborts this one.
  void fail(const Error& error);
  // Aborts the communicator and ends all open operations with this error.
  void abort(const Error& error);
  NativeStream native_stream() const;

  const NcclContext context_;
  const NcclLibrary& library_;
  const int64_t size_, rank_;
  c10::Stream stream_;
  const NcclHandle comm_;
  RegisteredMemory registered_;
  std::timed_mutex calls_;  // held in calls on comm_
  std::mutex mutex_;        // guards what follows
  std::deque<std::shared_ptr<DeviceWork>> open_;
  std::optional<Error> abort_;  // why it was aborted
};

}  // namespace tessera::comm::detail

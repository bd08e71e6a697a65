// Work of a device that is recorded once and run again by one call of the host.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>

#include <c10/core/Device.h>

namespace tessera {

// A recording as LibTorch's CUDAGraph holds it: the kernels that a stream got, and the memory that was taken
// meanwhile. Not thread-safe.
class DeviceGraph {
 public:
  // Tells whether work of the device can be recorded: LibTorch's CUDA part is open, TESSERA_GRAPHS does not
  // say 0, and no recording of this process has failed.
  static bool can_record(c10::Device device);

  // Runs `work` with a stream for recordings as the current one of `device`, and records what `work` puts
  // there; nothing of it runs before replay(). `work` waits for nothing on the device, copies nothing from
  // memory of the host, and has run once before, so that libraries have their handles. What it reads from
  // outside must stay at its place for as long as the graph lives. Memory that it takes is the graph's: every
  // replay writes the tensors that `work` leaves.
  //
  // `beside` is a graph whose memory this one shares, null for none. What a replay of the one has left is
  // then gone with a replay of the other. All graphs that share memory run on one stream.
  //
  // Gives null, with one warning in a process, if the device cannot record the work or `work` throws:
  // LibTorch refuses some calls while it records, and memory may not suffice for it. If the caller then runs
  // `work` as it is, it throws the errors that are its own.
  static std::unique_ptr<DeviceGraph> record(c10::Device device, const std::function<void()>& work,
                                             const DeviceGraph* beside = nullptr);

  // No replay may be under way.
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  // Puts the recorded work on the current stream of the device, behind what that holds. The host does not
  // wait.
  void replay() const;

 private:
  explicit DeviceGraph(c10::Device device);

  c10::Device device_;
  // Room for a CUDAGraph, whose header is not included: LibTorch 2.11 uses some 150 bytes of it.
  alignas(64) mutable std::array<std::byte, 1024> graph_{};
};

}  // namespace tessera

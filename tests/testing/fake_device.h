// A device in host memory whose streams run late, each on a thread of its own. Code that orders work by
// anything but events goes wrong on it, sooner or later. A program that it is linked into has the device
// before main().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <c10/core/Device.h>

namespace tessera::testing::fake_device {

// [Note: what it does as CUDA does] The fake is LibTorch's PrivateUse1 with several devices. An operation is
// put on the current stream and runs there on the CPU when its turn comes, after a random delay that depends
// on the seed. Freed memory goes at once to the next allocation of the same size on the same stream; the
// stream fills it with NaN when it comes to the place where it was freed. Pageable host memory is copied
// when a copy is called. Reading a value, and copies to the host that may block, wait for the current
// stream. A non-blocking copy to the host, or from pinned memory, runs in the stream's turn, and holds that
// memory until then. So code that reads or writes memory on another stream without an event between the two
// finds NaN, or the values of another owner.

c10::Device device(int64_t index);
int64_t num_devices();

// Says which waits of streams for events do nothing, so that a test can show that they are needed.
enum class Lost { None, OfDefaultStreams, OfOtherStreams, All };

struct Options {
  uint64_t seed = 0;
  int64_t longest_delay_us = 300;
  Lost lost = Lost::None;
  bool has_failed = false;  // every query of an event throws, as CUDA does after an error of a kernel
  bool shares_graph_memory = false;  // recorded work takes memory that other work gets too, which is a fault
  int64_t most_bytes = 0;            // the most bytes of tensors at a time, on all devices; 0 = no bound
};
// Sets the options for everything that is submitted from now on; all streams must be empty.
void configure(const Options& options);
// Waits for all streams of all devices.
void synchronize();

// Returns how often a thread has waited for a stream or an event; reading a value counts as such a wait.
int64_t waits();
// Returns the number of tasks that streams have got to run. A replay is one task.
int64_t tasks();
int64_t replays();

// A recording of the current stream's tasks from the constructor to end(); none of them runs meanwhile.
// Memory that is allocated meanwhile belongs to the pool `memory`, or to a new pool for 0, until
// release_graph_memory(). A wait for the stream, an event, or a copy of host memory spoils the recording;
// CUDA refuses all of these, except copies of pinned memory. The program records through at::cuda::CUDAGraph
// (device/device_graph.h), which fake_graph.cpp makes of this class.
struct Graph;
class Recording {
 public:
  explicit Recording(uint64_t memory);
  uint64_t memory() const;
  // Ends the recording. Throws if something has spoilt it.
  void end();
  // Puts all recorded tasks on the current stream, as one task.
  void replay() const;

 private:
  std::shared_ptr<Graph> graph_;
  void* queue_ = nullptr;
};
void release_graph_memory(uint64_t memory);

// Returns how often a thread has used an event or a device while another device was its current one. CUDA
// would then make a context on that other device.
int64_t strays();

// Returns the message of the first operation that threw in its stream; empty if none has.
std::string fault();

// Runs `task` in the stream's turn; for stand-ins of libraries that take native streams.
void enqueue(void* native_stream, std::function<void()> task);

}  // namespace tessera::testing::fake_device

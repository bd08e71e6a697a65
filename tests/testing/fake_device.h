// A device in host memory whose streams run late, each on a thread of its own: what orders work by anything
// but events goes wrong on it, sooner or later. A program that it is linked into has it before main().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <c10/core/Device.h>

namespace tessera::testing::fake_device {

// [Note: what it does as CUDA does]
// It is LibTorch's PrivateUse1, of several devices. An operation is put on the current stream and runs there
// on the CPU when its turn comes, which a seed delays at random. Freed memory goes to the next who asks for
// as much on the same stream, at once; the stream fills it with NaN when it comes to the place where it was
// freed. Host memory is copied when a copy is called; reading a value, and copies to the host that may block,
// wait for the current stream; a non-blocking copy to the host, or from pinned memory, runs in the stream's
// turn, and holds that memory until then. So who reads or writes memory without an event between the streams
// finds NaN, or what another owner wrote.

c10::Device device(int64_t index);
int64_t num_devices();

// Which waits of streams for events do nothing, to show that they are needed.
enum class Lost { None, OfDefaultStreams, OfOtherStreams, All };

struct Options {
  uint64_t seed = 0;
  int64_t longest_delay_us = 300;
  Lost lost = Lost::None;
  bool has_failed = false;  // whoever asks for an event is told so, as by CUDA after an error of a kernel
  bool shares_graph_memory = false;  // recorded work takes memory that others get too, as it must not
  int64_t most_bytes = 0;            // of tensors at a time, on all devices; 0 = no bound
};
// For what is submitted from now on; all streams must be empty.
void configure(const Options& options);
// Waits for all streams of all devices.
void synchronize();

// How often a thread has waited for a stream or an event, as one that reads a value does.
int64_t waits();
// What streams have got to run; all that a replay runs is one.
int64_t tasks();
int64_t replays();

// The current stream's tasks are recorded from the constructor to end(), and none of them runs. Memory that
// is taken meanwhile is `memory`'s, or of its own for 0, until release_graph_memory(). What waits for the
// stream, an event, or a copy of the host's memory spoils it; CUDA refuses all of that but pinned memory.
// at::cuda::CUDAGraph of fake_graph.cpp is made of it, by which the program records (core/device_graph.h).
struct Graph;
class Recording {
 public:
  explicit Recording(uint64_t memory);
  uint64_t memory() const;
  // Throws where something has spoilt it.
  void end();
  // Puts all its tasks on the current stream, as one.
  void replay() const;

 private:
  std::shared_ptr<Graph> graph_;
  void* queue_ = nullptr;
};
void release_graph_memory(uint64_t memory);

// How often a thread has called for an event or a device while another device was its current one, on which
// CUDA would make a context.
int64_t strays();

// What the first operation that threw in its stream said; empty where none has.
std::string fault();

// For a library that takes native streams: runs `task` in the stream's turn.
void enqueue(void* native_stream, std::function<void()> task);

}  // namespace tessera::testing::fake_device

// A device in host memory whose streams run late, each on a thread of its own: what orders work by anything
// but events goes wrong on it, sooner or later.
#pragma once

#include <cstdint>
#include <functional>
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

// Once a process, before its first operation.
void install();
c10::Device device(int64_t index);
int64_t num_devices();

// Which waits of streams for events do nothing, to show that they are needed.
enum class Lost { None, OfDefaultStreams, OfOtherStreams, All };

struct Options {
  uint64_t seed = 0;
  int64_t longest_delay_us = 300;
  Lost lost = Lost::None;
  bool has_failed = false;  // whoever asks for an event is told so, as by CUDA after an error of a kernel
};
// For what is submitted from now on; all streams must be empty.
void configure(const Options& options);
// Waits for all streams of all devices.
void synchronize();

// How often an operation has waited for its stream, as reading a value does.
int64_t waits();

// What the first operation that threw in its stream said; empty where none has.
std::string fault();

// For a library that takes native streams: runs `task` in the stream's turn.
void enqueue(void* native_stream, std::function<void()> task);

}  // namespace tessera::testing::fake_device

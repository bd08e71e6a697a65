// Functions by which a test controls the stub of NCCL and asks about its calls. The library is opened by
// dlopen(), so the test gets them as a table of pointers.
#pragma once

namespace tessera::testing {

struct StubNccl {
  // Puts run(argument) into a native stream.
  using Enqueue = void (*)(void* stream, void (*run)(void*), void* argument);

  void (*set_enqueue)(Enqueue enqueue);
  // Sets the function that moves bytes, called in a task of `enqueue`. It replaces memmove() for memory that
  // the host cannot read; ncclMemAlloc() then gives no memory.
  using Move = void (*)(void* to, const void* from, unsigned long num_bytes);
  void (*set_move)(Move move);
  // Sets a function that every call of an operation begins with, while it holds no lock.
  void (*set_before_call)(void (*before)());
  // Lets communicators of this rank report this asynchronous ncclResult_t from now on; 0 = no error.
  void (*set_async_error)(int rank, int result);
  // Lets this rank fail to make communicators from now on, so that the others wait for it; -1 = no rank.
  void (*set_missing)(int rank);
  // Lets calls of operations of this rank not return from now on, until its communicator is aborted; -1 = no
  // rank.
  void (*set_stuck)(int rank);
  // Lets this rank fail to register memory from now on; -1 = no rank.
  void (*set_unregistered)(int rank);
  // faults() returns the wrong calls so far, one to a line; forget_faults() forgets them.
  const char* (*faults)();
  void (*forget_faults)();
  // Returns how often all ranks together have called the function of this name.
  int (*num_calls)(const char* function);
};

}  // namespace tessera::testing

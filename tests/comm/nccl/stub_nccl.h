// What a test tells the stub of NCCL, and asks it. The library is found by dlopen, and so are these.
#pragma once

namespace tessera::testing {

struct StubNccl {
  // Puts run(argument) into a native stream.
  using Enqueue = void (*)(void* stream, void (*run)(void*), void* argument);

  void (*set_enqueue)(Enqueue enqueue);
  // How bytes are moved, by a task that enqueue runs: in place of memmove, for memory that the host cannot
  // read. There is then no memory of the library's own.
  using Move = void (*)(void* to, const void* from, unsigned long num_bytes);
  void (*set_move)(Move move);
  // Communicators of this rank number report this ncclResult_t from now on; 0: none.
  void (*set_async_error)(int rank, int result);
  // From now on this rank fails to make a communicator, so that the others wait for it; -1: none.
  void (*set_missing)(int rank);
  // From now on operations of this rank do not return from their calls until its communicator is aborted; -1:
  // none.
  void (*set_stuck)(int rank);
  // From now on this rank cannot register memory; -1: all can.
  void (*set_unregistered)(int rank);
  // What was called wrongly so far, one to a line; and forgets it.
  const char* (*faults)();
  void (*forget_faults)();
  // How often the function of this name was called, by all ranks.
  int (*num_calls)(const char* function);
};

}  // namespace tessera::testing

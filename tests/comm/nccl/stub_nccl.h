// What a test tells the stub of NCCL, and asks it. The library is found by dlopen, and so are these.
#pragma once

namespace tessera::testing {

struct StubNccl {
  // Puts run(argument) into a native stream.
  using Enqueue = void (*)(void* stream, void (*run)(void*), void* argument);

  void (*set_enqueue)(Enqueue enqueue);
  // Communicators of this rank number report this ncclResult_t from now on; 0: none.
  void (*set_async_error)(int rank, int result);
  // What was called wrongly so far, one to a line; and forgets it.
  const char* (*faults)();
  void (*forget_faults)();
  // How often the function of this name was called, by all ranks.
  int (*num_calls)(const char* function);
};

}  // namespace tessera::testing

// The stub's own: a table of the above.
extern "C" const tessera::testing::StubNccl* stub_nccl();

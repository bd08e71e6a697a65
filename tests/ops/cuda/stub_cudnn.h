// What tests see of the library that stands for cuDNN.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::testing {

struct StubCudnn {
  std::atomic<int> handles, plans, runs;
  std::atomic<int> live;    // descriptors that are not destroyed
  std::atomic<int> faults;  // calls that the documentation does not allow
  // What the next calls of cudnnCreate, those that finish a plan, and those of cudnnBackendExecute come to;
  // 0: what is right.
  std::atomic<int> create_status, plan_status, run_status;
};

}  // namespace tessera::testing

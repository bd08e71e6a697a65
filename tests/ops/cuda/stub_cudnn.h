// State by which tests control the stub of cuDNN and see how it was called.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::testing {

struct StubCudnn {
  std::atomic<int> handles, plans, runs;
  std::atomic<int> live;    // number of descriptors that are not destroyed
  std::atomic<int> faults;  // number of calls that the documentation does not allow
  // Results of the next calls of cudnnCreate, of those that finish a plan, and of cudnnBackendExecute; 0 =
  // the calls do their work.
  std::atomic<int> create_status, plan_status, run_status;
};

}  // namespace tessera::testing

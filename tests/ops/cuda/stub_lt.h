// State by which tests control the stub of cuBLASLt and see how it was called.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::testing {

struct StubLt {
  std::atomic<int> handles, queries, products;
  std::atomic<int> live;    // number of descriptors that are not destroyed
  std::atomic<int> faults;  // number of calls that the documentation does not allow
  // Results of the next calls of cublasLtMatmulAlgoGetHeuristic and cublasLtMatmul; 0 = they do their work.
  std::atomic<int> query_status, product_status;
};

}  // namespace tessera::testing

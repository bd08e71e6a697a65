// What tests see of the library that stands for cuBLASLt.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::testing {

struct StubLt {
  std::atomic<int> handles, queries, products;
  std::atomic<int> live;    // descriptors that are not destroyed
  std::atomic<int> faults;  // calls that the documentation does not allow
  // What the next calls of cublasLtMatmulAlgoGetHeuristic and cublasLtMatmul come to; 0: what is right.
  std::atomic<int> query_status, product_status;
};

}  // namespace tessera::testing

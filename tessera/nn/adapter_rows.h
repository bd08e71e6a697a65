// Says which of several adapters each row of a pass belongs to.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::nn {

// The rows of hidden states, [rows, hidden_size], that the layers of a model see in one pass. The layers'
// adapters share one object with the model, which fills it for the time of a pass; between passes no row has
// an adapter. One thread uses it.
class AdapterRows {
 public:
  static constexpr int64_t kNoAdapter = 0;

  // The rows of one adapter: their numbers, [rows of the adapter] int64, rising, on the model's device.
  struct Group {
    int64_t adapter = kNoAdapter;
    at::Tensor rows;
  };

  // Holds the rows of a pass as long as it lives.
  class Pass {
   public:
    // Row i belongs to the adapter adapter_of_row[i], or to none (kNoAdapter).
    Pass(AdapterRows& rows, std::span<const int64_t> adapter_of_row, at::Device device);
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass();

   private:
    AdapterRows& rows_;
  };

  // Returns the groups of the pass, by rising adapter; rows without an adapter are in none.
  const std::vector<Group>& groups() const { return groups_; }
  int64_t num_rows() const { return num_rows_; }

 private:
  std::vector<Group> groups_;
  int64_t num_rows_ = 0;
};

}  // namespace tessera::nn

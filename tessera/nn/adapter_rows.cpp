#include "tessera/nn/adapter_rows.h"

#include <map>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/device/device.h"
#include "tessera/device/device_copy.h"

namespace tessera::nn {

AdapterRows::Pass::Pass(AdapterRows& rows_of_pass, std::span<const int64_t> adapter_of_row, at::Device device)
    : rows_(rows_of_pass) {
  TESSERA_ASSERT(rows_.num_rows_ == 0, "one pass at a time");
  std::map<int64_t, std::vector<int64_t>> rows;
  for (size_t i = 0; i < adapter_of_row.size(); ++i) {
    if (adapter_of_row[i] != kNoAdapter) rows[adapter_of_row[i]].push_back(static_cast<int64_t>(i));
  }
  for (const auto& [adapter, numbers] : rows)
    rows_.groups_.push_back({adapter, copy_to(at::tensor(numbers, on_host(at::kLong)), device)});
  rows_.num_rows_ = std::ssize(adapter_of_row);
}

AdapterRows::Pass::~Pass() {
  rows_.groups_.clear();
  rows_.num_rows_ = 0;
}

}  // namespace tessera::nn

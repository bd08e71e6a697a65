// Makes random shapes and boxes, and stored tensors that are held in memory.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/io/safetensors.h"
#include "tessera/parallel/box_part.h"

#include "tests/testing/random.h"

namespace tessera::testing {

class RandomBoxes : public Random {
 public:
  bool flip() { return in(0, 1) == 1; }
  std::vector<int64_t> shape(int64_t most_dims, int64_t most) {
    std::vector<int64_t> dims(static_cast<size_t>(in(0, most_dims)));
    for (int64_t& dim : dims) dim = in(1, most);
    return dims;
  }
  // Returns a random box, which is often whole in a dim, and sometimes empty.
  parallel::Box box(const std::vector<int64_t>& shape) {
    parallel::Box box = checkpoint::whole_box(shape);
    for (size_t d = 0; d < shape.size(); ++d) {
      if (flip()) continue;
      box.offset[d] = in(0, shape[d]);
      box.size[d] = in(0, shape[d] - box.offset[d]);
    }
    return box;
  }
};

using Tensors = std::map<std::string, at::Tensor>;

inline std::vector<io::TensorSpec> specs_of(const Tensors& tensors) {
  std::vector<io::TensorSpec> specs;
  for (const auto& [name, value] : tensors) {
    specs.push_back({name, to_dtype(value.scalar_type()), value.sizes().vec()});
  }
  return specs;
}

inline void save_tensors(const std::string& path, const Tensors& tensors) {
  io::SafetensorsWriter writer(path, specs_of(tensors));
  for (const auto& [name, value] : tensors) {
    writer.write(name, 0, value.const_data_ptr(), static_cast<int64_t>(value.nbytes()));
  }
  writer.commit();
}

class TensorsInMemory : public checkpoint::StoredTensors {
 public:
  explicit TensorsInMemory(Tensors tensors)
      : StoredTensors("memory", specs_of(tensors)), held_(std::move(tensors)) {}
  void read(const std::string& name, const parallel::Box& box, const at::Tensor& destination) const override {
    destination.copy_(parallel::box_part(held_.at(name), box));
  }

 private:
  Tensors held_;
};

}  // namespace tessera::testing

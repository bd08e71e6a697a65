#include "tessera/checkpoint/gguf_tensors.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/host_memory.h"

namespace tessera::checkpoint {
namespace {

constexpr int64_t kStagingElements = (int64_t{16} << 20) / static_cast<int64_t>(sizeof(float));

std::vector<io::TensorSpec> specs_of(const GgufModel& model) {
  std::vector<io::TensorSpec> specs;
  for (const GgufWeight& weight : model.weights()) specs.push_back(weight.spec);
  return specs;
}

class GgufTensors : public StoredTensors {
 public:
  explicit GgufTensors(std::shared_ptr<const GgufModel> model)
      : StoredTensors(model->path(), specs_of(*model)), model_(std::move(model)) {
    for (const GgufWeight& weight : model_->weights()) weights_[weight.spec.name] = &weight;
  }

  void read(const std::string& name, const parallel::Box& box, const at::Tensor& destination) const override {
    const GgufWeight& weight = *weights_.at(name);
    const std::vector<int64_t>& shape = weight.spec.shape;
    TESSERA_ASSERT(intersect(box, whole_box(shape)) == box && destination.is_floating_point() &&
                       destination.sizes() == at::IntArrayRef(box.size),
                   "a destination of the box's size");
    if (destination.numel() == 0) return;
    const at::NoGradGuard no_grad;
    // Rows are expanded whole; a vector is one.
    const bool is_vector = shape.size() == 1;
    const at::Tensor to = is_vector ? destination.unsqueeze(0) : destination;
    const int64_t columns = shape.back(), first = is_vector ? 0 : box.offset[0];
    const bool is_direct = to.scalar_type() == at::kFloat && to.is_contiguous() && is_on_host(to);
    if (is_direct && box.size.back() == columns) {
      return model_->read_rows(weight, first, to.size(0), to.mutable_data_ptr<float>());
    }
    const int64_t step = std::clamp<int64_t>(kStagingElements / columns, 1, to.size(0));
    const at::Tensor staging = at::empty({step, columns}, on_host(at::kFloat));
    for (int64_t row = 0; row < to.size(0); row += step) {
      const int64_t count = std::min(step, to.size(0) - row);
      model_->read_rows(weight, first + row, count, staging.mutable_data_ptr<float>());
      to.narrow(0, row, count)
          .copy_(staging.narrow(0, 0, count).narrow(1, box.offset.back(), box.size.back()));
    }
  }

 private:
  std::shared_ptr<const GgufModel> model_;
  std::unordered_map<std::string, const GgufWeight*> weights_;
};

}  // namespace

std::shared_ptr<const StoredTensors> stored_tensors(std::shared_ptr<const GgufModel> model) {
  return std::make_shared<GgufTensors>(std::move(model));
}

}  // namespace tessera::checkpoint

#include "tessera/checkpoint/gguf_tensors.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/device/host_memory.h"
#include "tessera/ops/leaf.h"

namespace tessera::checkpoint {
namespace {

constexpr int64_t kStagingBytes = int64_t{16} << 20;

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
    // Rows are expanded whole, since a block of quantised values cannot be cut. A vector is one row.
    const bool is_vector = shape.size() == 1;
    const at::Tensor to = is_vector ? destination.unsqueeze(0) : destination;
    const int64_t columns = shape.back(), first = is_vector ? 0 : box.offset[0];
    const bool is_direct = to.scalar_type() == at::kFloat && to.is_contiguous() && is_on_host(to);
    if (is_direct && box.size.back() == columns) {
      return model_->read_rows(weight, first, to.size(0), to.mutable_data_ptr<float>());
    }
    // Copies the box's columns out of whole rows into the destination's rows from `row` on.
    const auto copy_rows = [&](int64_t row, const at::Tensor& rows) {
      to.narrow(0, row, rows.size(0)).copy_(rows.narrow(1, box.offset.back(), box.size.back()));
    };
    // If the destination's device can expand blocks itself, the file's bytes go there: they are fewer.
    const auto expand = ops::leaves(to).expand_ggml;
    const io::GgufTensor& tensor = *weight.tensor;
    const bool is_expanded_there = expand != nullptr && io::expands_on_devices(tensor.type);
    if (is_expanded_there && !is_vector && tensor.type != io::GgmlType::F32) {
      return each_step(to.size(0), io::GgufFile::row_bytes(tensor), [&](int64_t row, int64_t count) {
        copy_rows(row, expanded_rows(weight, first + row, count, to, expand));
      });
    }
    each_step(to.size(0), columns * static_cast<int64_t>(sizeof(float)), [&](int64_t row, int64_t count) {
      const at::Tensor staging = at::empty({count, columns}, on_host(at::kFloat));
      model_->read_rows(weight, first + row, count, staging.mutable_data_ptr<float>());
      copy_rows(row, staging);
    });
  }

  std::optional<io::BlockForm> form(const std::string& name) const override {
    const GgufWeight& weight = *weights_.at(name);
    const bool is_coded = io::ggml_block_elements(weight.tensor->type) > 1 && weight.spec.shape.size() == 2;
    return is_coded ? std::optional(io::block_form(weight.tensor->type)) : std::nullopt;
  }

  void read_blocks(const std::string& name, const parallel::Box& box,
                   const at::Tensor& destination) const override {
    const GgufWeight& weight = *weights_.at(name);
    const io::BlockForm blocks = *form(name);
    const int64_t columns = weight.spec.shape[1], row_bytes = io::GgufFile::row_bytes(*weight.tensor);
    const int64_t begin = blocks.row_bytes(box.offset[1]), bytes = blocks.row_bytes(box.size[1]);
    TESSERA_ASSERT(
        destination.sizes() == at::IntArrayRef({box.size[0], bytes}) && destination.is_contiguous(),
        "a destination of the box's size");
    auto* const to = static_cast<char*>(destination.mutable_data_ptr());
    if (box.size[1] == columns) return model_->read_blocks(weight, box.offset[0], box.size[0], to);
    each_step(box.size[0], row_bytes, [&](int64_t row, int64_t count) {
      const at::Tensor rows = at::empty({count, row_bytes}, on_host(at::kByte));
      model_->read_blocks(weight, box.offset[0] + row, count, static_cast<char*>(rows.mutable_data_ptr()));
      destination.narrow(0, row, count).copy_(rows.narrow(1, begin, bytes));
    });
  }

  void add_sample(ContentHash& hash) const override {
    constexpr int64_t kSampledEvery = int64_t{1} << 20;
    std::vector<float> row;
    for (const GgufWeight& weight : model_->weights()) {
      const std::vector<int64_t>& shape = weight.spec.shape;
      hash.add(weight.spec.name);
      hash.add(std::to_string(static_cast<uint32_t>(weight.tensor->type)));
      hash.add(std::span<const int64_t>(shape));
      const int64_t rows = shape.size() == 1 ? 1 : shape.front(),
                    bytes = io::GgufFile::row_bytes(*weight.tensor);
      const int64_t step = std::max<int64_t>(1, kSampledEvery / std::max<int64_t>(1, bytes));
      row.resize(static_cast<size_t>(shape.back()));
      for (int64_t i = 0; i < rows; i += step) {
        model_->read_rows(weight, i, 1, row.data());
        hash.add(std::span<const float>(row));
      }
    }
  }

 private:
  using Expand = decltype(ops::Leaves::expand_ggml);

  // Calls f(row, count) for all rows, as many at a time as fit into the staging memory.
  template <class F>
  static void each_step(int64_t num_rows, int64_t row_bytes, const F& f) {
    const int64_t step = std::clamp<int64_t>(kStagingBytes / row_bytes, 1, num_rows);
    for (int64_t row = 0; row < num_rows; row += step) f(row, std::min(step, num_rows - row));
  }

  // Returns rows [first, first + count) of a weight, [count, columns]: copies the file's blocks to the device
  // of `like` and expands them there, to the type of `like`, or to float32 if that is float64.
  at::Tensor expanded_rows(const GgufWeight& weight, int64_t first, int64_t count, const at::Tensor& like,
                           Expand expand) const {
    const io::GgufTensor& tensor = *weight.tensor;
    const int64_t bytes = count * io::GgufFile::row_bytes(tensor);
    const at::Tensor blocks = at::empty({bytes}, on_host(at::kByte));
    model_->read_blocks(weight, first, count, static_cast<char*>(blocks.mutable_data_ptr()));
    const at::ScalarType type = like.scalar_type() == at::kDouble ? at::kFloat : like.scalar_type();
    const at::Tensor rows = at::empty({count, weight.spec.shape.back()}, like.options().dtype(type));
    expand(rows, blocks.to(like.device()), bytes / io::ggml_block_bytes(tensor.type),
           static_cast<uint32_t>(tensor.type));
    return rows;
  }

  std::shared_ptr<const GgufModel> model_;
  std::unordered_map<std::string, const GgufWeight*> weights_;
};

}  // namespace

std::shared_ptr<const StoredTensors> stored_tensors(std::shared_ptr<const GgufModel> model) {
  return std::make_shared<GgufTensors>(std::move(model));
}

}  // namespace tessera::checkpoint

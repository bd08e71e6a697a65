#include "tessera/checkpoint/parameter_source.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/device/device.h"
#include "tessera/nn/materialize.h"
#include "tessera/parallel/box_part.h"

namespace tessera::checkpoint {
namespace {

using parallel::Box;

constexpr int64_t kPieceBytes = int64_t{16} << 20;

class StoredSource : public ParameterSource {
 public:
  StoredSource(std::shared_ptr<const StoredTensors> files, StateDictAdapter adapter)
      : files_(std::move(files)), adapter_(std::move(adapter)) {}

  bool holds(const std::string& parameter) const override {
    const StoredParameter* entry = adapter_.find(parameter);
    return entry != nullptr && std::all_of(entry->parts.begin(), entry->parts.end(),
                                           [&](const StoredPart& part) { return stored(part) != nullptr; });
  }

  std::optional<DType> stored_dtype(const std::string& parameter) const override {
    std::optional<DType> type;
    for (const StoredPart& part : adapter_.find(parameter)->parts) {
      const DType of_part = stored(part)->dtype;
      if (type.value_or(of_part) != of_part) return std::nullopt;
      type = of_part;
    }
    return type;
  }

  void read(const std::string& parameter, const parallel::Box& box,
            const at::Tensor& destination) const override {
    for (const auto& overlaps : adapter_.overlaps(parameter, box)) {
      const StoredPart& part = *overlaps.front().part;
      const io::TensorSpec& found = *stored(part);
      if (found.shape != part.shape) {
        throw Error(ErrorKind::Model, "TENSORS", "a tensor of another shape than '" + parameter + "' needs")
            .in(files_->place() + ": tensor '" + found.name + "'")
            .got(format_shape(found.shape))
            .need(format_shape(part.shape))
            .hint("files and model must be of one kind, and a table is made before ranks cut the model");
      }
      const std::string& name = found.name;
      if (overlaps.size() == 1) {
        files_->read(name, overlaps[0].stored, overlaps[0].view(destination));
      } else {
        read_together(name, overlaps, destination);
      }
    }
  }

 private:
  // Reads several parts of one stored tensor at once: reads the rectangle around them, a few of its rows at a
  // time, and copies the parts out of it. The parts are small and lie close together.
  void read_together(const std::string& name, const std::vector<StateDictAdapter::Overlap>& overlaps,
                     const at::Tensor& destination) const {
    std::vector<Box> parts;
    for (const auto& overlap : overlaps) parts.push_back(overlap.stored);
    const Box bounds = parallel::bounding_box(parts);
    const int64_t row_bytes =
        bounds.numel() / bounds.size[0] * static_cast<int64_t>(destination.element_size());
    const int64_t step = std::max<int64_t>(1, kPieceBytes / row_bytes);
    for (int64_t done = 0; done < bounds.size[0]; done += step) {
      Box rows = bounds;
      rows.offset[0] += done;
      rows.size[0] = std::min(step, bounds.size[0] - done);
      const at::Tensor read = at::empty(rows.size, on_host(destination.scalar_type()));
      files_->read(name, rows, read);
      for (const auto& overlap : overlaps) {
        const Box common = parallel::intersect(rows, overlap.stored);
        if (common.numel() == 0) continue;
        parallel::box_part(overlap.view(destination), parallel::relative_to(overlap.stored, common))
            .copy_(parallel::box_part(read, parallel::relative_to(rows, common)));
      }
    }
  }

  // Returns the files' tensor that holds the part, or null. The part's own name is tried before its aliases.
  const io::TensorSpec* stored(const StoredPart& part) const {
    const io::TensorSpec* found = files_->find(part.name);
    for (const std::string& alias : part.aliases) {
      if (found == nullptr) found = files_->find(alias);
    }
    return found;
  }

  std::shared_ptr<const StoredTensors> files_;
  StateDictAdapter adapter_;
};

}  // namespace

std::shared_ptr<const ParameterSource> stored_source(std::shared_ptr<const StoredTensors> files,
                                                     StateDictAdapter adapter) {
  return std::make_shared<StoredSource>(std::move(files), std::move(adapter));
}

const ParameterSource* SourceList::find(const std::string& parameter) const {
  for (const auto& source : sources_) {
    if (source->holds(parameter)) return source.get();
  }
  return nullptr;
}

const ParameterSource& SourceList::require(const std::string& parameter) const {
  const ParameterSource* found = find(parameter);
  if (found != nullptr) return *found;
  throw Error(ErrorKind::Config, "NO-VALUES", "nothing gives the parameter '" + parameter + "' its values")
      .hint("a custom module defines its initial values through nn::HasInitialValues");
}

std::optional<DType> SourceList::stored_dtype(const std::string& parameter) const {
  return require(parameter).stored_dtype(parameter);
}

void SourceList::read(const std::string& parameter, const parallel::Box& box,
                      const at::Tensor& destination) const {
  require(parameter).read(parameter, box, destination);
}

void materialize(torch::nn::Module& module, const ParameterSource& source, at::Device device) {
  for (auto& item : module.named_parameters()) {
    if (!source.holds(item.key())) continue;
    at::Tensor& parameter = item.value();
    const at::Tensor value =
        at::empty(parameter.sizes(), at::TensorOptions(device).dtype(parameter.scalar_type()));
    source.read(item.key(), whole_box(value.sizes().vec()), value);
    nn::materialize(parameter, value);
  }
}

}  // namespace tessera::checkpoint

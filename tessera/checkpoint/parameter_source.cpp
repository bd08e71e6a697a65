#include "tessera/checkpoint/parameter_source.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/nn/materialize.h"

namespace tessera::checkpoint {
namespace {

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
    for (const StateDictAdapter::Overlap& overlap : adapter_.overlaps(parameter, box)) {
      files_->read(stored(*overlap.part)->name, overlap.stored, overlap.view(destination));
    }
  }

 private:
  // The tensor that holds the part: its own name comes before the others.
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
      .hint("a module of your own says what its parameters start from: nn::HasInitialValues");
}

std::optional<DType> SourceList::stored_dtype(const std::string& parameter) const {
  return require(parameter).stored_dtype(parameter);
}

void SourceList::read(const std::string& parameter, const parallel::Box& box,
                      const at::Tensor& destination) const {
  require(parameter).read(parameter, box, destination);
}

void materialize(torch::nn::Module& module, const ParameterSource& source) {
  for (auto& item : module.named_parameters()) {
    if (!source.holds(item.key())) continue;
    at::Tensor& parameter = item.value();
    const at::Tensor value = at::empty(parameter.sizes(), at::TensorOptions().dtype(parameter.scalar_type()));
    source.read(item.key(), whole_box(value.sizes().vec()), value);
    nn::materialize(parameter, value);
  }
}

}  // namespace tessera::checkpoint

#include "tessera/peft/expert_factors.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <set>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/checkpoint/layer_parts.h"
#include "tessera/device/device.h"
#include "tessera/nn/sparse_mlp.h"
#include "tessera/parallel/box_part.h"
#include "tessera/peft/carried_parameters.h"

namespace tessera::peft {
namespace {

using checkpoint::StoredPart;
using checkpoint::StoredTensors;

constexpr const char* kGateUp = ".gate_up_proj";
constexpr const char* kDown = ".down_proj";

std::string without_last(const std::string& name) { return name.substr(0, name.rfind('.')); }

// Shows [out, rank * experts] as [experts, out, rank].
class ExpertFactors : public StoredTensors {
 public:
  ExpertFactors(std::shared_ptr<const StoredTensors> files, std::vector<io::TensorSpec> specs,
                std::set<std::string> factors)
      : StoredTensors(files->place(), std::move(specs)),
        files_(std::move(files)),
        factors_(std::move(factors)) {}

  void read(const std::string& name, const parallel::Box& box, const at::Tensor& destination) const override {
    if (!factors_.contains(name)) return files_->read(name, box, destination);
    destination.copy_(parallel::box_part(whole(name, destination.scalar_type()), box));
  }
  void add_sample(ContentHash& hash) const override { files_->add_sample(hash); }

 private:
  // Ranks read the factors of one expert after the other, in turns those of its two layers.
  at::Tensor whole(const std::string& name, at::ScalarType type) const {
    const std::scoped_lock lock(mutex_);
    for (const auto& [known, value] : kept_) {
      if (known == name && value.scalar_type() == type) return value;
    }
    const std::vector<int64_t>& shape = find(name)->shape;
    const at::Tensor stored = at::empty({shape[1], shape[2] * shape[0]}, on_host(type));
    files_->read(name, checkpoint::whole_box(stored.sizes().vec()), stored);
    const at::Tensor value = stored.view({shape[1], shape[2], shape[0]}).permute({2, 0, 1});
    kept_.emplace_front(name, value);
    if (kept_.size() > 2) kept_.pop_back();
    return value;
  }

  const std::shared_ptr<const StoredTensors> files_;
  const std::set<std::string> factors_;
  mutable std::mutex mutex_;
  mutable std::list<std::pair<std::string, at::Tensor>> kept_;
};

}  // namespace

ExpertPlaces find_expert_places(const torch::nn::Module& model) {
  ExpertPlaces places;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    const auto* const mlp = dynamic_cast<const nn::SparseMLP*>(item.value().get());
    if (mlp == nullptr || mlp->experts.front()->gate_up_proj == nullptr) continue;
    const std::string& own = mlp->options().transformers_name;
    // Files have no name of an MLP whose parts the block registers.
    const std::string block = without_last(item.key());
    const std::string name = mlp->options().is_beside ? block : own.empty() ? item.key() : block + "." + own;
    const auto count = std::ssize(mlp->experts);
    for (int64_t e = 0; e < count; ++e) {
      const std::string expert = item.key() + ".experts." + std::to_string(e) + ".";
      const nn::MLPOptions& o = mlp->options().expert;
      places[expert + o.gate_up] = {name + ".experts" + kGateUp, e, count};
      places[expert + o.down] = {name + ".experts" + kDown, e, count};
    }
  }
  return places;
}

void put_in_experts(std::vector<StoredPart>& parts, const ExpertPlace& place, bool is_b,
                    const ExpertPlaces& places) {
  const std::string module = without_last(place.parameter);
  const bool is_inner =
      place.parameter.ends_with(kGateUp) &&
      std::ranges::any_of(places, [&](const auto& item) { return item.second.parameter == module + kDown; });
  const std::string tensor =
      to_peft_name(module + (is_inner ? ".base_layer" : "") + (is_b ? kFactorB : kFactorA));
  for (StoredPart& part : parts) {
    if (is_b) {
      checkpoint::put_in_stack(part, place.index, place.count, tensor);
      continue;
    }
    part.name = tensor;
    part.box.offset[0] += place.index * part.shape[0];
    part.shape[0] *= place.count;
  }
}

bool is_expert_factor(const checkpoint::StateDictAdapter::StoredTensor& tensor) {
  return tensor.shape.size() == 3 && tensor.name.ends_with(kFactorB);
}

std::shared_ptr<const StoredTensors> with_expert_factors(std::shared_ptr<const StoredTensors> files,
                                                         const checkpoint::StateDictAdapter& table) {
  std::vector<io::TensorSpec> specs = files->tensors();
  std::set<std::string> factors;
  for (const auto& wanted : table.stored_tensors()) {
    if (!is_expert_factor(wanted)) continue;
    const auto found = std::ranges::find(specs, wanted.name, &io::TensorSpec::name);
    const int64_t experts = wanted.shape[0];
    if (found == specs.end() || found->shape.size() != 2 || found->shape[1] % experts != 0) continue;
    found->shape = {experts, found->shape[0], found->shape[1] / experts};
    factors.insert(wanted.name);
  }
  if (factors.empty()) return files;
  return std::make_shared<ExpertFactors>(std::move(files), std::move(specs), std::move(factors));
}

}  // namespace tessera::peft

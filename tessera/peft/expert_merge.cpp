#include "tessera/peft/expert_merge.h"

#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/device/device.h"
#include "tessera/parallel/box_part.h"
#include "tessera/peft/layer_options.h"

namespace tessera::peft {

ExpertMerge::ExpertMerge(const ExpertBase& base, const AdapterConfig& config,
                         const std::shared_ptr<const io::ModelFiles>& adapter)
    : base_table_(base.table) {
  const LoraTargets targets = apply_adapter(*base.model, config, *adapter, base.tied);
  const checkpoint::StateDictAdapter table = adapter_table(*base.model, targets);
  source_ = adapter_source(*base.model, targets, adapter);
  const LayerOptions options_of(config.options);
  for (const auto& [layer, place] : targets.experts) {
    for (const char* factor : {kFactorA, kFactorB})
      factors_.insert(table.find(layer + factor)->parts.front().name);
    const checkpoint::StoredParameter* weight = base_table_.find(layer + ".weight");
    TESSERA_ASSERT(weight != nullptr, "the base's table has " + layer);
    const LoraOptions options = options_of(place.parameter);
    for (const checkpoint::StoredPart& part : weight->parts)
      parts_[part.name].push_back({layer, &part, lora_scaling(options), options.rank, weight->shape});
  }
}

std::vector<std::string> ExpertMerge::changed() const {
  std::vector<std::string> names;
  for (const auto& [name, parts] : parts_) names.push_back(name);
  return names;
}

const ExpertMerge::Factors& ExpertMerge::factors_of(const Part& part) const {
  if (last_.layer == part.layer) return last_;
  const auto read = [&](const char* factor, const std::vector<int64_t>& shape) {
    const at::Tensor values = at::empty(shape, on_host(at::kDouble));
    source_->read(part.layer + factor, checkpoint::whole_box(shape), values);
    if (at::isfinite(values).all().item<bool>()) return values;
    throw Error(ErrorKind::Model, "ADAPTER", "the adapter contains a value that is not finite")
        .in("parameter '" + part.layer + factor + "'");
  };
  last_.a = read(kFactorA, {part.rank, part.shape[1]});
  last_.b = read(kFactorB, {part.shape[0], part.rank});
  last_.layer = part.layer;
  return last_;
}

void ExpertMerge::add(const std::string& tensor, int64_t first, const at::Tensor& rows) const {
  std::vector<int64_t> begin(static_cast<size_t>(rows.dim()), 0);
  begin[0] = first;
  const parallel::Box piece{begin, rows.sizes().vec()};
  for (const Part& part : parts_.at(tensor)) {
    const parallel::Box common = parallel::intersect(piece, part.part->box);
    if (common.numel() == 0) continue;
    const Factors& factors = factors_of(part);
    // The common part in the dims of the weight, which may be stored transposed.
    const size_t leading = part.part->leading_dims();
    const auto in_weight = [&](size_t dim) -> std::pair<int64_t, int64_t> {
      const size_t stored = leading + (part.part->is_transposed ? 1 - dim : dim);
      return {part.part->offset[dim] + common.offset[stored] - part.part->box.offset[stored],
              common.size[stored]};
    };
    const auto [row, num_rows] = in_weight(0);
    const auto [column, num_columns] = in_weight(1);
    at::Tensor change = at::mm(factors.b.narrow(0, row, num_rows), factors.a.narrow(1, column, num_columns))
                            .mul_(part.scaling);
    if (part.part->is_transposed) change = change.t();
    parallel::box_part(rows, parallel::relative_to(piece, common)).add_(change.reshape(common.size));
  }
}

}  // namespace tessera::peft

#include "tessera/optim/rule.h"

#include "tessera/core/error.h"

namespace tessera::optim {

int64_t RuleParameter::numel() const {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return numel;
}

void Rule::begin(RuleUpdate&) const {}

int64_t Rule::measured_size(int64_t, const RuleParameter&) const { return 0; }

void Rule::absorb(int64_t, RuleUpdate&) const {}

at::Tensor Rule::measure(int64_t, RuleUpdate&) const {
  throw_internal(__FILE__, __LINE__, "measure", "a rule without rounds measures nothing");
}

std::vector<int64_t> Rule::examined_shape(const RuleUpdate&) const { return {}; }

at::Tensor Rule::examine(const at::Tensor&, const RuleParameter&) const {
  throw_internal(__FILE__, __LINE__, "examine", "a rule that asks for no gradient examines none");
}

void Rule::keep(RuleUpdate&, const at::Tensor&) const {}

at::Tensor Rule::matrix(RuleUpdate&) const {
  throw_internal(__FILE__, __LINE__, "matrix", "a rule without a matrix has none");
}

at::Tensor Rule::transformed(const at::Tensor&) const {
  throw_internal(__FILE__, __LINE__, "transformed", "a rule without a matrix transforms nothing");
}

void Rule::move_to_average(bool, const at::Tensor&, const std::vector<at::Tensor>&) const {}

}  // namespace tessera::optim

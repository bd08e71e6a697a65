#include "tessera/ops/embedding.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/trace.h"
#include "tessera/device/memory_scope.h"
#include "tessera/ops/direct_gradient.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& weight, const at::Tensor& ids,
                            int64_t fixed) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->save_for_backward({weight, ids});
    ctx->saved_data["fixed"] = fixed;
    return at::embedding(weight, ids);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward("embedding");
    const auto saved = ctx->get_saved_variables();
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor &weight = saved[0], &ids = saved[1];
    const MemoryScope memory(MemoryCategory::Gradients);
    const int64_t fixed = ctx->saved_data["fixed"].toInt();
    const auto type = direct_gradient_type(weight);
    if (!type) return {at::embedding_dense_backward(grads[0], ids, weight.size(0), fixed, false), {}, {}};
    at::Tensor& gradient = weight.mutable_grad();
    if (!gradient.defined()) {
      gradient = at::zeros(weight.sizes(), weight.options().dtype(*type).requires_grad(false));
    }
    at::Tensor of_rows = grads[0].reshape({-1, weight.size(1)}).to(gradient.scalar_type());
    if (fixed >= 0) of_rows = of_rows.masked_fill(ids.reshape({-1, 1}).eq(fixed), 0);
    gradient.index_add_(0, ids.reshape({-1}), of_rows);
    return {{}, {}, {}};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids, int64_t fixed) {
  const trace::Scope trace_scope("embedding");
  if (!needs_graph({weight})) return at::embedding(weight, ids);
  return EmbeddingFunction::apply(weight, ids, fixed);
}

at::Tensor coded_embedding(const Weight& table, const at::Tensor& ids, at::ScalarType type) {
  return Weight(table.stored().index_select(0, ids), table.form()).rows(0, ids.size(0), type);
}

at::Tensor embedding_part(const at::Tensor& weight, int64_t first_row, const at::Tensor& ids, int64_t fixed) {
  const at::Tensor rows = ids - first_row;
  const int64_t size = weight.size(0);
  if (size == 0) {
    const at::Tensor none = rows.narrow(0, 0, 0), found = ops::embedding(weight, none);
    return at::zeros({ids.size(0), weight.size(1)}, found.options()).index_copy(0, none, found);
  }
  // Ids of other parts read a row of this one, chosen by the remainder so that they spread over all rows, and
  // get zeros afterwards. To leave these ids out, the host would have to wait for their number.
  const at::Tensor is_elsewhere = rows.lt(0).logical_or(rows.ge(size));
  const int64_t fixed_here = fixed >= first_row && fixed < first_row + size ? fixed - first_row : -1;
  return ops::embedding(weight, rows.remainder(size), fixed_here).masked_fill(is_elsewhere.unsqueeze(-1), 0);
}

}  // namespace tessera::ops

#include "tessera/ops/take_rows.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

struct TakeRowsFunction : torch::autograd::Function<TakeRowsFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& rows, const at::Tensor& places, int64_t copies) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->save_for_backward({places});
    ctx->saved_data["copies"] = copies;
    return x.index_select(0, rows);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    refuse_double_backward("take_rows");
    const auto saved = ctx->get_saved_variables();
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const int64_t copies = ctx->saved_data["copies"].toInt(), width = grads[0].size(1);
    const at::Tensor by_row = grads[0].index_select(0, saved[0]);
    return {copies == 1 ? by_row : by_row.view({by_row.size(0) / copies, copies, width}).sum(1), {}, {}, {}};
  }
};

}  // namespace

at::Tensor take_rows(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& places, int64_t copies) {
  const trace::Scope trace_scope("take_rows");
  TESSERA_CHECK_ARGUMENT(
      x.dim() == 2 && rows.dim() == 1 && rows.sizes() == places.sizes() && rows.size(0) == x.size(0) * copies,
      "take_rows: shapes");
  if (!needs_graph({x})) return x.index_select(0, rows);
  return TakeRowsFunction::apply(x, rows, places, copies);
}

}  // namespace tessera::ops

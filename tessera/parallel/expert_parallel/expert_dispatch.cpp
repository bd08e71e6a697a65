#include "tessera/parallel/expert_parallel/expert_dispatch.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/trace.h"
#include "tessera/device/device.h"
#include "tessera/device/device_copy.h"
#include "tessera/device/host_memory.h"
#include "tessera/nn/random_scope.h"
#include "tessera/ops/pass_through.h"
#include "tessera/parallel/layout.h"

namespace tessera::parallel {
namespace {

using Counts = std::vector<int64_t>;
using Group = std::shared_ptr<comm::Communicator>;

int64_t total(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

// Sends to_go[r] rows to each rank r, one rank's after the other's, and returns the to_come[r] rows of each
// rank r in the same order: [sum of to_come, width].
at::Tensor exchange_rows(const at::Tensor& rows, const Counts& to_come, const Counts& to_go,
                         const Group& group, const char* what) {
  const int64_t width = rows.size(1);
  const at::Tensor received = at::empty({total(to_come), width}, rows.options().requires_grad(false));
  const auto elements = [width](Counts counts) {
    for (int64_t& count : counts) count *= width;
    return counts;
  };
  group->all_to_all_v(received, rows.contiguous(), elements(to_come), elements(to_go), false,
                      {comm::hint(what)});
  return received;
}

// [Note: order of dispatched rows]
// The rows of this rank are sorted by expert, and each rank holds consecutive experts, so the rows for a rank
// are consecutive as well and are sent as they lie. What arrives is sorted by the rank it comes from and,
// within a rank's rows, by expert. The experts need all rows of one expert side by side, so `order` sorts the
// arrived rows by expert, then by rank; `restore` is its inverse, after which results lie as the rows arrived
// and travel back with the counts exchanged. The backward uses the same plan: gradients of results go to the
// experts as the rows went, gradients of rows come back as the results came.
//
// The plan of one layer and micro-batch. Activation checkpointing runs the forward a second time, which makes
// a new plan from the same choices.
struct Plan {
  Counts to_go, to_come;      // numbers of rows, by rank
  Counts of_expert;           // number of rows that arrive for each expert of this rank
  at::Tensor order, restore;  // [arriving rows] int64, on the device
};

Plan make_plan(const Counts& counts, const Group& group, at::Device device) {
  const int64_t ranks = group->size(), num_experts = std::ssize(counts);
  const int64_t own = piece_of(num_experts, ranks, group->rank()).size;
  Plan plan;
  Counts experts_of;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const auto [first, count] = piece_of(num_experts, ranks, rank);
    experts_of.push_back(count);
    plan.to_go.push_back(std::accumulate(counts.begin() + first, counts.begin() + first + count, int64_t{0}));
  }
  // All ranks exchange their numbers of rows for each expert, on the host. `received` is [ranks, own
  // experts]: what each rank sends for each expert of this one.
  const at::Tensor sent = at::tensor(counts, on_host(at::kLong));
  const at::Tensor received = at::empty({ranks * own}, sent.options());
  group->all_to_all_v(received, sent, Counts(static_cast<size_t>(ranks), own), experts_of, false,
                      {comm::hint("numbers of rows for experts")});
  const auto by_rank = host_span<const int64_t>(received);
  const auto from = [&](int64_t rank, int64_t expert) {
    return by_rank[static_cast<size_t>(rank * own + expert)];
  };

  Counts begins;  // [ranks, own experts]: first row that arrives from the rank for the expert
  int64_t begin = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    int64_t sum = 0;
    for (int64_t expert = 0; expert < own; ++expert) {
      begins.push_back(begin + sum);
      sum += from(rank, expert);
    }
    plan.to_come.push_back(sum);
    begin += sum;
  }
  Counts order;
  for (int64_t expert = 0; expert < own; ++expert) {
    const size_t before = order.size();
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t first = begins[static_cast<size_t>(rank * own + expert)];
      for (int64_t i = 0; i < from(rank, expert); ++i) order.push_back(first + i);
    }
    plan.of_expert.push_back(static_cast<int64_t>(order.size() - before));
  }
  plan.order = copy_to(at::tensor(order, on_host(at::kLong)), device);
  plan.restore = plan.order.argsort();
  return plan;
}

}  // namespace

at::Tensor ExpertDispatch::run(const at::Tensor& rows, const at::Tensor& ends,
                               const nn::Experts& experts) const {
  const trace::Scope trace_scope("expert_dispatch");
  const Plan plan = make_plan(nn::row_counts(ends, rows.size(0)), group_, rows.device());
  // `there` takes rows from their tokens' rank to their experts' rank, `back` the other way. As values and
  // gradients of one exchange travel in opposite directions, each serves as the backward of the other.
  const auto there = [plan, group = group_](const char* what) {
    return [plan, group, what](const at::Tensor& own) {
      return exchange_rows(own, plan.to_come, plan.to_go, group, what).index_select(0, plan.order);
    };
  };
  const auto back = [plan, group = group_](const char* what) {
    return [plan, group, what](const at::Tensor& others) {
      return exchange_rows(others.index_select(0, plan.restore), plan.to_go, plan.to_come, group, what);
    };
  };
  const at::Tensor received =
      ops::exchange_value(rows, there("tokens for experts"), back("gradients of tokens for experts"));
  const auto [first, count] = piece_of(std::ssize(experts), group_->size(), group_->rank());
  const nn::Experts here(experts.begin() + first, experts.begin() + first + count);
  // Dropout masks are functions of a row's place, so the places travel with the rows.
  std::optional<nn::RandomScope> scope;
  if (const nn::RandomPlace* place = nn::RandomScope::current(); place != nullptr && place->rows.defined()) {
    nn::RandomPlace of_received = *place;
    of_received.rows = there("places of tokens for experts")(place->rows.to(rows.device())).to(kHost);
    scope.emplace(std::move(of_received));
  }
  const at::Tensor results = nn::run_experts(received, plan.of_expert, here);
  return ops::exchange_value(results, back("results of experts"), there("gradients of results of experts"));
}

}  // namespace tessera::parallel

// The check that a forward or backward which throws has no later effect, for every transport.
#pragma once

#include <functional>
#include <utility>

#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/parallel/fully_shard.h"

#include "tests/parallel/parity.h"

namespace tessera::testing {

// A hook that throws once from the forward or the backward of its module, when it is told to.
class FailingHook : public nn::CallHook {
 public:
  enum class Where { Nowhere, Forward, Backward };
  Where next_failure = Where::Nowhere;

  at::Tensor run(const at::Tensor& input, const Forward& next) override {
    const Where where = std::exchange(next_failure, Where::Nowhere);
    if (where == Where::Forward) fail();
    const at::Tensor output = next(input);
    if (where == Where::Backward) output.register_hook([](const at::Tensor&) { fail(); });
    return output;
  }

 private:
  static void fail() { throw Error(ErrorKind::Data, "ON-PURPOSE", "a test wants this"); }
};

inline std::string code_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code();
  }
  return "none";
}

// A sharded model whose block `failing` can be told to fail.
struct FailingModel {
  FailingModel(const parallel::DeviceMesh& mesh, const parallel::ShardOptions& options, size_t failing,
               ToyLoss loss_kind)
      : hook(std::make_shared<FailingHook>()), rank(mesh.world()->rank()), kind(loss_kind) {
    nn::add_call_hook(*model.blocks[failing], hook);
    sharded = parallel::fully_shard(model,
                                    {mesh.group(parallel::kAxisFsdp), mesh.group(parallel::kAxisDpReplicate)},
                                    model.units(), options);
  }

  at::Tensor forward(int64_t micro_batch, bool is_last) {
    sharded->set_is_last_micro_batch(is_last);
    const ToyBatch batch = toy_batch(2 * micro_batch + rank);
    return model.loss(batch.words, batch.labels, kind);
  }
  void micro_batch(int64_t index, bool is_last) { forward(index, is_last).backward(); }
  void step() {
    sharded->zero_grad();
    micro_batch(0, false);
    micro_batch(1, true);
  }
  void update() {
    const at::NoGradGuard no_grad;
    for (const auto& parameter : sharded->parameters()) parameter.tile.detach().mul_(1.25);
  }

  ToyModel model;
  std::shared_ptr<FailingHook> hook;
  int64_t rank = 0;
  ToyLoss kind;
  std::unique_ptr<parallel::ShardedModel> sharded;
};

inline void expect_same_gradients(const FailingModel& a, const FailingModel& b) {
  for (size_t p = 0; p < a.sharded->parameters().size(); ++p) {
    const auto& one = a.sharded->parameters()[p];
    const at::Tensor &mine = one.tile.grad(), &theirs = b.sharded->parameters()[p].tile.grad();
    ASSERT_EQ(mine.defined(), theirs.defined()) << one.name;
    EXPECT_TRUE(!mine.defined() || at::equal(mine, theirs)) << one.name;
  }
  EXPECT_EQ(a.model.embedding.storage().nbytes(), b.model.embedding.storage().nbytes());
  EXPECT_EQ(a.model.blocks[2]->up.storage().nbytes(), b.model.blocks[2]->up.storage().nbytes());
}

// Lets all ranks fail in block `failing`, and expects that the model then does the same as one that never
// failed.
inline void check_interruption(const std::shared_ptr<comm::Communicator>& world, const ParityCase& parity,
                               size_t failing, ToyLoss kind = ToyLoss::Plain) {
  SCOPED_TRACE(parity.name + ", block " + std::to_string(failing) + ", " + std::to_string(world->size()) +
               " ranks");
  ParallelDims dims;
  dims.dp_replicate = parity.dp_replicate;
  const parallel::DeviceMesh mesh(world, dims);
  FailingModel failed(mesh, parity.options, failing, kind), other(mesh, parity.options, failing, kind);

  // A forward fails at the beginning of a step. After an update no stale parameters are used.
  failed.sharded->zero_grad();
  failed.hook->next_failure = FailingHook::Where::Forward;
  EXPECT_EQ(code_of([&] { failed.forward(0, false); }), "E-DATA-ON-PURPOSE");
  failed.update();
  other.update();
  failed.step();
  other.step();
  expect_same_gradients(failed, other);

  // The loss of a forward is dropped, so that no backward follows.
  failed.forward(0, false);
  failed.update();
  other.update();
  failed.step();
  other.step();
  expect_same_gradients(failed, other);

  // A forward fails within a step: the gradients that were summed before still count.
  failed.sharded->zero_grad();
  failed.micro_batch(0, false);
  failed.hook->next_failure = FailingHook::Where::Forward;
  EXPECT_EQ(code_of([&] { failed.forward(1, true); }), "E-DATA-ON-PURPOSE");
  failed.micro_batch(1, true);
  expect_same_gradients(failed, other);

  // A backward fails: the gradients of the step are not whole, and nothing may be added to them.
  failed.sharded->zero_grad();
  failed.micro_batch(0, false);
  failed.hook->next_failure = FailingHook::Where::Backward;
  const at::Tensor loss = failed.forward(1, true);
  EXPECT_EQ(code_of([&] { loss.backward({}, /*retain_graph=*/true); }), "E-DATA-ON-PURPOSE");
  EXPECT_EQ(code_of([&] { loss.backward(); }), "E-CONFIG-PARTIAL-GRADIENTS");
  EXPECT_EQ(code_of([&] { failed.forward(1, true); }), "E-CONFIG-PARTIAL-GRADIENTS");
  failed.update();
  other.update();
  {
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::equal(failed.forward(1, true), other.forward(1, true)));
  }
  EXPECT_EQ(code_of([&] { failed.forward(1, true); }), "E-CONFIG-PARTIAL-GRADIENTS");
  failed.step();
  other.step();
  expect_same_gradients(failed, other);
}

// Returns a case of every policy in which parameters are cut, copied or cast.
inline std::vector<ParityCase> interruption_cases(int64_t num_ranks) {
  std::vector<ParityCase> cases;
  for (ParityCase& parity : parity_cases(num_ranks)) {
    if (parity.accumulation > 1 || parity.freeze_some || parity.checkpoint_activations) continue;
    // A single process would train the plain module if it computed in the stored type.
    if (num_ranks == 1) parity.options.mixed_precision.param_dtype = at::kFloat;
    cases.push_back(std::move(parity));
  }
  return cases;
}

}  // namespace tessera::testing

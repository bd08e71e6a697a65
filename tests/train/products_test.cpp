#include <algorithm>
#include <iterator>
#include <memory>

#include "tests/testing/extent.h"
#include "tests/testing/shared_random.h"
#include "tests/train/deep_model.h"
#include "tests/train/parity_families.h"
#include "tests/train/step_layout.h"

namespace tessera::train {
namespace {

// Tests that losses, gradients and updated parameters equal those of one process under every product
// dp_replicate x dp_shard x cp x tp x pp that makes the number of ranks, for every family whose heads can be
// cut so. TESSERA_TEST_EXTENT=all runs all of them, for a full finetune, for LoRA and for QLoRA; otherwise a
// part of a fixed sample runs. All other choices of a layout take turns.

const std::vector<ParityFamily>& families() {
  static const std::vector<ParityFamily> all = families_in(Parity::Products);
  return all;
}

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= number; ++d) {
    if (number % d == 0) divisors.push_back(d);
  }
  return divisors;
}

std::vector<ParallelDims> all_products(int64_t ranks) {
  std::vector<ParallelDims> products;
  for (const int64_t replicate : divisors(ranks)) {
    for (const int64_t shard : divisors(ranks / replicate)) {
      for (const int64_t cp : divisors(ranks / replicate / shard)) {
        for (const int64_t tp : divisors(ranks / replicate / shard / cp)) {
          ParallelDims dims;
          dims.dp_replicate = replicate;
          dims.dp_shard = shard;
          dims.cp = cp;
          dims.tp = tp;
          dims.pp = ranks / replicate / shard / cp / tp;
          products.push_back(dims);
        }
      }
    }
  }
  return products;
}

// Fills in the choices that the product of axes leaves open. They take turns with periods that have no
// common factor.
LayoutCase with_choices(LayoutCase layout, const ParallelDims& dims, const ParityFamily& family,
                        size_t turn) {
  constexpr config::ZeroStage kStages[] = {config::ZeroStage::Zero3, config::ZeroStage::Zero1,
                                           config::ZeroStage::Zero2};
  constexpr config::Checkpointing kCheckpointing[] = {
      config::Checkpointing::Off, config::Checkpointing::Block, config::Checkpointing::Mlp,
      config::Checkpointing::Off, config::Checkpointing::Block};
  struct Choice {
    PipelineKind kind;
    int64_t stages_per_rank;
  };
  constexpr Choice kSchedules[] = {{PipelineKind::OneFOneB, 1},   {PipelineKind::Interleaved, 2},
                                   {PipelineKind::ZeroBubble, 1}, {PipelineKind::GPipe, 1},
                                   {PipelineKind::ZeroBubble, 2}, {PipelineKind::GPipe, 2},
                                   {PipelineKind::Interleaved, 2}};
  layout.stage = kStages[turn % 3];
  if (dims.dp_shard == 1 && turn % 4 == 0) layout.stage = config::ZeroStage::Ddp;
  layout.checkpointing = kCheckpointing[turn % 5];
  constexpr ContextParallelMethod kMethods[] = {ContextParallelMethod::Ring, ContextParallelMethod::Ulysses,
                                                ContextParallelMethod::Usp};
  layout.method = kMethods[turn / 3 % 3];
  layout.async_tp = dims.tp > 1 && turn / 2 % 2 == 0;
  // Secondary shards lie over half of the ranks, or a third.
  const int64_t shards = dims.dp_shard * dims.cp;
  for (const int64_t part : {2, 3}) {
    if (layout.stage == config::ZeroStage::Zero3 && shards % part == 0 && turn % 2 == 0)
      layout.hpz = shards / part;
  }
  // Experts are shared by as many ranks as possible, by two, or by none; DDP has no ranks that share.
  for (const int64_t ep : divisors(shards)) {
    if (layout.stage == config::ZeroStage::Ddp) break;
    if (ep <= family.experts && turn % 3 > 0 && (turn % 3 == 1 || ep <= 2)) layout.ep = ep;
  }
  if (dims.pp > 1) {
    // Sixteen layers are two stages for each of eight ranks.
    layout.schedule = kSchedules[turn % 7].kind;
    layout.stages_per_rank = kSchedules[turn % 7].stages_per_rank;
    layout.micro_batches = 1 + static_cast<int64_t>(turn * 3 % 7);
    // The stages are uneven: with two layers for each rank, every other stage gets three and the rest one.
    const auto stages = static_cast<size_t>(dims.pp * layout.stages_per_rank);
    if (turn % 3 == 0 && layout.stages_per_rank == 1 && stages % 2 == 0) {
      for (size_t stage = 0; stage < stages; ++stage) layout.split.push_back(stage % 2 == 0 ? 1 : 3);
    }
    if (dims.dp_replicate * dims.dp_shard == 1) layout.micro_batches += 1;
  } else {
    layout.micro_batches = 2 + static_cast<int64_t>(turn % 2);
  }
  return layout;
}

struct ProductCase {
  ParallelDims dims;
  const ParityFamily* family;
  Trained trained;
  size_t turn;
};

constexpr Trained kTrained[] = {Trained::All,           Trained::LoraWithDropout, Trained::QloraWithDropout,
                                Trained::DoraFromPissa, Trained::LoraWithBias,    Trained::Ia3,
                                Trained::Norms,         Trained::VeraWithDropout, Trained::TokenRows,
                                Trained::Prompt};

std::vector<ProductCase> all_cases(const std::vector<ParallelDims>& products) {
  std::vector<ProductCase> cases;
  for (const ParallelDims& dims : products) {
    for (const ParityFamily& family : families()) {
      if (!family.allows(dims.tp)) continue;
      for (const Trained trained : kTrained) cases.push_back({dims, &family, trained, cases.size() + 1});
    }
  }
  return cases;
}

// Returns cases with each family, all kinds of training, and products from all parts of the list.
std::vector<ProductCase> sample_of_cases(const std::vector<ParallelDims>& products, int64_t ranks) {
  constexpr size_t kCases = 8;
  std::vector<ProductCase> cases;
  for (size_t i = 0; i < kCases; ++i) {
    const size_t place = products.size() < kCases ? i % products.size() : i * products.size() / kCases;
    const size_t count = families().size();
    size_t family = i;
    while (!families()[family % count].allows(products[place].tp)) ++family;
    cases.push_back({products[place], &families()[family % count],
                     kTrained[(i + i / count) % std::size(kTrained)],
                     kCases * static_cast<size_t>(ranks) + i});
  }
  return cases;
}

TEST(ProductsTest, EqualOneProcess) {
  const int64_t world = testing::world()->size();
  const std::vector<ParallelDims> products = all_products(world);
  for (const ParallelDims& dims : products) {
    EXPECT_TRUE(
        std::ranges::any_of(families(), [&](const ParityFamily& family) { return family.allows(dims.tp); }))
        << "no family for tensor_parallel_size " << dims.tp;
  }
  testing::Random random = testing::shared_random();
  const std::vector<ProductCase> cases = testing::runs_all_cases()
                                             ? all_cases(products)
                                             : testing::some_of(sample_of_cases(products, world), 3, random);
  constexpr size_t kAtOnce = 8;
  for (size_t begin = 0; begin < cases.size() && !HasFailure(); begin += kAtOnce) {
    std::vector<std::unique_ptr<DeepModel>> models;
    std::vector<LayoutCase> layouts;
    for (size_t i = begin; i < std::min(begin + kAtOnce, cases.size()); ++i) {
      const auto& [dims, family, trained, turn] = cases[i];
      const int64_t layers = std::max<int64_t>(2, 2 * dims.pp);
      models.push_back(std::make_unique<DeepModel>(family->name, layers, family->changes));
      const LayoutCase layout{.family = family->name,
                              .dp_replicate = dims.dp_replicate,
                              .tp = dims.tp,
                              .cp = dims.cp,
                              .pp = dims.pp,
                              .trained = trained,
                              .folder = models.back()->path()};
      layouts.push_back(with_choices(layout, dims, *family, turn));
    }
    expect_same_as_one_process(layouts);
  }
  if (testing::world()->rank() == 0) {
    std::printf("%zu cases over %zu products of %ld ranks\n", cases.size(), products.size(),
                static_cast<long>(world));
  }
}

}  // namespace
}  // namespace tessera::train

// Tests of the rules of optimizers: their numbers are those of PyTorch and of the packages that their authors
// publish, whole and cut over ranks, and their states go from one layout to another.
#include <cmath>
#include <fstream>
#include <numeric>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/sha256.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/optim/adamw_8bit.h"
#include "tessera/optim/dynamic_map.h"
#include "tessera/optim/optimizers.h"
#include "tessera/parallel/box_part.h"

#include "tests/testing/paths.h"

namespace tessera::optim {
namespace {

using parallel::Placement;

at::Tensor numbers(const std::vector<int64_t>& shape) {
  const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return at::arange(count, at::kDouble).view(shape);
}

// These three are those of tests/reference/make_optimizer_reference.py.
at::Tensor start(const std::vector<int64_t>& shape) { return (numbers(shape) * 0.9 + 0.2).sin() * 0.7; }
at::Tensor gradient(const std::vector<int64_t>& shape, int64_t t, double bend = 0.0) {
  const auto at = static_cast<double>(t);
  const at::Tensor i = numbers(shape);
  return (i * 1.3 + i * i * bend + (0.7 * at + 0.1)).sin() * ((0.2 + std::cos(0.05 * at)) * 0.4);
}
double rate(int64_t t) { return 0.01 * (1.0 + 0.5 * std::sin(0.3 * static_cast<double>(t))); }

struct Case {
  std::string name;
  OptimizerKind kind;
  OptimizerOptions options;
  double decay;
  std::vector<int64_t> shape;
  double bend;        // of its gradients
  std::string param;  // the parameter's name
  nn::RowBlocks row_blocks;
  int64_t every;                   // values are those of every so many elements
  std::vector<at::Tensor> values;  // after each of `updates`, flat
};

struct Reference {
  std::vector<int64_t> updates;
  std::vector<Case> cases;
};

Reference reference() {
  std::ifstream file(testing::source_folder() + "/tests/reference/data/optimizers.json");
  const auto document = nlohmann::json::parse(file);
  Reference all{document.at("updates").get<std::vector<int64_t>>(), {}};
  for (const auto& stored : document.at("cases")) {
    const std::string name = stored.at("optimizer");
    Case& row = all.cases.emplace_back();
    const auto facts =
        std::ranges::find_if(optimizer_table(), [&](const auto& other) { return other.name == name; });
    row.name = name + " " + stored.at("options").dump();
    row.kind = facts->kind;
    row.options = default_options(row.kind);
    for (const auto& [key, value] : stored.at("options").items()) {
      const auto option = std::ranges::find(facts->options, key, &OptimizerOption::name);
      EXPECT_NE(option, facts->options.end()) << key;
      row.options.*option->field = value.get<double>();
    }
    row.decay = stored.at("weight_decay");
    row.bend = stored.value("bend", 0.0);
    row.param = stored.value("name", std::string("w"));
    const auto blocks = stored.value("row_blocks", std::vector<int64_t>{1, 1, 0});
    row.row_blocks = {blocks.at(0), blocks.at(1), blocks.at(2)};
    row.every = stored.value("every", int64_t{1});
    row.shape = stored.at("shape").get<std::vector<int64_t>>();
    for (const auto& values : stored.at("values"))
      row.values.push_back(at::tensor(values.get<std::vector<double>>(), at::kDouble));
  }
  return all;
}

// A parameter that is trained as one rank holds it.
struct Trained {
  at::Tensor tile;
  parallel::Box box;
  std::unique_ptr<Optimizer> optimizer;

  Trained(const Case& row, const parallel::Layout& layout, std::vector<parallel::RankAxis> axes,
          at::ScalarType type = at::kDouble) {
    const std::vector<int64_t> coordinates = parallel::coordinates_on(axes);
    box = layout.local_box(coordinates);
    tile = parallel::box_part(start(row.shape), box).to(type).contiguous().clone().set_requires_grad(true);
    OptimizedTile optimized{.name = row.param,
                            .tile = tile,
                            .weight_decay = row.decay,
                            .layout = layout,
                            .coordinates = coordinates};
    optimized.axes = std::move(axes);
    optimized.row_blocks = row.row_blocks;
    optimizer = make_optimizer(row.kind, {optimized}, row.options, 1);
  }
  explicit Trained(const Case& row) : Trained(row, {row.shape, DType::F64, {}}, {}) {}

  void step(const Case& row, int64_t t) {
    tile.mutable_grad() =
        (parallel::box_part(gradient(row.shape, t, row.bend), box) * 2.0).contiguous().to(tile.scalar_type());
    optimizer->step(rate(t), 0.5);
  }
  at::Tensor average() {
    optimizer->move_to_average(true);
    at::Tensor values = tile.detach().clone();
    optimizer->move_to_average(false);
    return values;
  }
};

double difference(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0.0 : (a.to(at::kDouble) - b).abs().max().item<double>();
}

TEST(RulesTest, HundredUpdatesAreThoseOfTheReference) {
  const Reference all = reference();
  for (const Case& row : all.cases) {
    Trained trained(row);
    size_t next = 0;
    for (int64_t t = 1; t <= all.updates.back(); ++t) {
      trained.step(row, t);
      if (t != all.updates[next]) continue;
      const at::Tensor values = trained.average().view({-1}).slice(0, 0, std::nullopt, row.every);
      EXPECT_LE(difference(values, row.values[next]), 1e-12) << row.name << " update " << t;
      ++next;
    }
  }
}

// Returns layouts over two axes of these ranks: rows and columns, rows twice, and copies of rows.
std::vector<parallel::Layout> cuts(const std::vector<int64_t>& shape, int64_t first, int64_t second) {
  const int64_t last = std::ssize(shape) - 1;
  const parallel::Layout whole(shape, DType::F64, {});
  return {whole.with({"tp", first, Placement::shard(last)}).with({"fsdp", second, Placement::shard(0)}),
          whole.with({"tp", first, Placement::shard(0, 2)}).with({"fsdp", second, Placement::shard(0)}),
          whole.with({"dp", first, Placement::replicate()}).with({"fsdp", second, Placement::shard(last)})};
}

TEST(RulesTest, TilesAreUpdatedAsTheWholeIs) {
  const Reference all = reference();
  comm::run_fake_ranks(6, [&](const auto& world) {
    const auto first = world->split(world->rank() / 2, world->rank(), "first");
    const auto second = world->split(world->rank() % 2, world->rank(), "second");
    for (const Case& row : all.cases) {
      Trained whole(row);
      const auto layouts = cuts(row.shape, 2, 3);
      for (size_t i = 0; i < layouts.size(); ++i) {
        Trained cut(row, layouts[i],
                    {{layouts[i].axes()[0].axis, first}, {layouts[i].axes()[1].axis, second}});
        for (int64_t t = 1; t <= 4; ++t) {
          if (i == 0) whole.step(row, t);
          cut.step(row, t);
        }
        EXPECT_LE(difference(cut.tile.detach(), parallel::box_part(whole.tile.detach(), cut.box)), 1e-12)
            << row.name << " layout " << i;
        // The codes of states in 8 bits are the same, too.
        const auto got = cut.optimizer->states(), want = whole.optimizer->states();
        ASSERT_EQ(got.size(), want.size());
        for (size_t state = 0; state < got.size(); ++state) {
          EXPECT_LE(difference(got[state].get(), parallel::box_part(want[state].get(), got[state].box())),
                    1e-12)
              << row.name << " layout " << i << ' ' << got[state].name;
        }
      }
    }
  });
}

TEST(RulesTest, StatesGoFromOneLayoutToAnother) {
  const Reference all = reference();
  comm::run_fake_ranks(6, [&](const auto& world) {
    const auto first = world->split(world->rank() / 2, world->rank(), "first");
    const auto second = world->split(world->rank() % 2, world->rank(), "second");
    for (const Case& row : all.cases) {
      Trained whole(row);
      for (int64_t t = 1; t <= 3; ++t) whole.step(row, t);
      const parallel::Layout layout = cuts(row.shape, 2, 3)[0];
      Trained cut(row, layout, {{"tp", first}, {"fsdp", second}});
      // A checkpoint is saved and loaded so, with everything at the average.
      whole.optimizer->move_to_average(true);
      cut.optimizer->move_to_average(true);
      const auto from = whole.optimizer->states(), to = cut.optimizer->states();
      ASSERT_EQ(from.size(), to.size()) << row.name;
      for (size_t s = 0; s < from.size(); ++s) {
        ASSERT_EQ(from[s].name, to[s].name);
        EXPECT_EQ(from[s].layout.shape(), to[s].layout.shape()) << to[s].name;
        EXPECT_EQ(from[s].get().scalar_type(), to_scalar_type(to[s].layout.dtype())) << to[s].name;
        EXPECT_EQ(to[s].get().sizes().vec(), to[s].box().size) << to[s].name;
        to[s].set(parallel::box_part(from[s].get(), to[s].box()).contiguous());
      }
      cut.tile.detach().copy_(parallel::box_part(whole.tile.detach(), cut.box));
      whole.optimizer->move_to_average(false);
      cut.optimizer->move_to_average(false);
      for (int64_t t = 4; t <= 6; ++t) {
        whole.step(row, t);
        cut.step(row, t);
      }
      EXPECT_LE(difference(cut.tile.detach(), parallel::box_part(whole.tile.detach(), cut.box)), 1e-12)
          << row.name;
    }
  });
}

TEST(RulesTest, NotANumberLeavesTilesAndStates) {
  for (const Case& row : reference().cases) {
    Trained trained(row);
    trained.step(row, 1);
    std::vector<at::Tensor> before = {trained.tile.detach().clone()};
    for (const auto& state : trained.optimizer->states()) before.push_back(state.get().clone());
    trained.optimizer->step(0.1, 1.0, at::full({}, std::nan(""), at::kDouble));
    EXPECT_TRUE(at::equal(trained.tile.detach(), before[0])) << row.name;
    const auto states = trained.optimizer->states();
    for (size_t i = 0; i < states.size(); ++i)
      EXPECT_TRUE(at::equal(states[i].get(), before[i + 1])) << row.name;
  }
}

std::string hash_of(const DynamicMap& map) {
  Sha256 sha;
  sha.add({reinterpret_cast<const char*>(map.values().data()), sizeof map.values()});
  return sha.hex();
}

// The digests begin as those of the maps that bitsandbytes makes on a processor that fuses.
TEST(RulesTest, DynamicMapsHaveTheBitsOfBitsandbytes) {
  EXPECT_EQ(hash_of(DynamicMap::of_signed()).substr(0, 16), "e732639a65f497b4");
  EXPECT_EQ(hash_of(DynamicMap::of_unsigned()).substr(0, 16), "305f002cc11278fb");
  for (const DynamicMap* map : {&DynamicMap::of_signed(), &DynamicMap::of_unsigned()}) {
    for (size_t code = 0; code < 256; ++code) {
      EXPECT_EQ(map->encode(map->values()[code]), code);
      if (code == 255) continue;
      EXPECT_EQ(map->encode(map->borders()[code]), code);
      EXPECT_EQ(map->encode(std::nextafter(map->borders()[code], 2.0F)), code + 1);
    }
  }
}

TEST(RulesTest, ExactZerosStayZeroIn8Bits) {
  at::Tensor tile = start({70, 61}).to(at::kFloat).set_requires_grad(true);
  const auto optimizer =
      make_optimizer(OptimizerKind::AdamW8bit, {{"w", tile}}, default_options(OptimizerKind::AdamW8bit), 1);
  const at::Tensor before = tile.detach().clone();
  for (int64_t t = 1; t <= 20; ++t) {
    tile.mutable_grad() = gradient({70, 61}, t).to(at::kFloat);
    tile.mutable_grad().slice(0, 0, 70, 3).zero_();
    optimizer->step(rate(t), 1.0);
  }
  EXPECT_TRUE(at::equal(tile.detach().slice(0, 0, 70, 3), before.slice(0, 0, 70, 3)));
  EXPECT_FALSE(at::equal(tile.detach().slice(0, 1, 70, 3), before.slice(0, 1, 70, 3)));
}

// The operations for any device give the codes and values of the host's loops.
TEST(RulesTest, PlainUpdatesIn8BitsAreThoseOfTheHost) {
  const std::vector<int64_t> shape = {11, 500};
  const parallel::Box box = {{2, 100}, {7, 300}};
  const auto make = [&] {
    detail::Update8bit u{};
    u.value = start({7, 300});
    u.mean_codes = (numbers({7, 300}) * 7).remainder(256).to(at::kByte);
    u.square_codes = (numbers({7, 300}) * 5).remainder(256).to(at::kByte);
    u.mean_scales = (numbers({22}) + 1).to(at::kFloat) * 0.01;
    u.square_scales = (numbers({22}) + 1).to(at::kFloat) * 0.001;
    u.mean_scales[5] = 0.0;
    u.gradient = gradient({7, 300}, 1);
    u.beta1 = 0.9, u.beta2 = 0.99, u.epsilon = 1e-8, u.lr = 0.01, u.weight_decay = 0.1, u.step = 3;
    u.shape = shape, u.box = box;
    return u;
  };
  const detail::Update8bit own = make(), plain = make();
  const at::Tensor of_own = at::zeros({2, 22}, at::kDouble), of_plain = at::zeros({2, 22}, at::kDouble);
  detail::measure_8bit(own, of_own);
  detail::plain_measure_8bit(plain, of_plain);
  EXPECT_LE(difference(of_own, of_plain), 1e-15);
  const at::Tensor scales = of_own.to(at::kFloat);
  detail::apply_8bit(own, scales[0], scales[1]);
  detail::plain_apply_8bit(plain, scales[0], scales[1]);
  EXPECT_LE(difference(own.value, plain.value), 1e-15);
  EXPECT_TRUE(at::equal(own.mean_codes, plain.mean_codes));
  EXPECT_TRUE(at::equal(own.square_codes, plain.square_codes));
}

// Muon and projections leave embeddings, the output head and vectors to AdamW, unless these are named; 8 bits
// are for neither embeddings nor small parameters, and biases have a square for each element.
TEST(RulesTest, SomeParametersHaveAnotherRule) {
  const auto states_of = [](OptimizerKind kind, const std::vector<int64_t>& shape, nn::ParameterRole role,
                            std::optional<bool> is_target = {}) {
    OptimizedTile tile{.name = "w", .tile = at::zeros(shape).set_requires_grad(true), .role = role};
    tile.is_target = is_target;
    std::vector<std::string> names;
    for (const auto& state : make_optimizer(kind, {tile}, default_options(kind), 1)->states())
      names.push_back(state.name + " " + std::string(dtype_name(state.layout.dtype())));
    return names;
  };
  using enum nn::ParameterRole;
  const std::vector<std::string> adamw = {"w/exp_avg F32", "w/exp_avg_sq F32", "w/step F32"};
  for (const OptimizerKind kind :
       {OptimizerKind::Muon, OptimizerKind::MuonJordan, OptimizerKind::MuonTorch}) {
    EXPECT_EQ(states_of(kind, {4, 3}, Other),
              (std::vector<std::string>{"w/momentum_buffer F32", "w/step F32"}));
    EXPECT_EQ(states_of(kind, {4, 3}, Expert)[0], "w/momentum_buffer F32");
    for (const auto role : {Embedding, Positions, OutputHead})
      EXPECT_EQ(states_of(kind, {4, 3}, role), adamw);
    EXPECT_EQ(states_of(kind, {4}, Norm), adamw);
  }
  for (const OptimizerKind kind : {OptimizerKind::GaLore, OptimizerKind::Apollo, OptimizerKind::ApolloMini}) {
    EXPECT_EQ(states_of(kind, {4, 3}, Other)[0], "w/projection F32");
    EXPECT_EQ(states_of(kind, {4, 3}, OutputHead, true)[0], "w/projection F32");
    EXPECT_EQ(states_of(kind, {4, 3}, Other, false), adamw);
    EXPECT_EQ(states_of(kind, {4, 3}, OutputHead), adamw);
    for (const auto role : {Embedding, Positions}) EXPECT_EQ(states_of(kind, {4, 3}, role, true), adamw);
    EXPECT_EQ(states_of(kind, {4}, Norm, true), adamw);
  }
  const auto states_of_mini = [](const std::vector<int64_t>& shape, nn::ParameterRole role) {
    OptimizedTile tile{.name = "layer.bias", .tile = at::zeros(shape).set_requires_grad(true), .role = role};
    return make_optimizer(OptimizerKind::AdamMini, {tile}, default_options(OptimizerKind::AdamMini), 1)
        ->states()[1]
        .layout.shape();
  };
  EXPECT_EQ(states_of_mini({4}, Bias), std::vector<int64_t>{4});
  EXPECT_EQ(states_of_mini({4, 3}, Embedding), std::vector<int64_t>{4});
  EXPECT_EQ(states_of(OptimizerKind::AdamW8bit, {64, 64}, Other)[0], "w/exp_avg U8");
  EXPECT_EQ(states_of(OptimizerKind::AdamW8bit, {64, 64}, Embedding), adamw);
  EXPECT_EQ(states_of(OptimizerKind::AdamW8bit, {64, 63}, Other), adamw);
}

// A gradient that is not finite spoils the values, as with every rule, and no decomposition throws.
TEST(RulesTest, ProjectionsOfWhatIsNotFinite) {
  at::Tensor tile = start({5, 7}).set_requires_grad(true);
  const auto optimizer =
      make_optimizer(OptimizerKind::GaLore, {{"w", tile}}, default_options(OptimizerKind::GaLore), 1);
  tile.mutable_grad() = gradient({5, 7}, 1);
  tile.mutable_grad()[1][2] = INFINITY;
  optimizer->step(0.1, 1.0);
  EXPECT_TRUE(tile.detach().isnan().any().item<bool>());
}

// A gradient of a lower rank than the projection's has the same projection if its roundings differ: here the
// third vector is an axis, and moments of earlier gradients are led there.
TEST(RulesTest, ProjectionsOfALowerRank) {
  OptimizerOptions options = default_options(OptimizerKind::GaLore);
  options.rank = 3.0;
  options.update_proj_gap = 1.0;
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{7, 5}, std::vector<int64_t>{5, 7}}) {
    std::vector<at::Tensor> values;
    for (const double rounding : {0.0, 1.0, -1.0}) {
      at::Tensor tile = start(shape).to(at::kDouble).set_requires_grad(true);
      const auto optimizer = make_optimizer(OptimizerKind::GaLore, {{"w", tile}}, options, 1);
      tile.mutable_grad() = gradient(shape, 1, 0.17).to(at::kDouble);
      optimizer->step(0.1, 1.0);
      at::Tensor low = gradient(shape, 2, 0.17).to(at::kDouble);
      for (int64_t row = 2; row < shape[0]; ++row) low[row].copy_(low[0] - 2.0 * low[1]);
      tile.mutable_grad() = low + 5e-16 * rounding * gradient(shape, 3, 0.17).to(at::kDouble);
      optimizer->step(0.1, 1.0);
      values.push_back(tile.detach().clone());
    }
    EXPECT_GT(difference(values[0], start(shape).to(at::kDouble)), 0.01);
    EXPECT_LE(difference(values[1], values[0]), 1e-12);
    EXPECT_LE(difference(values[2], values[0]), 1e-12);
  }
}

// A tile of 16 bits is updated in float32 and rounded once, by less than the distance of two numbers.
TEST(RulesTest, NarrowTilesAreUpdatedInFloat32) {
  for (const Case& row : reference().cases) {
    Trained narrow(row, {row.shape, DType::BF16, {}}, {}, at::kBFloat16);
    Trained wide(row, {row.shape, DType::F32, {}}, {}, at::kFloat);
    for (const auto& state : narrow.optimizer->states()) EXPECT_NE(state.layout.dtype(), DType::BF16);
    wide.tile.detach().copy_(narrow.tile.detach());
    narrow.step(row, 1);
    wide.tile.mutable_grad() = narrow.tile.grad().to(at::kFloat);
    wide.optimizer->step(rate(1), 0.5);
    EXPECT_LE(difference(narrow.tile.detach().to(at::kFloat), wide.tile.detach()), 0.008) << row.name;
  }
}

TEST(RulesTest, TheTableNamesEveryOptimizerOnce) {
  for (size_t i = 0; i < optimizer_table().size(); ++i) {
    const OptimizerFacts& facts = optimizer_table()[i];
    EXPECT_EQ(static_cast<size_t>(facts.kind), i) << facts.name;
    for (const OptimizerOption& option : facts.options) {
      EXPECT_LE(option.low, option.value) << facts.name << option.name;
      EXPECT_LE(option.value, option.high) << facts.name << option.name;
    }
  }
}

}  // namespace
}  // namespace tessera::optim

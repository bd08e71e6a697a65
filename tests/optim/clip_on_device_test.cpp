// Tests of the clip factor as a tensor: on the host it gives the bits that the number gives, and on a device
// that runs late the host waits for nothing.
#include <cmath>
#include <future>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "tessera/device/device.h"
#include "tessera/device/device_copy.h"
#include "tessera/ops/leaf.h"
#include "tessera/optim/gradient_norm.h"
#include "tessera/optim/optimizer.h"

#include "tests/testing/fake_device.h"

namespace tessera::optim {
namespace {

namespace fake = testing::fake_device;

using Make = std::unique_ptr<Optimizer> (*)(std::vector<OptimizedTile>);
std::unique_ptr<Optimizer> adamw(std::vector<OptimizedTile> tiles) {
  return make_adamw(std::move(tiles), {});
}
constexpr Make kMakers[] = {adamw, make_sgd};

// Two tiles and their optimizer.
struct Tiles {
  std::vector<at::Tensor> values;
  std::unique_ptr<Optimizer> optimizer;

  Tiles(Make make, at::Device device, at::ScalarType type) {
    std::vector<OptimizedTile> tiles;
    for (const int64_t size : {1000, 33}) {
      const at::Tensor start = at::linspace(-1.0, 1.0, size, on_host(at::kDouble));
      values.push_back(start.to(device, type).requires_grad_());
      values.back().mutable_grad() = (start.detach().sin() * 7.0).to(device, type);
      tiles.push_back({"tile" + std::to_string(size), values.back(), 0.1});
    }
    optimizer = make(std::move(tiles));
  }
  std::vector<NamedGradient> gradients() const {
    return {{"first", values[0].grad(), {}}, {"second", values[1].grad(), {}}};
  }
  std::vector<at::Tensor> on_the_host() const {
    std::vector<at::Tensor> all;
    for (const at::Tensor& value : values) all.push_back(value.detach().to(kHost));
    for (const auto& state : optimizer->states()) all.push_back(state.get().to(kHost));
    return all;
  }
};

at::Tensor factor_of(const PendingNorm& norm, double max_norm) {
  return clip_factor(norm.sum_of_squares().sqrt(), max_norm).select(0, 0);
}

TEST(ClipOnDevice, TheFactorIsTheNumbers) {
  for (const double norm : {0.0, 1e-9, 0.37, 1.0, 1.0 + 1e-12, 7.0 / 3.0, 1e30}) {
    const at::Tensor tensor = at::full({}, norm, on_host(at::kDouble));
    for (const double most : {0.0, 0.1, 1.0, 3.0})
      EXPECT_EQ(clip_factor(tensor, most).item<double>(), clip_factor(norm, most)) << norm << ", " << most;
  }
}

TEST(ClipOnDevice, OnTheHostATensorIsTheNumberToTheBit) {
  for (const Make make : kMakers) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      Tiles by_number(make, kHost, type), by_tensor(make, kHost, type);
      for (int step = 0; step < 3; ++step) {
        const PendingNorm norm(by_number.gradients(), kHost);
        by_number.optimizer->step(1e-2,
                                  clip_factor(norm.finish(norm.sum_of_squares().item<double>()).norm, 0.3));
        by_tensor.optimizer->step(1e-2, 1.0, factor_of(norm, 0.3));
      }
      const auto got = by_tensor.on_the_host(), want = by_number.on_the_host();
      for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::equal(got[i], want[i])) << i << type;
    }
  }
}

TEST(ClipOnDevice, NobodyWaitsForIt) {
  fake::configure({.seed = 5});
  const ops::PlainOps plain;  // gives the bits of the fake device
  for (const Make make : kMakers) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      Tiles host(make, kHost, type), there(make, fake::device(1), type);
      const int64_t waits = fake::waits();
      for (int step = 0; step < 3; ++step) {
        const PendingNorm norm(there.gradients(), fake::device(1));
        there.optimizer->step(1e-2, 1.0, factor_of(norm, 0.3));
      }
      EXPECT_EQ(fake::waits(), waits);
      for (int step = 0; step < 3; ++step) {
        const double norm = global_gradient_norm(host.gradients(), kHost).norm;
        host.optimizer->step(1e-2, clip_factor(norm, 0.3));
      }
      const auto got = there.on_the_host(), want = host.on_the_host();
      for (size_t i = 0; i < want.size(); ++i) {
        const double error = (got[i] - want[i]).abs().max().item<double>();
        EXPECT_LE(error, make == adamw ? 0.0 : type == at::kFloat ? 1e-6 : 1e-14) << i << type;
      }
    }
  }
  EXPECT_EQ(fake::fault(), "");
}

TEST(ClipOnDevice, NotANumberLeavesEveryTile) {
  fake::configure({.seed = 6});
  for (const at::Device device : {at::Device(kHost), fake::device(0)}) {
    for (const Make make : kMakers) {
      Tiles tiles(make, device, at::kFloat);
      tiles.optimizer->step(1e-2, 1.0);
      const auto before = tiles.on_the_host();
      tiles.values[0].mutable_grad().fill_(INFINITY);
      tiles.optimizer->step(1e-2, 1.0,
                            at::full({}, std::nan(""), at::TensorOptions(device).dtype(at::kDouble)));
      const auto after = tiles.on_the_host();
      for (size_t i = 0; i < before.size(); ++i) {
        if (before[i].numel() == 1) continue;  // this state is the number of steps
        EXPECT_TRUE(at::equal(after[i], before[i])) << i;
      }
    }
  }
  EXPECT_EQ(fake::fault(), "");
}

TEST(ClipOnDevice, NumbersComeToTheHostPastWhatFollowsThem) {
  fake::configure({.seed = 7});
  at::Tensor x = at::ones({3}, at::TensorOptions(fake::device(2)).dtype(at::kDouble)) * 4.0;
  HostCopy copy(x);
  std::promise<void> gate;
  const c10::impl::VirtualGuardImpl streams(fake::device(2).type());
  fake::enqueue(streams.getStream(fake::device(2)).native_handle(),
                [opened = gate.get_future().share()] { opened.wait(); });
  x.fill_(-1.0);
  EXPECT_TRUE(at::equal(copy.wait(), at::full({3}, 4.0, on_host(at::kDouble)))) << "the stream stands still";
  gate.set_value();
  EXPECT_TRUE(at::equal(HostCopy(x).wait(), at::full({3}, -1.0, on_host(at::kDouble))));
  const at::Tensor here = at::ones({3}, on_host(at::kDouble));
  EXPECT_TRUE(HostCopy(here).wait().is_same(here));
}

}  // namespace
}  // namespace tessera::optim

// Shards your own torch::nn::Module fully: parameters, gradients and optimizer states are spread over the
// ranks, and the loss is that of one process.
//   mpirun -n 4 ./own_model        (or ./own_model alone)
#include <cstdio>
#include <exception>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "tessera/comm/bootstrap.h"
#include "tessera/core/cpu_features.h"
#include "tessera/core/error.h"
#include "tessera/nn/call_hook.h"
#include "tessera/optim/optimizer.h"
#include "tessera/parallel/fully_shard.h"

struct Block : torch::nn::Module {
  explicit Block(int64_t width) {
    inner = register_parameter("inner", at::randn({4 * width, width}) / 8);
    outer = register_parameter("outer", at::randn({width, 4 * width}) / 16);
  }
  at::Tensor forward(const at::Tensor& x) { return x + at::linear(at::relu(at::linear(x, inner)), outer); }
  at::Tensor inner, outer;
};

struct Net : torch::nn::Module {
  Net() {
    for (int i = 0; i < 4; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>(33)));
    head = register_parameter("head", at::randn({7, 33}) / 6);
  }
  // Sharding asks for one thing: run the model, and each block, through tessera::nn::call.
  at::Tensor loss(const at::Tensor& inputs, const at::Tensor& classes) {
    return tessera::nn::call_hooked(*this, inputs, [this, classes](at::Tensor x) {
      for (auto& block : blocks) x = tessera::nn::call(*block, x);
      return at::cross_entropy_loss(at::linear(x, head), classes);
    });
  }
  std::vector<std::shared_ptr<Block>> blocks;
  at::Tensor head;
};

void train(const std::shared_ptr<tessera::comm::Communicator>& world) {
  at::manual_seed(1);  // the same data everywhere; each rank takes its own rows of it
  Net net;
  const auto sharded = tessera::parallel::fully_shard(net, {world}, {net.blocks.begin(), net.blocks.end()});

  std::vector<tessera::optim::OptimizedTile> tiles;
  for (const auto& parameter : sharded->parameters()) tiles.push_back({parameter.name, parameter.tile, 0.01});
  const auto optimizer = tessera::optim::make_adamw(tiles, {});

  const at::Tensor inputs = at::randn({120, 33}), classes = inputs.narrow(1, 0, 7).argmax(1);
  const int64_t rows = 120 / world->size();
  for (int step = 0; step < 30; ++step) {
    sharded->zero_grad();
    const at::Tensor loss =
        net.loss(inputs.narrow(0, world->rank() * rows, rows), classes.narrow(0, world->rank() * rows, rows));
    loss.backward();  // gathers, reduces and frees block by block
    optimizer->step(1e-2, 1.0);
    const at::Tensor total = loss.detach().clone();
    world->all_reduce(total);
    if (world->rank() == 0)
      std::printf("step %2d  loss %.4f\n", step + 1, total.item<double>() / world->size());
  }
}

int main() {
  tessera::guard_cpu_features();
  try {
    const tessera::comm::Bootstrap bootstrap;
    train(bootstrap.world());
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "tessera: %s\n", error.what());
    tessera::comm::Bootstrap::abort(tessera::exit_code(error.kind()));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    tessera::comm::Bootstrap::abort(1);
  }
}

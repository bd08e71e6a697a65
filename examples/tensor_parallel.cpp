// Cuts the layers of your own model over two ranks, with full sharding beside it: the loss is that of one
// process.
//   mpirun -n 4 ./tensor_parallel        (2 x 2 ranks; or ./tensor_parallel alone)
#include "tessera/parallel/tensor_parallel/tensor_parallel.h"

#include <cstdio>

#include <ATen/ATen.h>

#include "tessera/checkpoint/random_source.h"
#include "tessera/comm/bootstrap.h"
#include "tessera/core/cpu_features.h"
#include "tessera/nn/call_hook.h"
#include "tessera/nn/mlp.h"
#include "tessera/nn/norm.h"
#include "tessera/optim/optimizer.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/parallel/fully_shard.h"

namespace nn = tessera::nn;
namespace parallel = tessera::parallel;

struct Net : torch::nn::Module {
  Net() {
    norm = register_module("norm", nn::make_norm(33, {}, at::kFloat));
    mlp = register_module("mlp", std::make_shared<nn::MLP>(nn::MLPOptions{33, 132}, at::kFloat));
    head = register_module("head", std::make_shared<nn::Linear>(33, 7, true, at::kFloat));
  }
  at::Tensor forward(const at::Tensor& x) { return head->forward(x + mlp->forward(norm->forward(x))); }
  std::shared_ptr<nn::Norm> norm;
  std::shared_ptr<nn::MLP> mlp;
  std::shared_ptr<nn::Linear> head;
};

void train(const std::shared_ptr<tessera::comm::Communicator>& world) {
  const parallel::DeviceMesh mesh(world, {.tp = world->size() % 2 == 0 ? 2 : 1});
  Net net;  // on the meta device: shapes, no memory
  const tessera::checkpoint::RandomSource values(net, 0.1, 1);

  using Style = parallel::LayerStyle;
  const parallel::TensorParallelPlan plan = {.layers = {{"mlp", Style::region()},
                                                        {"mlp.gate_proj", Style::colwise()},
                                                        {"mlp.up_proj", Style::colwise()},
                                                        {"mlp.down_proj", Style::rowwise()}}};
  parallel::ShardOptions options;
  options.layouts = parallel::tensor_parallel(net, plan, {"tp", mesh.group(parallel::kAxisTp)});
  const auto sharded = parallel::fully_shard(net, {mesh.group(parallel::kAxisFsdp)}, {}, options);
  sharded->materialize([&](const auto& parameter) {
    values.read(parameter.name, parameter.box, parameter.tile.detach());  // this rank's part alone
  });
  std::vector<tessera::optim::OptimizedTile> tiles;
  for (const auto& parameter : sharded->parameters()) tiles.push_back({parameter.name, parameter.tile, 0.01});
  const auto optimizer = tessera::optim::make_adamw(tiles, {});
  at::manual_seed(1);
  const at::Tensor inputs = at::randn({120, 33}), classes = inputs.narrow(1, 0, 7).argmax(1);
  const int64_t rows = 120 / mesh.size(parallel::kAxisDp), first = mesh.coordinate(parallel::kAxisDp) * rows;
  for (int step = 0; step < 30; ++step) {
    sharded->zero_grad();
    const at::Tensor logits = nn::call(net, inputs.narrow(0, first, rows));
    const at::Tensor loss = at::cross_entropy_loss(logits, classes.narrow(0, first, rows));
    loss.backward();
    optimizer->step(2e-3, 1.0);
    const at::Tensor total = loss.detach().clone();
    mesh.group(parallel::kAxisDp)->all_reduce(total);
    if (world->rank() == 0)
      std::printf("step %2d  loss %.4f\n", step + 1, total.item<double>() / mesh.size(parallel::kAxisDp));
  }
}

int main() {
  tessera::guard_cpu_features();
  try {
    const tessera::comm::Bootstrap bootstrap;
    train(bootstrap.world());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    tessera::comm::Bootstrap::abort(1);
  }
}

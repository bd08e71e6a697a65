// Runs your own model as a pipeline: each rank holds a range of its layers. The loss is that of one process.
//   mpirun -n 4 ./pipeline        (2 stages x 2 ranks; or ./pipeline alone)
#include "tessera/parallel/pipeline/pipeline.h"

#include <cstdio>

#include <ATen/ATen.h>

#include "tessera/checkpoint/random_source.h"
#include "tessera/comm/bootstrap.h"
#include "tessera/core/cpu_features.h"
#include "tessera/nn/call_hook.h"
#include "tessera/nn/embedding.h"
#include "tessera/nn/linear.h"
#include "tessera/optim/optimizer.h"
#include "tessera/parallel/device_mesh.h"

namespace nn = tessera::nn;
namespace parallel = tessera::parallel;
constexpr int64_t kWords = 20, kWidth = 32, kLayers = 6, kMicroBatches = 4, kTokens = 30;

struct Net : torch::nn::Module {
  Net() {
    embedding = register_module("embedding", std::make_shared<nn::Embedding>(kWords, kWidth, at::kFloat));
    for (int64_t i = 0; i < kLayers; ++i)
      layers.push_back(register_module("layer" + std::to_string(i),
                                       std::make_shared<nn::Linear>(kWidth, kWidth, true, at::kFloat)));
  }
  // Runs the layers [begin, end), with the embedding before the first one and the loss behind the last one.
  // The embedding is also the output projection, so the first and the last stage share it.
  at::Tensor forward(const at::Tensor& words, int64_t begin, int64_t end, const at::Tensor& hidden) {
    return nn::call_hooked(*this, begin == 0 ? words : hidden, [=, this](const at::Tensor& input) {
      at::Tensor x = begin == 0 ? embedding->forward(input) : input;
      for (int64_t i = begin; i < end; ++i) x = x + at::tanh(nn::call(*layers[i], x));
      if (end < kLayers) return x;
      return at::cross_entropy_loss(at::linear(x, embedding->weight), (words * 7 + 3) % kWords);
    });
  }
  std::shared_ptr<nn::Embedding> embedding;
  std::vector<std::shared_ptr<nn::Linear>> layers;
};

void train(const std::shared_ptr<tessera::comm::Communicator>& world) {
  const parallel::DeviceMesh mesh(world, {.pp = world->size() % 2 == 0 ? 2 : world->size()});
  Net net;  // on the meta device: shapes, no memory
  const tessera::checkpoint::RandomSource values(net, 0.3, 1);
  const std::vector<std::shared_ptr<torch::nn::Module>> layers(net.layers.begin(), net.layers.end());
  parallel::ShardOptions options{.reduce_every_backward = false};
  const auto pipeline =
      parallel::pipeline(net, {net.embedding->parameters(), layers, net.embedding->parameters()},
                         {"pp", mesh.group(parallel::kAxisPp)}, options.layouts);
  const auto sharded = parallel::fully_shard(net, {mesh.group(parallel::kAxisFsdp)}, layers, options);
  sharded->materialize([&](const auto& own) { values.read(own.name, own.box, own.tile.detach()); });
  std::vector<tessera::optim::OptimizedTile> tiles;
  for (const auto& parameter : sharded->parameters()) tiles.push_back({parameter.name, parameter.tile});
  const auto optimizer = tessera::optim::make_adamw(tiles, {});
  const int64_t readers = mesh.size(parallel::kAxisDp), count = kTokens / readers;
  const at::Tensor all_words = at::arange(kMicroBatches * kTokens).view({kMicroBatches, readers, count});
  const at::Tensor words = all_words.select(1, mesh.coordinate(parallel::kAxisDp)) % kWords;
  parallel::Pipeline::Pass pass{.num_micro_batches = kMicroBatches, .scale = 1.0 / kMicroBatches};
  pass.run_blocks = [&](auto m, auto... part) { return net.forward(words[m], part...); };
  pass.make_hidden = [&](auto) { return at::empty({count, kWidth}); };
  for (int step = 0; step < 30; ++step) {
    sharded->zero_grad();
    const at::Tensor loss = pipeline.run(*sharded, pass);
    optimizer->step(1e-2, 1.0);
    mesh.group(parallel::kAxisDp)->all_reduce(loss);
    if (world->rank() == 0)
      std::printf("step %2d  loss %.4f\n", step + 1, loss.item<double>() / kMicroBatches / readers);
  }
}

int main() try {
  tessera::guard_cpu_features();
  train(tessera::comm::Bootstrap().world());
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  tessera::comm::Bootstrap::abort(1);
}

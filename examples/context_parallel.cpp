// Spreads documents over ranks token by token; the loss is that of one process.
//   mpirun -n 3 ./context_parallel        (or ./context_parallel alone)
#include "tessera/parallel/context_parallel/context_parallel.h"

#include <cstdio>

#include <ATen/ATen.h>

#include "tessera/checkpoint/random_source.h"
#include "tessera/comm/bootstrap.h"
#include "tessera/core/cpu_features.h"
#include "tessera/nn/call_hook.h"
#include "tessera/nn/embedding.h"
#include "tessera/nn/transformer_block.h"
#include "tessera/optim/optimizer.h"
#include "tessera/parallel/fully_shard.h"

namespace nn = tessera::nn;
namespace parallel = tessera::parallel;
constexpr int64_t kKeys = 4, kWords = 16, kWidth = 32;

struct Net : torch::nn::Module {
  Net() {
    embedding = register_module("embedding", std::make_shared<nn::Embedding>(kWords, kWidth, at::kFloat));
    block = register_module("block",
                            std::make_shared<nn::TransformerBlock>(
                                nn::TransformerBlockOptions{{kWidth, 4, 4, 8}, {kWidth, 64}}, 0, at::kFloat));
    head = register_module("head", std::make_shared<nn::Linear>(kWidth, kKeys, true, at::kFloat));
  }
  at::Tensor forward(const at::Tensor& ids, const nn::SequenceContext& context) {
    return head->forward(block->forward(embedding->forward(ids), context));
  }
  std::shared_ptr<nn::Embedding> embedding;
  std::shared_ptr<nn::TransformerBlock> block;
  std::shared_ptr<nn::Linear> head;
};

// A document begins with a key and goes on with words; the model learns to name the key at each token.
nn::TokenBatch twelve_documents() {
  at::manual_seed(1);
  std::vector<at::Tensor> ids, labels;
  std::vector<int64_t> starts = {0};
  for (int64_t d = 0; d < 12; ++d, starts.push_back(starts.back() + ids.back().size(0))) {
    labels.push_back(at::full({6 + 3 * d}, d % kKeys, at::kLong));
    ids.push_back(
        at::cat({labels.back().narrow(0, 0, 1), at::randint(kKeys, kWords, {5 + 3 * d}, at::kLong)}));
  }
  return {at::cat(ids), at::cat(labels), at::zeros({starts.back()}, at::kLong), starts, {}};
}

void train(const std::shared_ptr<tessera::comm::Communicator>& world) {
  Net net;  // on the meta device: shapes, no memory
  const tessera::checkpoint::RandomSource values(net, 0.3, 1);
  parallel::context_parallel(net, tessera::ContextParallelMethod::Ring, world);
  const auto sharded = parallel::fully_shard(net, {world}, {}, {.average_gradients = false});
  sharded->materialize([&](const auto& own) { values.read(own.name, own.box, own.tile.detach()); });
  std::vector<tessera::optim::OptimizedTile> tiles;
  for (const auto& parameter : sharded->parameters()) tiles.push_back({parameter.name, parameter.tile});
  const auto optimizer = tessera::optim::make_adamw(tiles, {});
  const nn::TokenBatch whole = twelve_documents(), part = parallel::token_part(whole, *world);
  const nn::SequenceContext context{.document_starts = part.document_starts, .part = part.part};
  for (int step = 0; step < 30; ++step) {
    sharded->zero_grad();
    at::Tensor loss =
        at::cross_entropy_loss(nn::call(net, part.input_ids, context), part.labels, {}, at::Reduction::Sum);
    (loss = loss / whole.labels.size(0)).backward();
    optimizer->step(1e-2, 1.0);
    world->all_reduce(loss = loss.detach());
    if (world->rank() == 0) std::printf("step %2d  loss %.4f\n", step + 1, loss.item<double>());
  }
}

int main() try {
  tessera::guard_cpu_features();
  train(tessera::comm::Bootstrap().world());
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  tessera::comm::Bootstrap::abort(1);
}

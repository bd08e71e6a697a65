// Runs every snippet of docs/library.md: ./library_guide FOLDER, or with mpirun -n 4. A file is saved in
// FOLDER.
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include "tessera/tessera.h"

namespace checkpoint = tessera::checkpoint;
namespace comm = tessera::comm;
namespace optim = tessera::optim;
namespace parallel = tessera::parallel;

struct Block : torch::nn::Module {
  explicit Block(const at::TensorOptions& options) {
    inner = register_parameter("inner", at::randn({64, 16}, options));
    outer = register_parameter("outer", at::randn({16, 64}, options));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& scale) {
    return x + at::linear(at::relu(at::linear(x, inner)), outer) * scale;
  }
  at::Tensor inner, outer;
};

struct Net : torch::nn::Module {
  explicit Net(const at::TensorOptions& options = at::kFloat) {
    for (int i = 0; i < 4; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>(options)));
    head = register_parameter("head", at::randn({4, 16}, options));
    scale = register_buffer("scale", at::full({1}, 0.01));
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& block : blocks) x = tessera::nn::call(*block, x, scale);
    return at::linear(x, head);
  }
  std::vector<std::shared_ptr<torch::nn::Module>> units() const { return {blocks.begin(), blocks.end()}; }
  std::vector<std::shared_ptr<Block>> blocks;
  at::Tensor head, scale;
};

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

struct Batch {
  at::Tensor inputs, classes;
};

// Returns the rows of this rank.
Batch batch_of(const std::shared_ptr<comm::Communicator>& world, int64_t step) {
  const at::Tensor i = at::arange(16) + 16 * (step * world->size() + world->rank());
  const at::Tensor inputs = at::sin(i.to(at::kFloat).outer(at::arange(1, 17).to(at::kFloat)) * 0.37);
  return {inputs, inputs.narrow(1, 0, 4).argmax(1)};
}

double first_loss = 0.0, last_loss = 0.0;

void note(const at::Tensor& loss) {
  last_loss = loss.item<double>();
  if (first_loss == 0.0) first_loss = last_loss;
}

void with_an_optimizer_of_libtorch(const std::shared_ptr<comm::Communicator>& world) {
  Net net;
  const auto sharded = parallel::fully_shard(net, {world}, net.units());
  torch::optim::AdamW optimizer(sharded->trained_tiles(), torch::optim::AdamWOptions(1e-2));
  first_loss = 0.0;
  for (int step = 0; step < 20; ++step) {
    const auto [inputs, classes] = batch_of(world, step);
    sharded->zero_grad();
    const at::Tensor loss = at::cross_entropy_loss(tessera::nn::call(net, inputs), classes);
    loss.backward();
    optimizer.step();
    note(loss);
  }
  require(last_loss < 0.7 * first_loss, "AdamW of LibTorch learned nothing");
}

void with_our_optimizer(const std::shared_ptr<comm::Communicator>& world, const std::string& folder) {
  Net net;
  const auto sharded = parallel::fully_shard(net, {world}, net.units());
  std::vector<optim::OptimizedTile> tiles;
  for (const auto& parameter : sharded->parameters()) {
    if (!parameter.requires_grad) continue;
    const bool is_matrix = parameter.layout.shape().size() >= 2;
    tiles.push_back({parameter.name, parameter.tile, is_matrix ? 0.1 : 0.0});
  }
  const auto optimizer = optim::make_adamw(tiles, {.beta2 = 0.95});

  const auto train_step = [&](const Batch& batch, double lr) {
    sharded->zero_grad();
    const at::Tensor loss = at::cross_entropy_loss(tessera::nn::call(net, batch.inputs), batch.classes);
    loss.backward();
    note(loss);

    const auto norm = optim::global_gradient_norm(*sharded);
    optimizer->step(lr, optim::clip_factor(norm.norm, /*max_norm=*/1.0));
  };

  first_loss = 0.0;
  for (int step = 0; step < 20; ++step) train_step(batch_of(world, step), 1e-2);
  require(last_loss < 0.8 * first_loss, "our AdamW learned nothing");

  const std::string file_of_this_rank = folder + "/states" + std::to_string(world->rank());
  std::vector<at::Tensor> states, read;
  for (const auto& state : optimizer->states()) states.push_back(state.get());
  torch::save(states, file_of_this_rank);

  const auto resumed = optim::make_adamw(tiles, {.beta2 = 0.95});
  torch::load(read, file_of_this_rank);
  for (size_t i = 0; i < read.size(); ++i) resumed->states()[i].set(read[i]);

  require(read.size() == 3 * tiles.size(), "two moments and a step for each tile");
  for (size_t i = 0; i < read.size(); ++i)
    require(at::equal(resumed->states()[i].get(), optimizer->states()[i].get()), "other states");
}

void accumulation(const std::shared_ptr<comm::Communicator>& world) {
  Net net;
  parallel::ShardOptions options;
  options.reduce_every_backward = false;  // one reduction a step; more memory
  const auto sharded = parallel::fully_shard(net, {world}, net.units(), options);
  const auto optimizer = optim::make_sgd({{"head", sharded->trained_tiles()[0]}});
  const int64_t num_micro_batches = 4;

  sharded->zero_grad();
  for (int64_t m = 0; m < num_micro_batches; ++m) {
    sharded->set_is_last_micro_batch(m + 1 == num_micro_batches);
    const auto [inputs, classes] = batch_of(world, m);
    const at::Tensor loss = at::cross_entropy_loss(tessera::nn::call(net, inputs), classes);
    (loss / num_micro_batches).backward();
  }
  optimizer->step(1e-2, 1.0);

  for (const at::Tensor& tile : sharded->trained_tiles())
    require(tile.numel() == 0 || tile.grad().defined(), "a gradient is missing");
}

void mixed_precision(const std::shared_ptr<comm::Communicator>& world) {
  Net net;
  parallel::ShardOptions options;
  options.mixed_precision.param_dtype = at::kBFloat16;
  options.mixed_precision.reduce_dtype = at::kFloat;
  const auto sharded = parallel::fully_shard(net, {world}, net.units(), options);
  const auto [inputs, classes] = batch_of(world, 0);  // float32: cast by the forward
  const at::Tensor logits = tessera::nn::call(net, inputs);
  at::cross_entropy_loss(logits.to(at::kFloat), classes).backward();

  require(logits.scalar_type() == at::kBFloat16, "the forward did not run in bf16");
  require(sharded->trained_tiles()[0].scalar_type() == at::kFloat, "tiles are as stored");
}

void saving_and_loading(const std::shared_ptr<comm::Communicator>& world, const std::string& folder) {
  const std::string path = folder + "/net.safetensors";
  Net net;
  const auto sharded = parallel::fully_shard(net, {world}, net.units());
  checkpoint::save_state_dict(*sharded, path);  // one file, whatever the number of ranks

  Net other(at::TensorOptions(at::kMeta));  // shapes alone, no memory
  const auto loaded = parallel::fully_shard(other, {world}, other.units());
  checkpoint::load_state_dict(*loaded, path);  // each rank reads what it holds

  const checkpoint::StateDict state = checkpoint::full_state_dict(*sharded);  // rank 0 gets all
  for (const auto& [name, tensor] : state)
    std::printf("%s of %lld elements\n", name.c_str(), static_cast<long long>(tensor.numel()));
  checkpoint::load_full_state_dict(*loaded, state);  // and gives to all

  const Batch batch = batch_of(world, 0);
  require(at::equal(tessera::nn::call(net, batch.inputs), tessera::nn::call(other, batch.inputs)),
          "what was loaded is not what was saved");

  Net filled(at::TensorOptions(at::kMeta));
  const auto initial = parallel::fully_shard(filled, {world}, filled.units());
  initial->materialize([](const parallel::ShardedParameter& parameter) {
    parameter.tile.fill_(parameter.name == "head" ? 0.0 : 0.02);
  });
  require(tessera::nn::call(filled, batch.inputs).abs().sum().item<double>() == 0.0, "the head is zero");
}

void hybrid(const std::shared_ptr<comm::Communicator>& world) {
  if (world->size() % 2 != 0) return;
  Net net;
  tessera::ParallelDims dims;
  dims.dp_replicate = 2;  // dp_shard: the ranks that remain
  const parallel::DeviceMesh mesh(world, dims);
  const parallel::ShardGroups groups{mesh.group(parallel::kAxisDpShard),
                                     mesh.group(parallel::kAxisDpReplicate)};
  const auto sharded = parallel::fully_shard(net, groups, net.units());
  require(sharded->groups().shard->size() == world->size() / 2, "half of the ranks share a copy");

  torch::optim::SGD optimizer(sharded->trained_tiles(), torch::optim::SGDOptions(1e-2));
  const at::Tensor before = sharded->full_tensor(sharded->parameters()[0]);
  const auto [inputs, classes] = batch_of(world, 0);
  at::cross_entropy_loss(tessera::nn::call(net, inputs), classes).backward();
  optimizer.step();
  const at::Tensor after = sharded->full_tensor(sharded->parameters()[0]);
  require(!at::equal(before, after), "a step changed nothing");
  const at::Tensor first = after.clone();
  world->broadcast(first, 0);
  require(at::equal(first, after), "the copies differ");
}

void ddp(const std::shared_ptr<comm::Communicator>& world) {
  Net net;
  const auto sharded = parallel::fully_shard(net, {comm::Communicator::single(), world}, net.units());
  require(sharded->parameters()[0].tile.is_same(net.parameters()[0]), "DDP keeps whole parameters");
}

void evaluation(const std::shared_ptr<comm::Communicator>& world) {
  Net net;
  const auto sharded = parallel::fully_shard(net, {world}, net.units());
  const Batch batch = batch_of(world, 0);
  {
    const at::NoGradGuard no_grad;
    sharded->unshard();
    for (int i = 0; i < 3; ++i) tessera::nn::call(net, batch.inputs);  // gathers nothing
    sharded->reshard();
  }
  const at::Tensor head = sharded->full_tensor(sharded->parameters()[0]);
  require(head.size(0) == 4, "the head is whole");
}

void checkpointing(const std::shared_ptr<comm::Communicator>& world) {
  Net net;
  for (const auto& block : net.blocks) parallel::checkpoint_activations(*block);
  const auto sharded = parallel::fully_shard(net, {world}, net.units());
  tessera::nn::call(net, batch_of(world, 0).inputs).sum().backward();
  require(sharded->trained_tiles()[1].grad().defined(), "no gradient through a checkpoint");
}

void errors(const std::shared_ptr<comm::Communicator>& world) {
  Net net;
  const auto sharded = parallel::fully_shard(net, {world}, net.units());
  if (world->size() == 1) return;
  try {
    net.head.norm();  // hollow between its uses
  } catch (const tessera::Error& error) {
    // error[E-CONFIG-SHARDED-PARAMETER]: parameter 'head' of a sharded module is used outside the forward of
    // the root. hint: ...
    if (world->rank() == 0) std::printf("%s\n", error.what());
    return;
  }
  require(false, "a hollow parameter was read");
}

void run(const std::shared_ptr<comm::Communicator>& world, const std::string& folder) {
  at::manual_seed(1);
  with_an_optimizer_of_libtorch(world);
  with_our_optimizer(world, folder);
  accumulation(world);
  mixed_precision(world);
  saving_and_loading(world, folder);
  hybrid(world);
  ddp(world);
  evaluation(world);
  checkpointing(world);
  errors(world);
}

int main(int num_arguments, char** arguments) {
  try {
    tessera::guard_cpu_features();
    const comm::Bootstrap bootstrap;
    run(bootstrap.world(), num_arguments > 1 ? arguments[1] : ".");
    if (bootstrap.world()->rank() == 0) std::printf("all snippets ran\n");
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "tessera: %s\n", error.what());
    comm::Bootstrap::abort(tessera::exit_code(error.kind()));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    comm::Bootstrap::abort(1);
  }
  return 0;
}

#include "tessera/train/step/step.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/step_clock.h"
#include "tessera/core/trace.h"
#include "tessera/device/device_copy.h"
#include "tessera/device/host_memory.h"
#include "tessera/device/memory_scope.h"
#include "tessera/optim/gradient_norm.h"
#include "tessera/optim/offloaded_states.h"
#include "tessera/train/step/backward_updates.h"
#include "tessera/train/step/bad_numbers.h"
#include "tessera/train/step/forward_backward.h"
#include "tessera/train/step/gradient_noise.h"

namespace tessera::train {
namespace {

// Adds up the losses of this rank's micro-batches on their device, in float64.
class LossSum {
 public:
  // `num_datasets` is the number of datasets that the micro-batches name; 0 where they name none.
  // `has_routers`: the values of the routers' losses are asked for.
  // `num_statistics`: how many class statistics are asked for.
  LossSum(at::Device device, int64_t num_datasets, bool has_routers = false, int64_t num_statistics = 0)
      : sum_(at::zeros({1}, at::TensorOptions(device).dtype(at::kDouble))) {
    if (num_statistics > 0) parts_.statistics = at::zeros({num_statistics}, sum_.options());
    if (num_datasets > 0) parts_.datasets = at::zeros({num_datasets}, sum_.options());
    if (has_routers) parts_.routers = at::zeros({2}, sum_.options());
  }

  void add(const at::Tensor& loss) {
    const at::NoGradGuard no_grad;
    sum_.add_(loss);
  }
  const at::Tensor& own() const { return sum_; }
  const LossParts& parts() const { return parts_; }
  struct Total {
    double loss = 0.0;
    std::vector<double> datasets, routers;
    double other = 0.0;
    std::vector<double> statistics;
  };
  // Returns the sums over the ranks that hold different labels: [1 + 2 + datasets + statistics] for loss,
  // routers, datasets and class statistics, without the parts that are not asked for. at::cat copies, so
  // own() stays this rank's. Collective.
  at::Tensor reduced(const parallel::DeviceMesh& mesh) const {
    std::vector<at::Tensor> all = {sum_};
    if (parts_.routers.defined()) all.push_back(parts_.routers);
    if (parts_.datasets.defined()) all.push_back(parts_.datasets);
    if (parts_.statistics.defined()) all.push_back(parts_.statistics);
    const at::Tensor sums = at::cat(all);
    mesh.group(parallel::kAxisLoss)->all_reduce(sums);
    return sums;
  }
  // Takes apart a value `other` and what reduced() gave behind it, when both have come to the host.
  Total total(const at::Tensor& other_and_reduced) const {
    const auto values = host_span<const double>(other_and_reduced);
    const int64_t routers = parts_.routers.defined() ? parts_.routers.size(0) : 0;
    const auto behind = values.begin() + 2 + routers;
    const auto end = values.end() - (parts_.statistics.defined() ? parts_.statistics.size(0) : 0);
    return {values[1], {behind, end}, {values.begin() + 2, behind}, values[0], {end, values.end()}};
  }

 private:
  at::Tensor sum_;
  LossParts parts_;
};

// Returns what gives the place of a micro-batch's dropout masks and noise. They belong to the step's
// sequences, which are counted over all data-parallel ranks: neither the number of ranks nor micro_batch_size
// changes them. References `input`.
auto random_places(const parallel::DeviceMesh& mesh, const StepInput& input) {
  const int64_t dp_rank = mesh.coordinate(parallel::kAxisDp), dp_size = mesh.size(parallel::kAxisDp);
  return [&input, dp_rank, dp_size](int64_t m) -> nn::RandomPlace {
    const data::MicroBatch& batch = (*input.micro_batches)[static_cast<size_t>(m)];
    const bool is_one = batch.sequence_starts.empty();
    return {.seed = input.seed,
            .step = static_cast<uint64_t>(input.step),
            .sequence = static_cast<uint64_t>(is_one ? m * dp_size + dp_rank : batch.first_sequence),
            .sequence_starts = batch.sequence_starts};
  };
}

// Returns a hint for numbers that are not finite.
std::string hint_of(const StepInput& input) {
  return input.updates_in_backward
             ? "some weights were updated already (update_in_backward), so go on from the last checkpoint; "
               "lower learning_rate, or check the data"
             : "the weights were not updated; lower learning_rate, check the data, or set max_grad_norm";
}

// Throws an error that names the first rank whose own loss is not finite, and the tensor that it comes from.
// Collective over the world, and all ranks come here: a sum that is not finite over the ranks along the axis
// "loss" is not finite in any other such group either, since these hold the same labels.
[[noreturn]] void refuse_loss(const LossSum& loss, double total, TrainedModel& trained,
                              const parallel::DeviceMesh& mesh, const StepInput& input) {
  comm::Communicator& world = *mesh.world();
  const at::Tensor losses = at::empty({world.size()}, loss.own().options());
  world.all_gather_single(losses, loss.own());
  const at::Tensor values = losses.to(kHost);
  int64_t rank = 0;
  const auto of_rank = host_span<const double>(values);
  while (rank < world.size() && std::isfinite(of_rank[rank])) ++rank;
  const bool is_found = rank < world.size();  // else finite losses overflow
  throw Error(ErrorKind::Numerics, "LOSS",
              "the loss of step " + std::to_string(input.step + 1) + " is not finite" +
                  (is_found ? " on rank " + std::to_string(rank) + ": " +
                                  first_bad_tensor(trained, mesh, *input.micro_batches)
                            : ""))
      .got(std::to_string(is_found ? of_rank[rank] : total))
      .hint(hint_of(input));
}

// Throws an error that names the first tensor whose gradient is not finite, or says that the norm of finite
// ones overflows. Collective over the world, and all ranks come here.
[[noreturn]] void refuse_gradient(const optim::GradientNorm& norm, comm::Communicator& world,
                                  const StepInput& input) {
  const std::string number = std::to_string(input.step + 1), hint = hint_of(input);
  if (norm.bad_name.empty()) {
    throw Error(ErrorKind::Numerics, "GRADIENT", "the gradient norm of step " + number + " overflows")
        .hint(hint);
  }
  const auto bad = world.all_gather_string(norm.is_bad_here ? norm.bad_name : "");
  const auto first = std::find_if(bad.begin(), bad.end(), [](const auto& name) { return !name.empty(); });
  throw Error(ErrorKind::Numerics, "GRADIENT",
              "the gradient of '" + *first + "' at step " + number + " is not finite on rank " +
                  std::to_string(first - bad.begin()))
      .hint(hint);
}

// Returns the factor by which the update multiplies gradients, a scalar on their device: it clips them and
// takes the loss scale off. It is NaN, for no update, where the loss or the norm is not finite. `loss` and
// `sum_of_squares` are scalars.
at::Tensor update_factor(const at::Tensor& loss, const at::Tensor& sum_of_squares, const StepInput& input) {
  const at::Tensor norm = sum_of_squares.sqrt();
  const at::Tensor factor =
      optim::clip_factor(norm / input.loss_scale, input.max_grad_norm) / input.loss_scale;
  // x - x is 0 where x is finite, and NaN elsewhere.
  return factor + (loss - loss) + (norm - norm);
}

// Runs forward and backward of all micro-batches, whose losses are multiplied by `scale`. If the noise is
// measured, `first` keeps the gradient of the first half of them.
void add_gradients(TrainedModel& trained, const parallel::DeviceMesh& mesh, const StepInput& input,
                   double scale, LossSum& losses, std::optional<FirstGradient>& first) {
  const auto random_place = random_places(mesh, input);
  const auto run = [&](const std::vector<data::MicroBatch>& micro_batches, int64_t begin) {
    losses.add(forward_backward(
        trained, mesh, micro_batches, scale * input.loss_scale,
        [&](int64_t m) { return random_place(begin + m); }, losses.parts()));
  };
  const std::vector<data::MicroBatch>& all = *input.micro_batches;
  if (!input.measures_noise || all.size() < 2) return run(all, 0);
  const auto half = std::ssize(all) / 2;
  const std::vector<data::MicroBatch> first_half(all.begin(), all.begin() + half);
  run(first_half, 0);
  first.emplace(trained, mesh, first_half);
  run({all.begin() + half, all.end()}, half);
  first->add_back();
}

// Returns the noise of the step's gradient. `of_first`: the numbers of FirstGradient.
std::optional<GradientNoise> noise_of(std::span<const double> of_first, double grad_norm,
                                      const StepInput& input) {
  const auto tokens = static_cast<double>(input.label_tokens);
  const double to_mean = tokens / of_first[1] / input.loss_scale;
  return gradient_noise(of_first[0] * to_mean * to_mean, of_first[1], grad_norm * grad_norm, tokens);
}

}  // namespace

// [Note: one wait a step] The host submits everything to the device before it waits: forwards and backwards,
// the sum of the losses over the ranks, the gradient norm, the copy of these numbers to the host, and the
// update. It then waits once, for the copy, and HostCopy does not wait for the update that was submitted
// behind it. The update cannot know what the host has not read, so it takes its factor from the device
// (update_factor()): that is NaN where a number is not finite, and the update then changes nothing.
//
// If the host decides about the update (skips_overflow, accepts), it has to read the numbers first, and the
// device idles until the update comes.
StepResult run_step(TrainedModel& trained, optim::Optimizer& optimizer, const parallel::DeviceMesh& mesh,
                    const StepInput& input) {
  parallel::ShardedModel& sharded = *trained.sharded;
  sharded.zero_grad();
  const auto scale = 1.0 / static_cast<double>(std::max<int64_t>(1, input.label_tokens));
  LossSum loss_sum(mesh.device(), input.num_datasets, trained.model->router_loss_weights().is_any());
  std::optional<BackwardUpdates> updates;
  if (input.updates_in_backward) updates.emplace(trained, optimizer, input.lr);
  std::optional<FirstGradient> first_gradient;
  add_gradients(trained, mesh, input, scale, loss_sum, first_gradient);
  StepResult result;
  // The host does not wait for the device before numbers.wait() below. Rows that do not train are cleared
  // before the norm, in which they would count.
  const at::Tensor losses = loss_sum.reduced(mesh);
  clear_frozen_rows(trained.trained_rows, sharded);
  const optim::PendingNorm pending_norm = updates ? updates->norm() : optim::PendingNorm(sharded);
  const auto update = [&] {
    const trace::Scope trace_scope("optimizer");
    const SectionScope section(StepSection::Optimizer);
    const MemoryScope memory(MemoryCategory::OptimizerState);
    optimizer.step(input.lr, 1.0,
                   update_factor(losses.select(0, 0), pending_norm.sum_of_squares().select(0, 0), input));
  };
  // The copy is submitted ahead of the update, so that the host does not wait for that.
  std::vector<at::Tensor> read = {pending_norm.sum_of_squares(), losses};
  if (first_gradient) read.push_back(first_gradient->numbers());
  HostCopy numbers(at::cat(read));
  const bool waits = input.skips_overflow || input.accepts;
  if (!waits && !updates) update();
  const at::Tensor values = numbers.wait();
  const LossSum::Total total = loss_sum.total(values.narrow(0, 0, 1 + losses.size(0)));
  const double total_loss = total.loss;
  result.dataset_losses = total.datasets;
  if (!total.routers.empty())
    result.routers = RouterValues{total.routers[0] * scale, total.routers[1] * scale};
  const auto overflows = [&](double value) {
    if (std::isfinite(value) || !input.skips_overflow) return false;
    result.is_finite = result.is_updated = false;
    return true;
  };
  result.loss = total_loss * scale;
  if (overflows(total_loss)) return result;
  if (!std::isfinite(total_loss)) refuse_loss(loss_sum, total_loss, trained, mesh, input);

  // The numbers are the same on all ranks, so all take the same branches: finish() and the errors below are
  // collective where the norm is not finite.
  const optim::GradientNorm norm = pending_norm.finish(total.other);
  if (overflows(norm.norm)) return result;
  if (!std::isfinite(norm.norm)) refuse_gradient(norm, *mesh.world(), input);
  // Throws where a collective on the device has failed: the numbers that were read after it are no result.
  mesh.world()->check();
  result.grad_norm = norm.norm / input.loss_scale;
  if (first_gradient)
    result.noise = noise_of(host_span<const double>(values).last(2), result.grad_norm, input);
  result.is_updated = !input.accepts || input.accepts(result.loss, result.grad_norm);
  if (waits && result.is_updated) update();
  return result;
}

std::optional<Evaluated> evaluate(TrainedModel& trained, const parallel::DeviceMesh& mesh,
                                  data::Loader& loader, const std::function<bool(int64_t done)>& on_step) {
  const at::NoGradGuard no_grad;
  trained.model->eval();
  const std::vector<std::string> datasets = loader.datasets();
  const bool has_several = datasets.size() > 1;
  const nn::TaskHead& head = trained.model->head();
  LossSum loss_sum(mesh.device(), has_several ? std::ssize(datasets) : 0, false, head.num_statistics());
  std::vector<int64_t> of_datasets(datasets.size(), 0);
  int64_t label_tokens = 0;
  loader.seek({});
  const int64_t num_steps = loader.steps_per_epoch();
  std::vector<data::MicroBatch> batches;
  for (int64_t done = 0; done < num_steps;) {
    data::Step step = loader.next_step();
    label_tokens += step.label_tokens;
    for (size_t i = 0; i < step.dataset_label_tokens.size(); ++i)
      of_datasets[i] += step.dataset_label_tokens[i];
    std::move(step.micro_batches.begin(), step.micro_batches.end(), std::back_inserter(batches));
    ++done;
    // Micro-batches are gathered until the stages of a pipeline have enough to work side by side.
    if (done < num_steps && static_cast<int64_t>(batches.size()) < micro_batches_at_once(mesh)) continue;
    loss_sum.add(forward(trained, mesh, batches, loss_sum.parts()));
    batches.clear();
    if (on_step(done)) continue;
    trained.model->train();
    return std::nullopt;
  }
  trained.model->train();
  const at::Tensor losses = loss_sum.reduced(mesh);
  const LossSum::Total total =
      loss_sum.total(HostCopy(at::cat({at::zeros({1}, losses.options()), losses})).wait());
  Evaluated evaluated;
  evaluated.loss = total.loss / static_cast<double>(std::max<int64_t>(1, label_tokens));
  evaluated.label_tokens = label_tokens;
  evaluated.metrics = head.metrics(total.statistics);
  if (has_several) evaluated.datasets = dataset_losses(datasets, total.datasets, of_datasets);
  return evaluated;
}

std::vector<optim::OptimizedTile> optimized_tiles(const parallel::ShardedModel& sharded, double weight_decay,
                                                  bool decay_all) {
  std::vector<optim::OptimizedTile> tiles;
  for (const auto& parameter : sharded.parameters()) {
    if (!parameter.requires_grad) continue;
    const bool is_matrix = parameter.layout.shape().size() >= 2;
    tiles.push_back({parameter.name, parameter.tile, is_matrix || decay_all ? weight_decay : 0.0,
                     parameter.layout, parameter.coordinates, 1.0, sharded.device(), nn::ParameterRole::Other,
                     parameter.axes});
  }
  return tiles;
}

optim::AdamWOptions adamw_options(const config::Recipe& recipe) {
  optim::AdamWOptions options;
  options.beta1 = recipe.adam_beta1;
  options.beta2 = recipe.adam_beta2;
  options.epsilon = recipe.adam_epsilon;
  options.has_bf16_states = recipe.pure_bf16 || recipe.optimizer_state_dtype == config::StateType::BFloat16;
  options.seed = static_cast<uint64_t>(recipe.seed);
  if (recipe.offload_optimizer_device == config::OffloadDevice::Cpu)
    options.offload_chunk_elements = optim::OffloadedStates::kChunkElements;
  options.spill = spill_place(recipe);
  return options;
}

std::optional<optim::SpillPlace> spill_place(const config::OffloadConfig& keys) {
  if (keys.offload_optimizer_device != config::OffloadDevice::Nvme) return std::nullopt;
  optim::SpillPlace place;
  place.folder = keys.offload_optimizer_nvme_path;
  // One block is updated while another one moves.
  place.buffer_count = std::max<int64_t>(2, keys.offload_optimizer_buffer_count);
  place.file.request_bytes = keys.aio_block_size;
  place.file.depth = keys.aio_queue_depth;
  return place;
}

}  // namespace tessera::train

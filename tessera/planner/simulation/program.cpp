#include "tessera/planner/simulation/program.h"

#include <utility>

#include "tessera/parallel/pipeline/split_blocks.h"

namespace tessera::planner {
namespace {

using parallel::Action;
using parallel::ActionKind;
using parallel::Schedule;

class ProgramMaker {
 public:
  ProgramMaker(const StepParts& parts, const Choice& choice, const Schedule& schedule,
               const std::vector<int64_t>& first_blocks)
      : parts_(parts),
        choice_(choice),
        schedule_(schedule),
        first_blocks_(first_blocks),
        slowdown_(1.0 + parts.contention),
        gathers_(choice.zero == 3 && parts.groups.shards.size > 1),
        num_backwards_(static_cast<size_t>(schedule.num_stages), 0) {}

  Program make(int64_t place) {
    for (const Action& action : schedule_.actions[static_cast<size_t>(place)]) add_action(action);
    add_step_end();
    return std::move(program_);
  }

 private:
  int32_t add(Item item) {
    const auto number = static_cast<int32_t>(program_.items.size());
    program_.streams[static_cast<size_t>(item.stream)].push_back(number);
    program_.items.push_back(std::move(item));
    return number;
  }
  std::optional<int32_t> last_of(Stream stream) const {
    const auto& items = program_.streams[static_cast<size_t>(stream)];
    return items.empty() ? std::nullopt : std::optional(items.back());
  }
  bool is_first(int64_t stage) const { return stage == 0; }
  bool is_last(int64_t stage) const { return stage == schedule_.num_stages - 1; }

  void add_action(const Action& action) {
    stage_ = action.stage;
    micro_batch_ = action.micro_batch;
    received_ = parallel::received_by(schedule_, action);
    const int64_t begin = first_blocks_[static_cast<size_t>(stage_)],
                  end = first_blocks_[static_cast<size_t>(stage_) + 1];
    if (action.kind == ActionKind::Forward) {
      if (gathers_ && (is_first(stage_) || is_last(stage_))) add_gather(parts_.root_gather, -1);
      for (int64_t block = begin; block < end; ++block) add_forward(block);
      if (is_last(stage_)) {
        add({.activity = Activity::Head, .micro_batch = micro_batch_, .seconds = parts_.head * slowdown_});
      }
    } else {
      if (action.kind != ActionKind::InputGradient) ++num_backwards_[static_cast<size_t>(stage_)];
      for (int64_t block = end; block-- > begin;) add_backward(block, action.kind);
      const bool is_whole = action.kind != ActionKind::InputGradient;
      if (is_whole && is_last_backward() && (is_first(stage_) || is_last(stage_)))
        add_reduction(parts_.root_scatter, parts_.root_reduce, -1);
    }
    if (const auto sent = parallel::sent_by(schedule_, action)) {
      add({.activity = Activity::StageMessage,
           .stream = Stream::Message,
           .axis = Axis::Pipeline,
           .micro_batch = micro_batch_,
           .transfer = parts_.stage_message,
           .after = {*last_of(Stream::Compute)},
           .sends = sent});
    }
  }

  // All micro-batches of this stage have passed on their way back.
  bool is_last_backward() const {
    return num_backwards_[static_cast<size_t>(stage_)] == schedule_.num_micro_batches;
  }

  // Adds what a block waits for, which gathers its parameters.
  std::optional<int32_t> add_gather(const Transfer& transfer, int64_t block, Axis axis = Axis::Shards) {
    if (!gathers_) return std::nullopt;
    Item item{.activity = Activity::Gather,
              .stream = Stream::Gather,
              .axis = axis,
              .block = block,
              .micro_batch = micro_batch_,
              .transfer = transfer};
    // The block that computes and the next one are gathered.
    if (uses_.size() >= 2) item.after.push_back(uses_[uses_.size() - 2]);
    return add(std::move(item));
  }

  // Adds what all items of a block have in common; the first one of an action waits for its message.
  int32_t add_of_block(Item item, int64_t block, std::optional<int32_t> gathered = std::nullopt) {
    item.block = block;
    item.micro_batch = micro_batch_;
    if (gathered) item.after.push_back(*gathered);
    if (item.stream == Stream::Compute) item.receives = std::exchange(received_, std::nullopt);
    return add(std::move(item));
  }

  void add_exchange(Activity activity, Axis axis, const Transfer& transfer, int64_t block) {
    if (transfer.seconds() > 0.0)
      add_of_block({.activity = activity, .axis = axis, .transfer = transfer}, block);
  }

  // Adds the compute of a pass through a block, of which `attention` runs beside the ring of keys and values.
  void add_pass(Activity activity, double seconds, double attention, const Transfer& context, int64_t block,
                std::optional<int32_t> gathered) {
    if (parts_.groups.context.size == 1) {
      add_of_block({.activity = activity, .seconds = seconds * slowdown_}, block, gathered);
      return;
    }
    if (!parts_.is_ring) {
      add_of_block({.activity = activity, .seconds = (seconds - attention) * slowdown_}, block, gathered);
      add_exchange(Activity::Context, Axis::Context, context, block);
      add_of_block({.activity = activity, .seconds = attention * slowdown_}, block);
      return;
    }
    const int32_t products =
        add_of_block({.activity = activity, .seconds = (seconds - attention) * slowdown_}, block, gathered);
    const int32_t ring = add_of_block({.activity = Activity::Context,
                                       .stream = Stream::Context,
                                       .axis = Axis::Context,
                                       .transfer = context,
                                       .after = {products}},
                                      block);
    // A rank's own keys and values come by no message; then it needs those of the others, one by one.
    const double own = attention / static_cast<double>(parts_.groups.context.size);
    add_of_block({.activity = activity, .seconds = (attention - own) * slowdown_}, block);
    add_of_block({.activity = activity, .seconds = own * slowdown_}, block, ring);
  }

  void add_forward(int64_t block) {
    const auto gathered = add_gather(parts_.gather, block);
    add_pass(Activity::Forward, parts_.block.forward() + parts_.forward_starts, parts_.block.attention,
             parts_.context_forward, block, gathered);
    add_exchange(Activity::Tensor, Axis::Tensor, parts_.tensor_forward, block);
    add_exchange(Activity::Experts, Axis::Experts, parts_.expert_exchange.times(2.0), block);
    uses_.push_back(*last_of(Stream::Compute));
  }

  void add_backward(int64_t block, ActionKind kind) {
    const bool has_weights = kind != ActionKind::InputGradient;
    if (kind == ActionKind::WeightGradient) {
      add_of_block(
          {.activity = Activity::WeightGradient, .seconds = parts_.block.weight_gradient() * slowdown_},
          block);
    } else {
      const auto gathered = add_gather(parts_.gather_back, block, Axis::NearShards);
      const double seconds = parts_.block.input_gradient() + parts_.backward_starts +
                             (has_weights ? parts_.block.weight_gradient() : 0.0);
      add_pass(Activity::Backward, seconds, parts_.block.attention_backward, parts_.context_backward, block,
               gathered);
      add_exchange(Activity::Tensor, Axis::Tensor, parts_.tensor_backward, block);
      add_exchange(Activity::Experts, Axis::Experts, parts_.expert_exchange.times(2.0), block);
      uses_.push_back(*last_of(Stream::Compute));
    }
    if (has_weights && (parts_.scatters > 1.0 || is_last_backward())) {
      // The sum over copies waits for all micro-batches.
      add_reduction(choice_.zero >= 1 ? parts_.scatter : Transfer{},
                    is_last_backward() ? parts_.reduce : Transfer{}, block);
    }
  }

  void add_reduction(const Transfer& over_shards, const Transfer& over_copies, int64_t block) {
    for (const auto& [transfer, axis] :
         {std::pair(over_shards, Axis::Shards), std::pair(over_copies, Axis::Copies)}) {
      if (transfer.seconds() <= 0.0) continue;
      add({.activity = Activity::Reduce,
           .stream = Stream::Reduce,
           .axis = axis,
           .block = block,
           .micro_batch = micro_batch_,
           .transfer = transfer,
           .after = {*last_of(Stream::Compute)}});
    }
  }

  // All ranks meet for the norm of the gradients, and then change their own parameters.
  void add_step_end() {
    Item norm{.activity = Activity::GradientNorm, .axis = Axis::World};
    if (const auto reduced = last_of(Stream::Reduce)) norm.after.push_back(*reduced);
    add(std::move(norm));
    add({.activity = Activity::Optimizer, .seconds = parts_.optimizer});
    if (parts_.offload > 0.0) add({.activity = Activity::Offload, .seconds = parts_.offload});
    Item host{.activity = Activity::Host, .seconds = parts_.host};
    if (parts_.gathers_updates && parts_.gather.seconds() > 0.0) {
      int64_t blocks = 0;
      for (int64_t stage = stage_ % schedule_.num_ranks; stage < schedule_.num_stages;
           stage += schedule_.num_ranks)
        blocks += first_blocks_[static_cast<size_t>(stage) + 1] - first_blocks_[static_cast<size_t>(stage)];
      host.after.push_back(add({.activity = Activity::Gather,
                                .stream = Stream::Gather,
                                .axis = Axis::Shards,
                                .transfer = parts_.gather.times(static_cast<double>(blocks)),
                                .after = {*last_of(Stream::Compute)}}));
    }
    add(std::move(host));
  }

  const StepParts& parts_;
  const Choice& choice_;
  const Schedule& schedule_;
  const std::vector<int64_t>& first_blocks_;
  const double slowdown_;
  const bool gathers_;
  Program program_;
  int64_t stage_ = 0, micro_batch_ = 0;
  std::optional<parallel::Message> received_;
  std::vector<int32_t> uses_;           // the last item of each pass through a block
  std::vector<int64_t> num_backwards_;  // finished micro-batches of each stage
};

}  // namespace

std::string_view stream_name(Stream stream) {
  constexpr std::array<std::string_view, kNumStreams> kNames = {"compute", "gathers", "reductions",
                                                                "stage messages", "ring of keys and values"};
  return kNames[static_cast<size_t>(stream)];
}

std::string_view activity_name(Activity activity) {
  constexpr std::array<std::string_view, kNumActivities> kNames = {"forward",
                                                                   "backward",
                                                                   "gradients of weights",
                                                                   "head and loss",
                                                                   "tensor parallelism",
                                                                   "context parallelism",
                                                                   "experts",
                                                                   "gather of parameters",
                                                                   "reduction of gradients",
                                                                   "stage message",
                                                                   "norm of gradients",
                                                                   "optimizer",
                                                                   "offload",
                                                                   "host"};
  return kNames[static_cast<size_t>(activity)];
}

std::vector<Program> make_programs(const StepParts& parts, const Choice& choice, int64_t layers) {
  const Schedule schedule =
      parallel::make_schedule(choice.schedule, {choice.pp, choice.stages_per_rank, choice.accumulation});
  const double of_block = parts.block.compute() + parts.starts() + parts.tensor_forward.seconds() +
                          parts.tensor_backward.seconds() + 4.0 * parts.expert_exchange.seconds();
  const std::vector<int64_t> first_blocks =
      parallel::split_blocks({0.0, std::vector<double>(static_cast<size_t>(layers), of_block), parts.head},
                             choice.pp, choice.stages_per_rank);
  std::vector<Program> programs;
  for (int64_t place = 0; place < choice.pp; ++place)
    programs.push_back(ProgramMaker(parts, choice, schedule, first_blocks).make(place));
  return programs;
}

}  // namespace tessera::planner

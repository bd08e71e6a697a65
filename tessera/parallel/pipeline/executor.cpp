#include "tessera/parallel/pipeline/executor.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/step_clock.h"
#include "tessera/core/trace.h"
#include "tessera/device/memory_scope.h"
#include "tessera/ops/deferred_gradient.h"

namespace tessera::parallel {
namespace {

// Number of inputs that are received before the actions in front of theirs are done.
constexpr size_t kReceivedAhead = 2;

// Returns the tag of a message: one for each stage and direction. Messages with the same tag arrive in the
// order in which they were sent, and in a schedule without fault (find_fault()) both ends meet them in one
// order, so the micro-batch need not be in the tag.
int tag_of(const Message& message) {
  return static_cast<int>(2 * message.stage + (message.is_gradient ? 1 : 0));
}

std::string hint_of(const Message& message) {
  return std::string(message.is_gradient ? "gradient of the output of stage " : "input of stage ") +
         std::to_string(message.stage) + ", micro-batch " + std::to_string(message.micro_batch);
}

// [Note: how a schedule runs without deadlock]
// Each rank walks its own list of actions; nothing but messages ties the ranks together. A message waits
// neither for other messages nor for collectives (Communicator::batch_p2p), and a rank waits for its sends
// only after its last action. So the only waits between stages are those of an action for its input, and
// these end in a schedule without fault (find_fault()).
//
// A tensor that is sent is kept in `sent_` until the operation is over, since the operation reads it;
// finished ones are dropped after each action. A tensor that is received belongs to the operation until
// take() has waited for it. Besides the input of the current action kReceivedAhead inputs are under way (one
// more if it has none), which bounds their memory.
class Executor {
 public:
  Executor(const Schedule& schedule, comm::Communicator& group, PipelineStage& stage)
      : schedule_(schedule), actions_(schedule.actions[group.rank()]), group_(group), stage_(stage) {}

  at::Tensor run() {
    for (size_t i = 0; i < actions_.size(); ++i) {
      receive_until(i);
      perform(actions_[i]);
      free_sent();
    }
    for (const Sent& sent : sent_) sent.work->wait();
    // Only the last stage's rank has the losses.
    at::Tensor loss =
        loss_.defined() ? loss_ : at::empty({1}, at::TensorOptions(group_device()).dtype(at::kDouble));
    group_.broadcast(loss, schedule_.rank_of(schedule_.num_stages - 1), false,
                     {comm::hint("losses of the pipeline")});
    return loss;
  }

 private:
  struct Received {
    at::Tensor tensor;
    std::shared_ptr<comm::Work> work;
  };
  struct Sent {
    at::Tensor tensor;
    std::shared_ptr<comm::Work> work;
  };
  // State of one stage and micro-batch, from its forward to its backward or, if that is split, to its weight
  // gradient.
  struct InFlight {
    at::Tensor input, output;
    ops::DeferredGradients weight_gradients;
  };

  at::Device group_device() const { return group_.device(); }

  // Returns whether there is a message and it is sent. The gradient for a stage is sent only if something in
  // that stage or before it is trained. Sender and receiver decide by the same rule.
  bool is_carried(const std::optional<Message>& message) const {
    return message && (!message->is_gradient || stage_.needs_input_gradient(message->stage + 1));
  }

  // Starts to receive the inputs of the actions up to `current`, and of the next actions that have inputs.
  void receive_until(size_t current) {
    for (; next_received_ < actions_.size(); ++next_received_) {
      if (next_received_ > current && received_.size() > kReceivedAhead) return;
      const auto message = received_by(schedule_, actions_[next_received_]);
      if (!is_carried(message)) continue;
      // The gradient of a stage's output has the shape of the next stage's input.
      const int64_t stage = message->stage + (message->is_gradient ? 1 : 0);
      const int64_t sender = schedule_.rank_of(message->stage + (message->is_gradient ? 1 : -1));
      const at::Tensor tensor = stage_.make_input(stage, message->micro_batch);
      received_[*message] = {
          tensor, group_.recv(tensor, sender, tag_of(*message), true, {comm::hint(hint_of(*message))})};
    }
  }

  // Waits for the input of the action and returns it; undefined if the action has none.
  at::Tensor take(const Action& action) {
    const auto message = received_by(schedule_, action);
    if (!is_carried(message)) return {};
    const trace::Scope trace_scope("wait for a stage");
    auto received = received_.extract(*message);
    received.mapped().work->wait();
    return received.mapped().tensor;
  }

  // Starts to send the action's result, if another rank reads it.
  void send(const Action& action, const at::Tensor& value) {
    const auto message = sent_by(schedule_, action);
    if (!is_carried(message)) return;
    TESSERA_ASSERT(value.defined(), "the " + describe(action) + " has nothing to send");
    const at::Tensor tensor = value.detach().contiguous();
    sent_.push_back({tensor, group_.send(tensor, schedule_.rank_of(message->stage), tag_of(*message), true,
                                         {comm::hint(hint_of(*message))})});
  }

  void free_sent() {
    std::erase_if(sent_, [](const Sent& sent) {
      if (!sent.work->is_done()) return false;
      sent.work->wait();  // returns at once, and throws if the operation failed
      return true;
    });
  }

  void perform(const Action& action) {
    const std::pair<int64_t, int64_t> key(action.stage, action.micro_batch);
    switch (action.kind) {
      case ActionKind::Forward: return forward(action);
      case ActionKind::Backward: {
        auto in_flight = in_flight_.extract(key);
        return backward(action, in_flight.mapped());
      }
      case ActionKind::InputGradient: {
        InFlight& in_flight = in_flight_.at(key);
        const ops::DeferGradientsScope defer(&in_flight.weight_gradients);
        return backward(action, in_flight);
      }
      case ActionKind::WeightGradient: {
        const trace::Scope trace_scope("weight gradients");
        const SectionScope section(StepSection::Backward);
        in_flight_.extract(key).mapped().weight_gradients.run();
        return;
      }
    }
  }

  void forward(const Action& action) {
    const at::Tensor input = take(action);
    const trace::Scope trace_scope("forward");
    const SectionScope section(StepSection::Forward);
    const MemoryScope memory(MemoryCategory::Activations);
    const bool has_graph = schedule_.has_backward && at::GradMode::is_enabled();
    // The input is a leaf, so the backward leaves its gradient in input.grad(), which is then sent to the
    // stage before.
    if (input.defined() && has_graph) input.set_requires_grad(stage_.needs_input_gradient(action.stage));
    const at::Tensor output = stage_.forward(action.stage, action.micro_batch, input);
    if (action.stage + 1 == schedule_.num_stages) {
      const at::NoGradGuard no_grad;
      if (!loss_.defined()) loss_ = at::zeros({1}, output.options().dtype(at::kDouble));
      loss_.add_(output.detach());
    } else {
      send(action, output);
    }
    if (has_graph) in_flight_[{action.stage, action.micro_batch}] = {input, output, {}};
  }

  // Runs the backward of one stage and micro-batch, sends the gradient of its input, and frees the graph. The
  // operands of deferred weight gradients are held by these.
  void backward(const Action& action, InFlight& in_flight) {
    const at::Tensor gradient = take(action);
    const trace::Scope trace_scope("backward");
    const SectionScope section(StepSection::Backward);
    const MemoryScope memory(MemoryCategory::Backward);
    if (in_flight.output.requires_grad()) {
      stage_.backward(action.stage, action.micro_batch, in_flight.output, gradient);
    }
    in_flight.output.reset();
    if (in_flight.input.defined()) send(action, in_flight.input.grad());
    in_flight.input.reset();
  }

  const Schedule& schedule_;
  const std::vector<Action>& actions_;
  comm::Communicator& group_;
  PipelineStage& stage_;
  size_t next_received_ = 0;
  std::map<Message, Received> received_;
  std::vector<Sent> sent_;
  std::map<std::pair<int64_t, int64_t>, InFlight> in_flight_;
  // Sum of the losses so far, [1] float64; undefined unless this rank has the last stage.
  at::Tensor loss_;
};

}  // namespace

at::Tensor run_schedule(const Schedule& schedule, comm::Communicator& group, PipelineStage& stage) {
  TESSERA_ASSERT(group.size() == schedule.num_ranks, "a schedule for the ranks of the group");
  return Executor(schedule, group, stage).run();
}

}  // namespace tessera::parallel

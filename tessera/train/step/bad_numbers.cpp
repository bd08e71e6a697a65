#include "tessera/train/step/bad_numbers.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/nn/call_hook.h"
#include "tessera/nn/transformer_block.h"
#include "tessera/train/step/forward_backward.h"

namespace tessera::train {
namespace {

// A parameter or block that is not finite; `place` is its position in the model's order, below 0 for none.
struct Found {
  int64_t place = -1;
  std::string name;
};

int64_t count_bad(const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  return values.numel() - at::isfinite(values).sum().item<int64_t>();
}

Found first_bad_parameter(const parallel::ShardedModel& model) {
  model.wait_for_tiles();
  int64_t place = 0;
  for (const parallel::ShardedParameter& parameter : model.parameters()) {
    if (parameter.tile.numel() > 0 && count_bad(parameter.tile) > 0) return {place, parameter.name};
    ++place;
  }
  return {};
}

// Notes in `first` the earliest block whose output is not finite.
class OutputCheck : public nn::CallHook {
 public:
  OutputCheck(Found itself, std::shared_ptr<Found> first)
      : itself_(std::move(itself)), first_(std::move(first)) {}

  at::Tensor run(const at::Tensor& input, const Forward& next) override {
    at::Tensor output = next(input);
    const bool is_earlier = first_->place < 0 || itself_.place < first_->place;
    if (is_earlier && count_bad(output) > 0) *first_ = itself_;
    return output;
  }

 private:
  const Found itself_;
  const std::shared_ptr<Found> first_;
};

// Runs the micro-batches and returns the first block here whose output is not finite. The hooks stay on the
// model, and it stays in evaluation mode: the run ends here.
Found first_bad_output(TrainedModel& trained, const parallel::DeviceMesh& mesh,
                       const std::vector<data::MicroBatch>& micro_batches) {
  const auto first = std::make_shared<Found>();
  int64_t place = 0;
  for (const auto& module : trained.model->named_modules()) {
    if (dynamic_cast<nn::TransformerBlock*>(module.value().get()) == nullptr) continue;
    nn::add_call_hook(*module.value(), std::make_shared<OutputCheck>(Found{place++, module.key()}, first));
  }
  trained.model->eval();
  (void)forward(trained, mesh, micro_batches);
  return *first;
}

// Returns the earliest finding of all ranks, and the rank that made it. Collective.
std::pair<Found, int64_t> first_of_all(const Found& own, comm::Communicator& world) {
  Found first;
  int64_t at_rank = 0, rank = 0;
  for (const std::string& text :
       world.all_gather_string(own.place < 0 ? "" : std::to_string(own.place) + " " + own.name)) {
    const size_t space = text.find(' ');
    if (space != std::string::npos) {
      const int64_t place = std::stoll(text);
      if (first.place < 0 || place < first.place) {
        first = {place, text.substr(space + 1)};
        at_rank = rank;
      }
    }
    ++rank;
  }
  return {first, at_rank};
}

}  // namespace

std::string first_bad_tensor(TrainedModel& trained, const parallel::DeviceMesh& mesh,
                             const std::vector<data::MicroBatch>& micro_batches) {
  comm::Communicator& world = *mesh.world();
  const auto [parameter, holder] = first_of_all(first_bad_parameter(*trained.sharded), world);
  if (parameter.place >= 0) {
    return "parameter '" + parameter.name + "' has values that are not finite, on rank " +
           std::to_string(holder);
  }
  const auto [block, rank] = first_of_all(first_bad_output(trained, mesh, micro_batches), world);
  if (block.place >= 0) {
    return "the first output that is not finite is that of '" + block.name + "', on rank " +
           std::to_string(rank);
  }
  return "the outputs of all blocks are finite, so the output projection is the cause";
}

void check_finite_weights(const TrainedModel& trained, comm::Communicator& world, bool is_refused) {
  // This rank's text has a line for each tile that is not finite: the number of values, the offset of its
  // box, its name. Copies of a tile on other ranks have the same name and box, and count once.
  std::string own;
  trained.sharded->wait_for_tiles();
  for (const parallel::ShardedParameter& parameter : trained.sharded->parameters()) {
    if (parameter.tile.numel() == 0) continue;
    const int64_t count = count_bad(parameter.tile);
    if (count == 0) continue;
    own += std::to_string(count) + " :";
    for (const int64_t offset : parameter.box.offset) own += std::to_string(offset) + ",";
    own += " " + parameter.name + "\n";
  }
  std::map<std::string, std::map<std::string, int64_t>> counts;  // by name and box
  for (const std::string& text : world.all_gather_string(own)) {
    std::istringstream lines(text);
    int64_t count = 0;
    for (std::string box, name; lines >> count >> box >> name;) counts[name][box] = count;
  }
  if (counts.empty()) return;
  constexpr size_t kMostNamed = 10;
  std::string told;
  size_t number = 0;
  for (const auto& [name, boxes] : counts) {
    int64_t sum = 0;
    for (const auto& [box, count] : boxes) sum += count;
    if (++number <= kMostNamed)
      told += (told.empty() ? "'" : ", '") + name + "' (" + std::to_string(sum) + " values)";
  }
  if (number > kMostNamed) told += " and " + std::to_string(number - kMostNamed) + " more";
  if (is_refused) {
    throw Error(ErrorKind::Model, "NOT-FINITE", "the weights contain NaN or infinity: " + told)
        .hint("strict_finite: false trains from them anyway");
  }
  log::warn("the weights contain NaN or infinity: " + told + "; strict_finite: true refuses them");
}

}  // namespace tessera::train

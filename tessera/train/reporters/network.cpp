#include "tessera/train/reporters/network.h"

namespace tessera::train {

void Network::on_step(const TrainState&, StepMetrics& metrics) {
  const std::map<std::string, comm::Traffic> now = mesh_.traffic();
  for (const auto& [axis, total] : now) {
    const comm::Traffic of_step = total - before_[axis];
    metrics.traffic[axis] = {of_step.bytes_sent, of_step.wait_s};
  }
  before_ = now;
}

}  // namespace tessera::train

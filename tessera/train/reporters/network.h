// Tells what each axis of the mesh costs a step: bytes and waiting.
#pragma once

#include <map>
#include <string>

#include "tessera/parallel/device_mesh.h"
#include "tessera/train/reporters/reporter.h"

namespace tessera::train {

class Network : public Reporter {
 public:
  // `mesh` outlives this object.
  explicit Network(const parallel::DeviceMesh& mesh) : mesh_(mesh), before_(mesh.traffic()) {}
  // Adds the traffic of the step to the metrics. Not collective: each rank has its own, and the first one's
  // is written.
  void on_step(const TrainState& state, StepMetrics& metrics) override;

 private:
  const parallel::DeviceMesh& mesh_;
  std::map<std::string, comm::Traffic> before_;
};

}  // namespace tessera::train

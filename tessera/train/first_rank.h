// Work that only the first rank does, between collectives that all ranks take part in.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "tessera/comm/communicator.h"

namespace tessera::train {

// The first error ends the work but not the collectives; finish() then throws it on every rank.
class FirstRank {
 public:
  // `what` completes the other ranks' error: "rank 0 could not <what>".
  FirstRank(comm::Communicator& world, std::string what);

  // Does nothing on other ranks, and nothing after an error.
  void run(const std::function<void()>& work);
  // Collective. Throws the first rank's error there, and an error of the same kind elsewhere.
  void finish();

 private:
  comm::Communicator& world_;
  std::string what_;
  std::exception_ptr error_;
};

}  // namespace tessera::train

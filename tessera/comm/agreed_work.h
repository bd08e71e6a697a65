// Work that may fail on some ranks and not on others, between collectives that all of them take part in.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"

namespace tessera::comm {

// The first error ends a rank's work but not the collectives; finish() then throws on every rank.
class AgreedWork {
 public:
  // `groups`: those along which this rank agrees with others, one after the other, so that all hear of an
  // error on any. `what` completes the other ranks' error: "another rank could not <what>".
  AgreedWork(std::vector<Communicator*> groups, std::string what);

  // Does nothing after an error of this rank.
  void run(const std::function<void()>& work);
  // The same on the first rank of all groups; nothing on the others.
  void run_on_first(const std::function<void()>& work);
  bool is_first() const;
  // Collective. Throws an error where it was met, and one of the same kind, "OTHER-RANK", elsewhere.
  void finish();

 private:
  std::vector<Communicator*> groups_;
  std::string what_;
  std::exception_ptr error_;
};

}  // namespace tessera::comm

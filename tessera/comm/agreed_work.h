// Work that may fail on some ranks and not on others, between collectives that all of them take part in.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"

namespace tessera::comm {

// Runs pieces of such work. After its first error a rank skips its further work but still takes part in the
// collectives; finish() then throws on every rank.
class AgreedWork {
 public:
  // `groups` are the groups whose ranks agree with each other. finish() goes through them in turn, so an
  // error of any rank reaches the ranks of all of them. The communicators must outlive this object. `what`
  // completes the other ranks' error: "another rank could not <what>".
  AgreedWork(std::vector<Communicator*> groups, std::string what);

  // Runs `work` and keeps the error that it throws; does nothing after an earlier error of this rank.
  // Meanwhile the flight recorder shows this rank as working on storage.
  void run(const std::function<void()>& work);
  // Calls run(work) on the rank that is first in every group; does nothing on the others.
  void run_on_first(const std::function<void()>& work);
  bool is_first() const;
  // Collective over all groups. Throws the error on the rank that met it, and an error of the same kind,
  // named OTHER-RANK, on all others. Returns if no rank met one.
  void finish();

 private:
  std::vector<Communicator*> groups_;
  std::string what_;
  std::exception_ptr error_;
};

}  // namespace tessera::comm

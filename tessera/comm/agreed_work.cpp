#include "tessera/comm/agreed_work.h"

#include <algorithm>
#include <utility>

#include "tessera/comm/flight_recorder.h"
#include "tessera/core/error.h"

namespace tessera::comm {

AgreedWork::AgreedWork(std::vector<Communicator*> groups, std::string what)
    : groups_(std::move(groups)), what_(std::move(what)) {}

void AgreedWork::run(const std::function<void()>& work) {
  if (error_ != nullptr) return;
  try {
    const flight::StorageScope storage(what_);
    work();
  } catch (...) {
    error_ = std::current_exception();
  }
}

void AgreedWork::run_on_first(const std::function<void()>& work) {
  if (is_first()) run(work);
}

bool AgreedWork::is_first() const {
  return std::all_of(groups_.begin(), groups_.end(), [](Communicator* group) { return group->rank() == 0; });
}

void AgreedWork::finish() {
  // This rank's error as text: its kind as one character, then its message. Empty if all went well.
  std::string told;
  const auto tell = [&](ErrorKind kind, const char* text) {
    told = static_cast<char>('a' + static_cast<int>(kind)) + std::string(text);
  };
  try {
    if (error_ != nullptr) std::rethrow_exception(error_);
  } catch (const Error& error) {
    tell(error.kind(), error.what());
  } catch (const std::exception& error) {
    tell(ErrorKind::Internal, error.what());
  }
  const flight::PatienceScope patience;
  for (Communicator* group : groups_) {
    for (const std::string& other : group->all_gather_string(told)) {
      // An error heard in one group is told in the next, and so reaches ranks that are in no group with its
      // rank.
      if (told.empty()) told = other;
    }
  }
  if (error_ != nullptr) std::rethrow_exception(error_);
  if (told.empty()) return;
  throw Error(static_cast<ErrorKind>(told[0] - 'a'), "OTHER-RANK",
              "another rank could not " + what_ + ": " + told.substr(1));
}

}  // namespace tessera::comm

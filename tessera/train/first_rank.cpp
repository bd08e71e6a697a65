#include "tessera/train/first_rank.h"

#include <utility>

#include "tessera/core/error.h"

namespace tessera::train {

FirstRank::FirstRank(comm::Communicator& world, std::string what) : world_(world), what_(std::move(what)) {}

void FirstRank::run(const std::function<void()>& work) {
  if (world_.rank() != 0 || error_ != nullptr) return;
  try {
    work();
  } catch (...) {
    error_ = std::current_exception();
  }
}

void FirstRank::finish() {
  // The kind as one character before the message; empty where all went well.
  std::string text;
  try {
    if (error_ != nullptr) std::rethrow_exception(error_);
  } catch (const Error& error) {
    text = static_cast<char>(static_cast<int>(error.kind())) + std::string(error.what());
  } catch (const std::exception& error) {
    text = static_cast<char>(static_cast<int>(ErrorKind::Internal)) + std::string(error.what());
  }
  const std::string told = world_.all_gather_string(text).front();
  if (error_ != nullptr) std::rethrow_exception(error_);
  if (!told.empty()) {
    throw Error(static_cast<ErrorKind>(told[0]), "FIRST-RANK",
                "rank 0 could not " + what_ + ": " + told.substr(1));
  }
}

}  // namespace tessera::train

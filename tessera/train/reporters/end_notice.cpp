#include "tessera/train/reporters/end_notice.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <unistd.h>

#include "tessera/core/error.h"
#include "tessera/core/log.h"

namespace tessera::train {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr size_t kMaxText = 1024, kMaxPath = 4096;

// All that the handler touches. Of the two texts one is whole while the other is written.
char texts[2][kMaxText + 16];
std::atomic<int> current_text{-1};
char lock_path[kMaxPath];
int log_descriptor = -1;
struct sigaction before[std::size(kSignals)];

void say_and_end(int signal) {
  const int text = current_text.load();
  if (text >= 0) (void)!write(log_descriptor, texts[text], std::strlen(texts[text]));
  if (lock_path[0] != '\0') unlink(lock_path);
  std::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

EndNotice::EndNotice(const std::string& lock) {
  TESSERA_ASSERT(log_descriptor < 0, "one notice at a time");
  current_text = -1;
  log_descriptor = fileno(log::stream());
  lock_path[0] = '\0';
  if (lock.size() < kMaxPath) std::memcpy(lock_path, lock.c_str(), lock.size() + 1);
  struct sigaction action = {};
  action.sa_handler = say_and_end;
  sigfillset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &before[i]);
    // What is ignored stays so (nohup).
    if (before[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

EndNotice::~EndNotice() {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before[i], nullptr);
  log_descriptor = -1;
}

void EndNotice::set(const std::string& text) {
  const int next = current_text.load() == 0 ? 1 : 0;
  // A terminal has an open line of progress.
  std::string line = isatty(log_descriptor) != 0 ? "\n" : "";
  line += "tessera: " + text.substr(0, kMaxText) + "\n";
  std::memcpy(texts[next], line.c_str(), line.size() + 1);
  current_text = next;
}

}  // namespace tessera::train

#include "tessera/train/run/run_signals.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>

#include <unistd.h>

#include "tessera/core/error.h"
#include "tessera/core/log.h"

namespace tessera::train {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
constexpr size_t kMaxText = 1024, kMaxPath = 4096;
// A signal that is passed on carries this value plus its count.
constexpr int kPassedOn = 0x7e55e000, kMostPassedOn = 0xfff;

// Everything that the signal handler touches. Of the two texts one is whole while the other is written.
char texts[2][kMaxText + 16];
std::atomic<int> current_text{-1};
char lock_path[kMaxPath];
int log_descriptor = -1;
bool is_terminal = false, is_alive = false;
void (*tell_end_of_process)(int) = nullptr;
int ending_process = 0;
std::atomic<bool> are_stops_deferred{false}, loses_nothing{false}, is_saved{false}, is_done{false},
    is_save_asked{false};
std::atomic<int> direct{0}, passed_on{0}, num_stops{0}, stop{0};
// An end at once that waits for the end of a Held. Its code is written before its signal, which says that
// there is one.
std::atomic<bool> is_held{false};
std::atomic<int> held_code{0}, held_signal{0};
struct sigaction before[std::size(kSignals)];

void say(const char* text) { (void)!write(log_descriptor, text, std::strlen(text)); }

void end_now(int signal, int code) {
  // The end is noted before is_held is read, and ~Held() clears is_held before it looks for a noted end:
  // whichever comes first, the process ends.
  held_code = code;
  held_signal = signal;
  if (is_held && num_stops < 2) return;
  const int text = current_text.load();
  if (text >= 0) say(texts[text]);
  if (lock_path[0] != '\0') unlink(lock_path);
  if (tell_end_of_process != nullptr) tell_end_of_process(code);
  if (code == kStoppedExitCode) _exit(code);
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void handle(int signal, siginfo_t* info, void*) {
  if (signal == SIGUSR1) {
    is_save_asked = true;
    return;
  }
  const int value = info->si_value.sival_int;
  const bool is_passed_on =
      info->si_code == SI_QUEUE && value > kPassedOn && value <= kPassedOn + kMostPassedOn;
  if (!is_passed_on && ending_process != 0 && info->si_pid == ending_process)
    return end_now(signal, kEndedByOthers);
  if (is_passed_on) {
    passed_on = value - kPassedOn;
  } else {
    ++direct;
  }
  const int count = std::max(direct.load(), passed_on.load());
  // This request has already come in the other way.
  if (count <= num_stops.exchange(count)) return;
  if (is_done && count == 1) return;
  int none = 0;
  stop.compare_exchange_strong(none, signal);
  if (count > 1 || !are_stops_deferred) {
    const bool is_lossless = is_saved || (count == 1 && loses_nothing);
    return end_now(signal, is_lossless ? kStoppedExitCode : 128 + signal);
  }
  if (current_text < 0) return;
  if (is_terminal) say("\n");
  say("tessera: stopping: the run saves a checkpoint and then ends; interrupt again to end it immediately\n");
}

}  // namespace

RunSignals::RunSignals(void (*tell_end)(int), int ender) {
  TESSERA_ASSERT(!is_alive, "one object takes the signals at a time");
  is_alive = true;
  current_text = -1;
  lock_path[0] = '\0';
  log_descriptor = fileno(log::stream());
  is_terminal = isatty(log_descriptor) != 0;
  tell_end_of_process = tell_end;
  ending_process = ender;
  are_stops_deferred = loses_nothing = is_saved = is_done = is_save_asked = false;
  direct = passed_on = num_stops = stop = held_signal = 0;
  struct sigaction action = {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

RunSignals::~RunSignals() {
  is_alive = false;
  // In a program that ends with its run the handlers stay: a signal that comes until then loses nothing.
  if ((is_done || is_saved) && tell_end_of_process != nullptr) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before[i], nullptr);
}

void RunSignals::set_notice(const std::string& text) {
  const int next = current_text.load() == 0 ? 1 : 0;
  // On a terminal the line of progress is still open.
  std::string line = is_terminal ? "\n" : "";
  line += "tessera: " + text.substr(0, kMaxText) + "\n";
  std::memcpy(texts[next], line.c_str(), line.size() + 1);
  current_text = text.empty() ? -1 : next;
}

void RunSignals::set_lock(const std::string& path) {
  if (path.size() < kMaxPath) std::memcpy(lock_path, path.c_str(), path.size() + 1);
}

RunSignals::Held::Held() { is_held = true; }
RunSignals::Held::~Held() {
  is_held = false;
  if (const int signal = held_signal.exchange(0); signal != 0) end_now(signal, held_code);
}

void RunSignals::set_loses_nothing() { loses_nothing = true; }
void RunSignals::set_saved() { is_saved = true; }
void RunSignals::set_done() { is_done = true; }
void RunSignals::defer_stops() { are_stops_deferred = true; }
int RunSignals::stop_signal() const { return stop; }
bool RunSignals::take_save() { return is_save_asked.exchange(false); }

void pass_on_signal(int process, int signal, int count) {
  sigval value = {};
  value.sival_int = kPassedOn + std::min(count, kMostPassedOn);
  sigqueue(process, signal, value);
}

}  // namespace tessera::train

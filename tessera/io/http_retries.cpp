#include "tessera/io/http_retries.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "tessera/core/log.h"
#include "tessera/core/strings.h"

namespace tessera::io {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLongestPause = 30.0;
constexpr double kToldPause = 5.0;  // a pause from this length on is told

bool is_passing(int status) {
  return status == 408 || status == 429 || status == 500 || (status >= 502 && status <= 504);
}

}  // namespace

HttpAnswer HttpRetries::ask(const std::function<HttpAnswer()>& attempt) {
  while (true) {
    try {
      HttpAnswer answer = attempt();
      if (!is_passing(answer.status) || answer.header("x-should-retry") == "false") return answer;
      wait("the server answers " + answer.told(), answer.pause_s);
    } catch (const HttpFault& fault) {
      if (fault.is_final) throw give_up_(what_, fault);
      wait(fault.what, 0, fault.is_unreachable);
    }
  }
}

void HttpRetries::wait(const std::string& why, double asked_s, bool is_unreachable) {
  ++failed_;
  if (is_unreachable) ++unreachable_;
  if (stop_ || failed_ >= limits_.attempts || unreachable_ >= limits_.unreachable_attempts ||
      asked_s > limits_.longest_asked_s)
    throw give_up_(what_, {asked_s > 0 ? why + " and asks for a pause of " + format_duration(asked_s) : why,
                           is_unreachable});
  const double own = std::min(kLongestPause, limits_.first_pause_s * static_cast<double>(1 << (failed_ - 1)));
  const double pause = std::max(own, asked_s);
  if (pause >= kToldPause) log::tell(what_ + ": " + why + "; next attempt in " + format_duration(pause));
  const auto end = Clock::now() + std::chrono::duration<double>(pause);
  while (!stop_ && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

}  // namespace tessera::io

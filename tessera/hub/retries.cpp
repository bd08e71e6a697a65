#include "tessera/hub/retries.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"

namespace tessera::hub {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLongestPause = 30.0;
constexpr double kToldPause = 5.0;  // a pause from this length on is told

bool is_passing(int status) {
  return status == 408 || status == 429 || status == 500 || (status >= 502 && status <= 504);
}

}  // namespace

HttpAnswer Retries::ask(const std::function<HttpAnswer()>& attempt) {
  while (true) {
    try {
      HttpAnswer answer = attempt();
      if (!is_passing(answer.status)) return answer;
      wait("the server answers " + std::to_string(answer.status), answer.pause_s);
    } catch (const HttpFault& fault) {
      if (fault.is_final) give_up(fault);
      wait(fault.what, 0, fault.is_unreachable);
    }
  }
}

void Retries::wait(const std::string& why, double asked_s, bool is_unreachable) {
  ++failed_;
  if (is_unreachable) ++unreachable_;
  if (stop_ || failed_ >= limits_.attempts || unreachable_ >= limits_.unreachable_attempts ||
      asked_s > limits_.longest_asked_s)
    give_up(
        {asked_s > 0 ? why + " and asks for a pause of " + format_duration(asked_s) : why, is_unreachable});
  const double own = std::min(kLongestPause, limits_.first_pause_s * static_cast<double>(1 << (failed_ - 1)));
  const double pause = std::max(own, asked_s);
  if (pause >= kToldPause) log::tell(what_ + ": " + why + "; next attempt in " + format_duration(pause));
  const auto end = Clock::now() + std::chrono::duration<double>(pause);
  while (!stop_ && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

void Retries::give_up(const HttpFault& fault) const {
  const bool is_upload = way_ == Way::Up;
  std::string hint = "SSL_CERT_FILE sets the trusted certificates, HF_ENDPOINT the address of the hub";
  if (fault.is_unreachable) {
    hint = "HTTPS_PROXY sets a proxy, HF_ENDPOINT a mirror of the hub";
    if (!is_upload) hint += "; without a network, download on another machine and copy its cache";
  } else if (!fault.is_final) {
    hint = is_upload ? "the hub keeps for a while what it has received: the same command again sends the rest"
                     : "the received data are kept: the same command resumes from there";
  }
  throw Error(ErrorKind::Storage, fault.is_unreachable ? "HUB-UNREACHABLE" : "HUB-BROKEN",
              (is_upload ? "cannot upload " : "cannot download ") + what_ + ": " + fault.what)
      .hint(hint);
}

}  // namespace tessera::hub

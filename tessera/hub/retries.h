// Tries a request again, after pauses that grow, where a later attempt may do better.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "tessera/hub/http_client.h"
#include "tessera/hub/settings.h"

namespace tessera::hub {

// The way that the bytes go, for the words of an error.
enum class Way { Down, Up };

class Retries {
 public:
  // `what` is what the requests are for, in the words of an error: "model org/name: config.json". Pauses end
  // soon once `stop` is true.
  Retries(const Limits& limits, std::string what, const std::atomic<bool>& stop, Way way = Way::Down)
      : limits_(limits), what_(std::move(what)), stop_(stop), way_(way) {}

  // Calls `attempt`, which makes one request, until it gives an answer that is not a passing trouble of the
  // server. Throws what wait() throws.
  HttpAnswer ask(const std::function<HttpAnswer()>& attempt);
  // Counts a failed attempt, and waits before the next one: at least `asked_s`. Throws when there have been
  // enough: E-STORAGE-HUB-UNREACHABLE where no connection was made, else E-STORAGE-HUB-BROKEN.
  void wait(const std::string& why, double asked_s = 0, bool is_unreachable = false);
  // Takes note that something has arrived, so that the attempts before count no more.
  void note_progress() { failed_ = unreachable_ = 0; }

 private:
  [[noreturn]] void give_up(const HttpFault& fault) const;

  const Limits limits_;
  const std::string what_;
  const std::atomic<bool>& stop_;
  const Way way_;
  int failed_ = 0, unreachable_ = 0;
};

}  // namespace tessera::hub

// Tries a request again, after pauses that grow, where a later attempt may do better.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/io/http_client.h"

namespace tessera::io {

class HttpRetries {
 public:
  // Makes the error of requests that have come to nothing; `what` is what they were for.
  using GiveUp = std::function<Error(const std::string& what, const HttpFault& fault)>;

  // `what` is what the requests are for, in the words of an error: "model org/name: config.json". Pauses end
  // soon once `stop` is true.
  HttpRetries(const HttpLimits& limits, std::string what, GiveUp give_up, const std::atomic<bool>& stop)
      : limits_(limits), what_(std::move(what)), give_up_(std::move(give_up)), stop_(stop) {}

  // Calls `attempt`, which makes one request, until it gives an answer that is not a passing trouble of the
  // server; "x-should-retry: false" says that it is none. Throws what wait() throws.
  HttpAnswer ask(const std::function<HttpAnswer()>& attempt);
  // Counts a failed attempt, and waits before the next one: at least `asked_s`. Throws the error of GiveUp
  // when there have been enough.
  void wait(const std::string& why, double asked_s = 0, bool is_unreachable = false);
  // Takes note that something has arrived, so that the attempts before count no more.
  void note_progress() { failed_ = unreachable_ = 0; }

 private:
  const HttpLimits limits_;
  const std::string what_;
  const GiveUp give_up_;
  const std::atomic<bool>& stop_;
  int failed_ = 0, unreachable_ = 0;
};

}  // namespace tessera::io

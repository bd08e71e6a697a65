#include "tessera/train/run/agreed_requests.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <unistd.h>

#include "tessera/device/device.h"

namespace tessera::train {
namespace {

// Requests are exchanged as numbers, of which the largest counts: those of Request, and kStop plus the signal
// to stop.
constexpr auto kStop = static_cast<int64_t>(Request::Stop);

}  // namespace

Request AgreedRequests::agree(const std::function<void()>& meanwhile) {
  begin();
  if (meanwhile) meanwhile();
  return finish();
}

bool AgreedRequests::lets_evaluation_go_on() {
  const Request request = agree();
  if (request != Request::Stop) due_ = request;
  return request != Request::Stop;
}

void AgreedRequests::begin() {
  const bool is_time = period_s_ > 0.0 && world_.rank() == 0 && since_save_.seconds() >= period_s_;
  auto own = static_cast<int64_t>(take_save() ? Request::Save
                                  : is_time   ? Request::SaveByTime
                                              : Request::None);
  if (const int signal = signals_.stop_signal(); signal != 0) own = kStop + signal;
  own_ = own;
  if (world_.size() == 1) return;
  asked_ = at::full({1}, own, on_host(at::kLong));
  comm::ReduceOptions options{.op = comm::ReduceOp::Max};
  options.hint = "requests to save or stop";
  exchange_ = world_.all_reduce(asked_, /*async_op=*/true, options);
}

Request AgreedRequests::finish() {
  if (const auto exchange = std::exchange(exchange_, nullptr)) exchange->wait();
  const auto asked = world_.size() == 1 ? own_ : asked_.item<int64_t>();
  if (asked > kStop) {
    stop_signal_ = static_cast<int>(asked - kStop);
    return Request::Stop;
  }
  const Request request = std::max(std::exchange(due_, Request::None), static_cast<Request>(asked));
  if (request == Request::None) return request;
  since_save_.restart();
  // The next checkpoint also answers requests that have reached this rank since begin().
  if (request == Request::Save) take_save();
  return request;
}

bool AgreedRequests::take_save() {
  const bool is_triggered = world_.rank() == 0 && unlink(trigger_file_.c_str()) == 0;
  const bool is_signalled = signals_.take_save();
  return is_triggered || is_signalled;
}

}  // namespace tessera::train

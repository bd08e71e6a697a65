// A request that a connection has read, for which a handler makes the reply.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>

#include "tessera/serving/http_connection.h"

namespace tessera::serving::detail {

// A request and its reply. Replies may come from any thread.
class Exchange : public HttpExchange, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(const std::shared_ptr<Shared>& shared, std::shared_ptr<Connection> connection, HttpRequest request,
           BodyRoom room)
      : shared_(shared),
        max_unsent_(shared->options.max_unsent),
        connection_(std::move(connection)),
        request_(std::move(request)),
        room_(std::move(room)) {}

  const HttpRequest& request() const override { return request_; }
  void reply(HttpReply reply) override;
  void begin_events(std::vector<std::pair<std::string, std::string>> headers) override;
  void send_event(const std::string& data, const std::string& name) override;
  void end_events() override;
  void when_gone(std::function<void()> on_gone) override;

 private:
  friend class HttpConnection;
  // Runs `work` on the server's thread with the connection, unless that has let go of this exchange.
  template <class Work>
  void post(Work work);

  // An exchange may outlive the server. Work that is posted too late to run holds the exchange, and the
  // server's queue holds the work, so neither may own the queue.
  const std::weak_ptr<Shared> shared_;
  const int64_t max_unsent_;
  std::shared_ptr<Connection> connection_;  // null when the exchange is over; of the server's thread
  const HttpRequest request_;
  const BodyRoom room_;            // of its body
  std::function<void()> on_gone_;  // of the server's thread
  std::atomic<bool> is_gone_ = false;
  std::atomic<int64_t> unsent_ = 0;
};

template <class Work>
void Exchange::post(Work work) {
  const auto shared = shared_.lock();
  if (shared == nullptr) return;
  net::post(shared->io, [self = shared_from_this(), work = std::move(work)] {
    if (self->connection_ != nullptr) work(*self->connection_);
  });
}

inline void Exchange::reply(HttpReply reply) {
  post([reply = std::move(reply)](Connection& connection) { connection.reply(reply); });
}

inline void Exchange::begin_events(std::vector<std::pair<std::string, std::string>> headers) {
  headers.emplace_back("Cache-Control", "no-cache");
  // Tells a proxy of nginx to pass each event on at once.
  headers.emplace_back("X-Accel-Buffering", "no");
  const HttpReply reply{200, "", "text/event-stream; charset=utf-8", std::move(headers)};
  post([reply](Connection& connection) { connection.begin_events(reply); });
}

inline void Exchange::send_event(const std::string& data, const std::string& name) {
  std::string event = (name.empty() ? "" : "event: " + name + "\n") + "data: " + data + "\n\n";
  const auto size = static_cast<int64_t>(event.size());
  if ((unsent_ += size) > max_unsent_) return post([](Connection& connection) { connection.close(); });
  post([event = std::move(event)](Connection& connection) { connection.send_chunk(event); });
}

inline void Exchange::end_events() {
  post([](Connection& connection) { connection.end_events(); });
}

inline void Exchange::when_gone(std::function<void()> on_gone) {
  // It may be called here and on the server's thread.
  const auto once = [on_gone = std::move(on_gone), was_called = std::make_shared<std::atomic<bool>>(false)] {
    if (!was_called->exchange(true)) on_gone();
  };
  if (const auto shared = shared_.lock()) {
    net::post(shared->io, [self = shared_from_this(), once] {
      if (self->is_gone_) return once();
      if (self->connection_ != nullptr) self->on_gone_ = once;
    });
  }
  // The server's thread may have ended before it came to the work. The client was gone then.
  if (is_gone_) once();
}

}  // namespace tessera::serving::detail

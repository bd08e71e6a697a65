// A connection of the HTTP server, and what all connections share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "tessera/serving/http_server.h"

namespace tessera::serving::detail {

namespace net = boost::asio;
using boost::system::error_code;
using Executor = net::io_context::executor_type;
using Socket = net::basic_stream_socket<net::ip::tcp, Executor>;
using Timer = net::basic_waitable_timer<std::chrono::steady_clock,
                                        net::wait_traits<std::chrono::steady_clock>, Executor>;

inline std::chrono::steady_clock::duration seconds(double s) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(s));
}

// Holds bytes of HttpOptions::max_bodies() until the last copy is gone; null holds none.
using BodyRoom = std::shared_ptr<void>;

// One connection: it waits for a request, reads it, waits for its reply, sends that, and so on. Everything
// runs on the server's thread.
class Connection {
 public:
  Connection() = default;
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  virtual void start() = 0;
  // Ends a connection at which nothing was read, with this error.
  virtual void refuse(int status, const std::string& message) = 0;
  virtual void close() = 0;
  // The reply to the request that was read: as a whole, or as the head of a stream of events, whose chunks
  // and end follow.
  virtual void reply(const HttpReply& reply) = 0;
  virtual void begin_events(const HttpReply& reply) = 0;
  virtual void send_chunk(const std::string& data) = 0;
  virtual void end_events() = 0;
};

// All connections share this.
struct Shared {
  static constexpr int64_t kSmallBody = 64 << 10;

  HttpOptions options;
  HttpServer::HeadCheck check;
  HttpServer::Handler handle;
  net::io_context io{1};
  std::set<std::shared_ptr<Connection>> connections;  // of the server's thread
  std::atomic<int64_t> num_open = 0;
  std::shared_ptr<std::atomic<int64_t>> body_bytes = std::make_shared<std::atomic<int64_t>>(0);
  bool has_ended = false;

  BodyRoom room_of(int64_t size) const {
    if (size <= kSmallBody) return nullptr;
    *body_bytes += size;
    return {body_bytes.get(), [used = body_bytes, size](void*) { *used -= size; }};
  }
};

std::shared_ptr<Connection> make_connection(std::shared_ptr<Shared> shared, Socket socket);

}  // namespace tessera::serving::detail

// A bounded HTTP/1.1 server: requests in, whole replies or event streams out.
//
// One thread moves all bytes. Everything that a client sends is bounded in size and time before it is
// believed: a head of 16 kB, a body of HttpOptions::max_body counted after chunks are joined, a time for
// each. All bodies together are bounded, too: a request whose body has no room is answered with status 503
// before its body is read. A request with Content-Length and Transfer-Encoding, or with two lengths, is
// refused and its connection closed, so that no second request hides in it. The parser is Boost.Beast's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::serving {

struct HttpRequest {
  std::string method, path, query;             // the path without its query, as it was sent
  std::map<std::string, std::string> headers;  // by their names in lower case; of several, the last
  std::string body;

  // Returns a header, or "" if it is not there; `name` is in lower case.
  std::string header(const std::string& name) const;
};

struct HttpReply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};

struct HttpOptions {
  std::string host = "127.0.0.1";  // an address or a name of this machine
  int port = 0;                    // 0: any free port
  int64_t max_body = int64_t{8} << 20;
  int64_t max_connections = 1024;
  double header_s = 10, body_s = 60;  // for the head and the body of a request
  double idle_s = 120;                // for a connection between two requests
  double stall_s = 30;                // until a client takes some bytes of its reply
  double keep_alive_s = 15;           // between comments in an event stream without events
  int64_t max_unsent =
      int64_t{4} << 20;  // bytes of a stream that wait for a slow client, who is cut above it

  // Returns the most bytes of all bodies together that are being read or whose replies are being made. Bodies
  // up to 64 KiB are not counted, as the number of connections bounds them.
  int64_t max_bodies() const { return 16 * max_body; }
};

// One request and its reply. All functions may be called from any thread.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;
  // Sends the whole reply. One of reply() and begin_events() is called, once.
  virtual void reply(HttpReply reply) = 0;
  // Begins an event stream with status 200. Comments keep it alive while nothing is sent.
  virtual void begin_events(std::vector<std::pair<std::string, std::string>> headers) = 0;
  // Sends one event, "data: <data>", with a line "event: <name>" unless that is empty; both are one line.
  virtual void send_event(const std::string& data, const std::string& name = "") = 0;
  // Ends the event stream.
  virtual void end_events() = 0;
  // Calls `on_gone` once, on the server's thread, if the client goes away before its reply is complete; at
  // once if it has.
  virtual void when_gone(std::function<void()> on_gone) = 0;
};

class HttpServer {
 public:
  // Returns a reply to refuse a request by its head, before its body is read; nothing to take it.
  using HeadCheck = std::function<std::optional<HttpReply>(const HttpRequest& head)>;
  using Handler = std::function<void(std::shared_ptr<HttpExchange> exchange)>;

  // Listens from now on. Both functions are called on the server's thread, which they must not hold up.
  // Throws Error(Config, "ADDRESS") for an address that cannot be listened at.
  HttpServer(const HttpOptions& options, HeadCheck check, Handler handle);
  // Closes all connections.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  // Number of requests whose reply is not complete.
  int64_t num_open() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the words of an HTTP status, such as "Bad Request".
const char* status_words(int status);

}  // namespace tessera::serving

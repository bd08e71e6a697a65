#include "tessera/serving/http_server.h"

#include <thread>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include "tessera/core/error.h"
#include "tessera/serving/http_connection.h"

namespace tessera::serving {

namespace net = detail::net;
using detail::error_code;

std::string HttpRequest::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

const char* status_words(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Unknown";
  }
}

class HttpServer::Impl {
 public:
  Impl(const HttpOptions& options, HeadCheck check, Handler handle)
      : shared_(std::make_shared<detail::Shared>()), acceptor_(shared_->io), pause_(shared_->io) {
    shared_->options = options;
    shared_->check = std::move(check);
    shared_->handle = std::move(handle);
    listen();
    accept();
    thread_ = std::thread([this] { shared_->io.run(); });
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  ~Impl() {
    net::post(shared_->io, [this] {
      shared_->has_ended = true;
      error_code ignored;
      acceptor_.close(ignored);
      pause_.cancel();
      const auto connections = shared_->connections;
      for (const auto& connection : connections) connection->close();
    });
    thread_.join();
  }

  int port() const { return acceptor_.local_endpoint().port(); }
  int64_t num_open() const { return shared_->num_open; }

 private:
  void listen() {
    const HttpOptions& options = shared_->options;
    error_code error;
    net::ip::tcp::resolver resolver(shared_->io);
    const auto found =
        resolver.resolve(options.host, std::to_string(options.port), net::ip::tcp::resolver::passive, error);
    if (!error && !found.empty()) {
      const net::ip::tcp::endpoint endpoint = found.begin()->endpoint();
      acceptor_.open(endpoint.protocol(), error);
      if (!error) acceptor_.set_option(net::socket_base::reuse_address(true), error);
      if (!error) acceptor_.bind(endpoint, error);
      if (!error) acceptor_.listen(net::socket_base::max_listen_connections, error);
    }
    if (!error) return;
    throw Error(ErrorKind::Config, "ADDRESS", "cannot listen there: " + error.message())
        .in("--host " + options.host + " --port " + std::to_string(options.port))
        .hint("another program may use the port; --port 0 takes a free one");
  }

  void accept() {
    acceptor_.async_accept([this](error_code error, detail::Socket socket) {
      if (shared_->has_ended) return;
      if (error) {
        // No descriptor is left, mostly: some connection will end.
        pause_.expires_after(detail::seconds(0.1));
        pause_.async_wait([this](error_code stopped) {
          if (!stopped && !shared_->has_ended) accept();
        });
        return;
      }
      const auto connection = detail::make_connection(shared_, std::move(socket));
      const bool is_full = std::ssize(shared_->connections) >= shared_->options.max_connections;
      shared_->connections.insert(connection);
      if (is_full) {
        connection->refuse(503, "the server has too many connections");
      } else {
        connection->start();
      }
      accept();
    });
  }

  const std::shared_ptr<detail::Shared> shared_;
  net::basic_socket_acceptor<net::ip::tcp, detail::Executor> acceptor_;
  detail::Timer pause_;
  std::thread thread_;
};

HttpServer::HttpServer(const HttpOptions& options, HeadCheck check, Handler handle)
    : impl_(std::make_unique<Impl>(options, std::move(check), std::move(handle))) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->port(); }
int64_t HttpServer::num_open() const { return impl_->num_open(); }

}  // namespace tessera::serving

// A server that answers requests by HTTP on this machine, as a test says.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <netinet/in.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <unistd.h>

namespace tessera::testing {

struct FakeRequest {
  std::string method;
  std::string path;                            // with its query
  std::map<std::string, std::string> headers;  // by their names in lower case
  std::string body;

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

struct FakeReply {
  int status = 200;
  std::string body;
  std::map<std::string, std::string> headers;
  int64_t cut_after = -1;  // the connection ends after so many bytes of the body; -1 = after all
  bool is_silent = false;  // nothing is sent at all
  bool is_cut = false;     // the connection ends without an answer
};

// Answers each connection once, on a thread of its own.
class FakeServer {
 public:
  using Answer = std::function<FakeReply(const FakeRequest&)>;

  explicit FakeServer(Answer answer) : answer_(std::move(answer)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    if (listener_ < 0 || bind(listener_, name, length) != 0 || listen(listener_, 64) != 0 ||
        getsockname(listener_, name, &length) != 0)
      throw std::runtime_error("no socket for the fake server");
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { accept_all(); });
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;
  ~FakeServer() {
    has_ended_ = true;
    thread_.join();
    for (std::thread& each : connections_) each.join();
    close(listener_);
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<FakeRequest> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  bool is_ready(int socket) const {
    pollfd waited = {socket, POLLIN, 0};
    while (!has_ended_) {
      if (poll(&waited, 1, 5) > 0) return true;
    }
    return false;
  }

  void accept_all() {
    while (is_ready(listener_)) {
      const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket >= 0) connections_.emplace_back([this, socket] { serve(socket); });
    }
  }

  void serve(int socket) {
    std::string text;
    char block[4096];
    while (text.find("\r\n\r\n") == std::string::npos && is_ready(socket)) {
      const ssize_t count = recv(socket, block, sizeof block, 0);
      if (count <= 0) break;
      text.append(block, static_cast<size_t>(count));
    }
    // A client that gives up leaves no whole request.
    if (text.find("\r\n\r\n") == std::string::npos) {
      close(socket);
      return;
    }
    FakeRequest request = parse(text);
    read_body(socket, text, request);
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    const FakeReply reply = answer_(request);
    if (reply.is_silent) {
      while (!has_ended_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    } else if (!reply.is_cut) {
      send_reply(socket, reply);
    }
    close(socket);
  }

  // Takes the body of a request whose head stands in `text`, with what has come behind it.
  void read_body(int socket, const std::string& text, FakeRequest& request) const {
    const std::string length = request.header("content-length");
    const size_t size = length.empty() ? 0 : std::stoul(length), head = text.find("\r\n\r\n");
    if (size == 0 || head == std::string::npos) return;
    request.body = text.substr(head + 4);
    char block[65536];
    while (request.body.size() < size && is_ready(socket)) {
      const ssize_t count = recv(socket, block, sizeof block, 0);
      if (count <= 0) break;
      request.body.append(block, static_cast<size_t>(count));
    }
  }

  static FakeRequest parse(const std::string& text) {
    FakeRequest request;
    const size_t path = text.find(' ') + 1;
    request.method = text.substr(0, path == 0 ? 0 : path - 1);
    request.path = text.substr(path, text.find(' ', path) - path);
    for (size_t begin = text.find("\r\n"); begin != std::string::npos && begin + 2 < text.size();) {
      begin += 2;
      const size_t end = text.find("\r\n", begin), colon = text.find(':', begin);
      if (end == std::string::npos || colon == std::string::npos || colon > end) break;
      std::string name = text.substr(begin, colon - begin);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      request.headers[name] = text.substr(colon + 2, end - colon - 2);
      begin = end;
    }
    return request;
  }

  static void send_reply(int socket, const FakeReply& reply) {
    std::string text = "HTTP/1.1 " + std::to_string(reply.status) + " x\r\nConnection: close\r\n";
    for (const auto& [name, value] : reply.headers) text += name + ": " + value + "\r\n";
    text += "Content-Length: " + std::to_string(reply.body.size()) + "\r\n\r\n";
    text += reply.cut_after < 0 ? reply.body : reply.body.substr(0, static_cast<size_t>(reply.cut_after));
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t count = send(socket, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;
      sent += static_cast<size_t>(count);
    }
  }

  const Answer answer_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> has_ended_ = false;
  std::mutex mutex_;
  std::vector<FakeRequest> requests_;
  std::vector<std::thread> connections_;
  std::thread thread_;
};

}  // namespace tessera::testing

// A client for tests of the server: it sends any bytes, and reads replies as they come.
#pragma once

#include <cerrno>
#include <cstdint>
#include <map>
#include <netinet/in.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <vector>

#include <nlohmann/json.hpp>
#include <unistd.h>

namespace tessera::testing {

struct HttpAnswer {
  int status = 0;                              // 0: the connection ended without one
  std::map<std::string, std::string> headers;  // by their names in lower case
  std::string body;

  nlohmann::json json() const { return nlohmann::json::parse(body); }
  // Returns what the events of a stream hold, without comments.
  std::vector<std::string> events() const {
    std::vector<std::string> events;
    for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
      const size_t end = body.find("\n\n", at);
      events.push_back(body.substr(at + 6, end - at - 6));
      at = end;
    }
    return events;
  }
};

class HttpClient {
 public:
  explicit HttpClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const timeval limit = {60, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("cannot connect");
  }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  ~HttpClient() { leave(); }

  void leave() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }
  // Returns whether all bytes could be sent.
  bool send(std::string_view bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t count = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return false;
      sent += static_cast<size_t>(count);
    }
    return true;
  }
  // Reads some more bytes; returns false at the end of the connection.
  bool read_more() {
    char block[65536];
    const ssize_t count = recv(socket_, block, sizeof block, 0);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) throw std::runtime_error("no reply in time");
    if (count <= 0) return false;
    text_.append(block, static_cast<size_t>(count));
    return true;
  }
  // Reads until the text that is not taken yet holds this.
  bool read_until(const std::string& part) {
    while (text_.find(part) == std::string::npos) {
      if (!read_more()) return false;
    }
    return true;
  }
  // Reads one reply, whole; `has_body` is false for replies to HEAD.
  HttpAnswer reply(bool has_body = true) {
    HttpAnswer answer;
    if (!read_until("\r\n\r\n")) return answer;
    const size_t end = text_.find("\r\n\r\n");
    const std::string head = text_.substr(0, end + 2);
    text_.erase(0, end + 4);
    answer.status = std::stoi(head.substr(9, 3));
    for (size_t at = head.find("\r\n") + 2; at < head.size();) {
      const size_t next = head.find("\r\n", at), colon = head.find(':', at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      answer.headers[name] = head.substr(colon + 2, next - colon - 2);
      at = next + 2;
    }
    if (!has_body || answer.status == 100) return answer;
    if (answer.headers.contains("content-length")) {
      answer.body = take(std::stoul(answer.headers["content-length"]));
    } else if (answer.headers["transfer-encoding"] == "chunked") {
      while (true) {
        if (!read_until("\r\n")) break;
        const size_t line = text_.find("\r\n"), size = std::stoul(text_.substr(0, line), nullptr, 16);
        text_.erase(0, line + 2);
        answer.body += take(size);
        take(2);
        if (size == 0) break;
      }
    } else {
      while (read_more()) {
      }
      answer.body = std::exchange(text_, {});
    }
    return answer;
  }
  // Returns whether the connection has ended behind what was taken.
  bool is_at_end() { return text_.empty() && !read_more(); }

 private:
  std::string take(size_t size) {
    while (text_.size() < size && read_more()) {
    }
    std::string bytes = text_.substr(0, size);
    text_.erase(0, size);
    return bytes;
  }

  int socket_;
  std::string text_;
};

inline std::string post_text(const std::string& path, const std::string& body,
                             const std::string& headers = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

inline HttpAnswer post(int port, const std::string& path, const nlohmann::json& body,
                       const std::string& headers = "") {
  HttpClient client(port);
  client.send(post_text(path, body.dump(), headers));
  return client.reply();
}

inline HttpAnswer get(int port, const std::string& path, const std::string& headers = "") {
  HttpClient client(port);
  client.send("GET " + path + " HTTP/1.1\r\nHost: test\r\n" + headers + "\r\n");
  return client.reply();
}

}  // namespace tessera::testing

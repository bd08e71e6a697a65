// Reads addresses by HTTP. libcurl, which does the work, is opened at the first request: a program that
// fetches nothing starts without it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::io {

// How long a caller waits between attempts, and how many it makes (http_retries.h).
struct HttpLimits {
  double connect_s = 10;         // for a connection to be made
  double stall_s = 60;           // without any byte of an answer
  int attempts = 6;              // in a row that bring nothing
  int unreachable_attempts = 2;  // in a row in which no connection is made
  double first_pause_s = 1;      // before the second attempt; each later pause is twice as long
  double longest_asked_s = 600;  // pause that a server may ask for
};

// The head of an answer.
struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  // by their names in lower case
  // The body of an answer with another status than 2xx, of which 16 KiB are kept.
  std::string refusal;
  // The pause in seconds that the server asks for; 0 if it asks for none.
  double pause_s = 0;

  bool is_good() const { return status >= 200 && status < 300; }
  std::string header(const std::string& name) const;
  // The status for an error, with the server's words if it gave any: "403: not for you".
  std::string told() const;
};

// An answer that did not come, or not to its end.
struct HttpFault {
  std::string what;
  bool is_unreachable = false;  // no connection was made
  // Set if another attempt would fail too, for example because a certificate is not trusted.
  bool is_final = false;
};

// A request that carries something to the server.
struct HttpSending {
  const char* method = "POST";  // or PUT
  std::string url;
  std::vector<std::string> headers;  // whole lines, as "Content-Type: application/json"
  int64_t num_bytes = 0;             // of the body
  // Fills `to` with `count` bytes of the body from `offset` on. What it throws is thrown by send().
  std::function<void(int64_t offset, char* to, int64_t count)> read;
};

// One connection at a time, which is kept for the next request to the same host. It is used by one thread.
class HttpClient {
 public:
  // The requests end soon once `stop` is true. The token is sent to the host of the first address of a
  // request alone, never to one that the request is redirected to. Throws E-CONFIG-HTTP-LIBRARY without
  // libcurl.
  HttpClient(const HttpLimits& limits, std::string token, const std::atomic<bool>& stop);
  HttpClient(HttpClient&&) noexcept;
  ~HttpClient();

  // Takes a part of the body of an answer with status 2xx, whose head is known by then. What it throws is
  // thrown by get().
  using OnBytes = std::function<void(const HttpAnswer& answer, std::string_view bytes)>;

  // Asks for `url` from byte `offset` on, which the server may pass over (the status is then 200, not 206).
  // Throws HttpFault.
  HttpAnswer get(const std::string& url, int64_t offset, const OnBytes& on_bytes);
  // Sends the request, with the token if the client has one. No redirection is followed: its answer is
  // returned. Throws HttpFault.
  HttpAnswer send(const HttpSending& sending, const OnBytes& on_bytes);

 private:
  class Handle;
  std::unique_ptr<Handle> handle_;
};

// Returns the scheme, host and port of an address.
std::string_view origin_of(std::string_view url);

// Returns the text with all but letters, digits and "-._~" written as %XX; '/' stays where `keeps_slashes`.
std::string url_quoted(std::string_view text, bool keeps_slashes);

}  // namespace tessera::io

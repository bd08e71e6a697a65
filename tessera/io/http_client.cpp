#include "tessera/io/http_client.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <exception>
#include <utility>

// The checks of these macros hold for calls of a linked library alone.
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <nlohmann/json.hpp>

#include "tessera/core/environment.h"
#include "tessera/core/error.h"
#include "tessera/core/shared_library.h"
#include "tessera/core/strings.h"
#include "tessera/core/version.h"
#include "tessera/io/file.h"
#include "tessera/io/json_values.h"

namespace tessera::io {
namespace {

constexpr int kMostRedirections = 10;
constexpr size_t kMostToldBytes = 400;
constexpr size_t kMostRefusalBytes = size_t{16} << 10;

// The functions of libcurl that are called.
struct Curl {
  decltype(&curl_global_init) global_init;
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_easy_reset) easy_reset;
  decltype(&::curl_easy_setopt) setopt;
  decltype(&::curl_easy_perform) perform;
  decltype(&::curl_easy_getinfo) getinfo;
  decltype(&::curl_easy_strerror) strerror;
  decltype(&::curl_slist_append) append;
  decltype(&::curl_slist_free_all) free_all;

  static const Curl& opened() {
    static const Curl curl;
    return curl;
  }

 private:
  Curl() {
    SharedLibrary library({"libcurl.so.4", "libcurl-gnutls.so.4"});
    library.find(global_init, "curl_global_init");
    library.find(easy_init, "curl_easy_init");
    library.find(easy_cleanup, "curl_easy_cleanup");
    library.find(easy_reset, "curl_easy_reset");
    library.find(setopt, "curl_easy_setopt");
    library.find(perform, "curl_easy_perform");
    library.find(getinfo, "curl_easy_getinfo");
    library.find(strerror, "curl_easy_strerror");
    library.find(append, "curl_slist_append");
    library.find(free_all, "curl_slist_free_all");
    if (!library.is_usable() || global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
      throw Error(ErrorKind::Config, "HTTP-LIBRARY",
                  "Tessera cannot ask servers without libcurl: " + library.why_not())
          .hint("apt-get install libcurl4");
    }
  }
};

// Returns the file of certificates that are trusted: the user's, or that of the system's distribution. A
// packaged libcurl knows the place of the distribution alone on which it was built.
std::string certificates() {
  if (const auto own = environment::get("SSL_CERT_FILE")) return *own;
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    if (exists(file)) return file;
  }
  return "";
}

HttpFault fault_of(CURLcode code, const std::string& url, const char* words) {
  HttpFault fault;
  fault.what = std::string(origin_of(url)) + ": " + words;
  fault.is_unreachable = code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
                         code == CURLE_COULDNT_CONNECT;
  constexpr CURLcode kFinal[] = {CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE,
                                 CURLE_UNSUPPORTED_PROTOCOL, CURLE_URL_MALFORMAT, CURLE_OUT_OF_MEMORY};
  fault.is_final = std::find(std::begin(kFinal), std::end(kFinal), code) != std::end(kFinal);
  return fault;
}

// Returns the message of a body such as {"error": {"message": "no"}} or {"error": "no"}; "" if it has none.
std::string words_of_refusal(const std::string& body) {
  const auto value = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  std::string words = text_at(value, "error");
  if (words.empty() && value.is_object() && value.contains("error"))
    words = text_at(value["error"], "message");
  return first_line(words).substr(0, kMostToldBytes);
}

// Returns the pause that a header such as `"api";r=0;t=55` asks for.
double pause_of_rate_limit(const std::string& header) {
  const size_t found = header.find(";t=");
  return found == std::string::npos ? 0.0 : std::max(0.0, std::atof(header.c_str() + found + 3));
}

}  // namespace

std::string_view origin_of(std::string_view url) {
  const size_t host = url.find("://");
  return url.substr(0, host == std::string_view::npos ? host : url.find_first_of("/?#", host + 3));
}

std::string HttpAnswer::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

std::string HttpAnswer::told() const {
  std::string words = header("x-error-message");
  if (words.empty()) words = words_of_refusal(refusal);
  return std::to_string(status) + (words.empty() ? "" : ": " + words);
}

std::string url_quoted(std::string_view text, bool keeps_slashes) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string quoted;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x80 && std::isalnum(byte) != 0) ||
        std::string_view("-._~").find(c) != std::string_view::npos || (keeps_slashes && c == '/')) {
      quoted += c;
    } else {
      quoted += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return quoted;
}

// One handle of libcurl, and the answer that it is reading.
class HttpClient::Handle {
 public:
  Handle(const HttpLimits& limits, std::string token, const std::atomic<bool>& stop)
      : limits_(limits), token_(std::move(token)), stop_(stop), easy_(curl_.easy_init()) {
    TESSERA_ASSERT(easy_ != nullptr, "libcurl gives no handle");
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { curl_.easy_cleanup(easy_); }

  HttpAnswer get(const std::string& first_url, int64_t offset, const OnBytes& on_bytes) {
    on_bytes_ = &on_bytes;
    sending_ = nullptr;
    std::string url = first_url;
    for (int i = 0; i < kMostRedirections; ++i) {
      const std::string next = ask(url, offset, origin_of(url) == origin_of(first_url));
      if (next.empty()) return std::move(answer_);
      // libcurl would read files too, and has no one way in all its versions to be told not to.
      if (!next.starts_with("https://") && (!next.starts_with("http://") || !url.starts_with("http://"))) {
        throw HttpFault{std::string(origin_of(url)) + ": redirects to " + std::string(origin_of(next)) +
                            ", which is not encrypted or not a web address",
                        false, true};
      }
      url = next;
    }
    throw HttpFault{std::string(origin_of(url)) + ": too many redirects", false, true};
  }

  HttpAnswer send(const HttpSending& sending, const OnBytes& on_bytes) {
    on_bytes_ = &on_bytes;
    sending_ = &sending;
    sent_ = 0;
    ask(sending.url, 0, true);
    return std::move(answer_);
  }

 private:
  // Makes one request. Returns the address that it is redirected to, or "".
  std::string ask(const std::string& url, int64_t offset, bool sends_token) {
    answer_ = {};
    thrown_ = nullptr;
    *words_ = '\0';
    curl_.easy_reset(easy_);
    set_options(url, offset);
    curl_slist* headers = nullptr;
    if (sends_token && !token_.empty())
      headers = curl_.append(headers, ("Authorization: Bearer " + token_).c_str());
    if (sending_ != nullptr) headers = set_sending(headers);
    curl_.setopt(easy_, CURLOPT_HTTPHEADER, headers);
    const CURLcode code = curl_.perform(easy_);
    curl_.free_all(headers);
    if (thrown_) std::rethrow_exception(thrown_);
    if (code != CURLE_OK) throw fault_of(code, url, *words_ != '\0' ? words_ : curl_.strerror(code));
    return finish();
  }

  std::string finish() {
    long status = 0;
    curl_.getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
    answer_.status = static_cast<int>(status);
    curl_off_t pause = 0;
    curl_.getinfo(easy_, CURLINFO_RETRY_AFTER, &pause);
    answer_.pause_s = static_cast<double>(pause);
    // Answers of other kinds have this header too, and need no pause.
    if (status == 429)
      answer_.pause_s = std::max(answer_.pause_s, pause_of_rate_limit(answer_.header("ratelimit")));
    const char* next = nullptr;
    if (status >= 300 && status < 400) curl_.getinfo(easy_, CURLINFO_REDIRECT_URL, &next);
    return next == nullptr ? "" : next;
  }

  void set_options(const std::string& url, int64_t offset) {
    const auto set = [&](CURLoption option, auto value) { curl_.setopt(easy_, option, value); };
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_ERRORBUFFER, static_cast<char*>(words_));
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_USERAGENT, agent_.c_str());
    set(CURLOPT_CONNECTTIMEOUT_MS, std::lround(limits_.connect_s * 1e3));
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, std::max(1L, std::lround(limits_.stall_s)));
    set(CURLOPT_BUFFERSIZE, 256L << 10);
    if (!certificates_.empty()) set(CURLOPT_CAINFO, certificates_.c_str());
    // CURLOPT_RESUME_FROM would take an answer with the whole file for an error.
    if (offset > 0) set(CURLOPT_RANGE, (std::to_string(offset) + '-').c_str());
    set(CURLOPT_HEADERFUNCTION, &Handle::on_header);
    set(CURLOPT_HEADERDATA, static_cast<void*>(this));
    set(CURLOPT_WRITEFUNCTION, &Handle::on_body);
    set(CURLOPT_WRITEDATA, static_cast<void*>(this));
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &Handle::on_progress);
    set(CURLOPT_XFERINFODATA, static_cast<void*>(this));
  }

  // Sets the options of sending_. Returns `headers` with its own.
  curl_slist* set_sending(curl_slist* headers) {
    const auto set = [&](CURLoption option, auto value) { curl_.setopt(easy_, option, value); };
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_CUSTOMREQUEST, sending_->method);
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(sending_->num_bytes));
    set(CURLOPT_UPLOAD_BUFFERSIZE, 1L << 20);
    set(CURLOPT_READFUNCTION, &Handle::on_read);
    set(CURLOPT_READDATA, static_cast<void*>(this));
    set(CURLOPT_SEEKFUNCTION, &Handle::on_seek);
    set(CURLOPT_SEEKDATA, static_cast<void*>(this));
    // Else libcurl waits for the server's leave to send, which not every server gives.
    headers = curl_.append(headers, "Expect:");
    for (const std::string& line : sending_->headers) headers = curl_.append(headers, line.c_str());
    return headers;
  }

  static size_t on_read(char* to, size_t, size_t room, void* self) {
    Handle& handle = *static_cast<Handle*>(self);
    const HttpSending& sending = *handle.sending_;
    const int64_t count = std::min(static_cast<int64_t>(room), sending.num_bytes - handle.sent_);
    try {
      if (count > 0) sending.read(handle.sent_, to, count);
      handle.sent_ += count;
      return static_cast<size_t>(count);
    } catch (...) {
      handle.thrown_ = std::current_exception();
      return CURL_READFUNC_ABORT;
    }
  }

  // Goes back to the beginning where libcurl sends the request again over a new connection.
  static int on_seek(void* self, curl_off_t offset, int origin) {
    if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
    static_cast<Handle*>(self)->sent_ = offset;
    return CURL_SEEKFUNC_OK;
  }

  static size_t on_header(char* data, size_t, size_t count, void* self) {
    HttpAnswer& answer = static_cast<Handle*>(self)->answer_;
    std::string_view line(data, count);
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
    // A proxy's answer, and a status that announces another one, have headers of their own.
    if (line.starts_with("HTTP/")) answer.headers.clear();
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return count;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    answer.headers[lower(line.substr(0, colon))] =
        begin == std::string_view::npos ? "" : std::string(line.substr(begin));
    return count;
  }

  static size_t on_body(char* data, size_t, size_t count, void* self) {
    Handle& handle = *static_cast<Handle*>(self);
    try {
      long status = 0;
      handle.curl_.getinfo(handle.easy_, CURLINFO_RESPONSE_CODE, &status);
      handle.answer_.status = static_cast<int>(status);
      if (handle.answer_.is_good()) {
        (*handle.on_bytes_)(handle.answer_, {data, count});
      } else {
        std::string& kept = handle.answer_.refusal;
        kept.append(data, std::min(count, kMostRefusalBytes - kept.size()));
      }
      return count;
    } catch (...) {
      handle.thrown_ = std::current_exception();
      return 0;
    }
  }

  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Handle*>(self)->stop_ ? 1 : 0;
  }

  const Curl& curl_ = Curl::opened();
  const HttpLimits limits_;
  const std::string token_, agent_ = std::string("tessera/") + program_version(),
                            certificates_ = certificates();
  const std::atomic<bool>& stop_;
  char words_[CURL_ERROR_SIZE] = "";  // libcurl writes its errors here for as long as easy_ is open
  CURL* const easy_;
  const OnBytes* on_bytes_ = nullptr;
  const HttpSending* sending_ = nullptr;  // null for a request that carries nothing
  int64_t sent_ = 0;                      // bytes of its body
  HttpAnswer answer_;
  std::exception_ptr thrown_;
};

HttpClient::HttpClient(const HttpLimits& limits, std::string token, const std::atomic<bool>& stop)
    : handle_(std::make_unique<Handle>(limits, std::move(token), stop)) {}
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient::~HttpClient() = default;

HttpAnswer HttpClient::get(const std::string& url, int64_t offset, const OnBytes& on_bytes) {
  return handle_->get(url, offset, on_bytes);
}
HttpAnswer HttpClient::send(const HttpSending& sending, const OnBytes& on_bytes) {
  return handle_->send(sending, on_bytes);
}

}  // namespace tessera::io

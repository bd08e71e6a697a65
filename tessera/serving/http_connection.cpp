#include "tessera/serving/http_connection.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>

#include "tessera/serving/api_error.h"
#include "tessera/serving/http_exchange.h"

namespace tessera::serving::detail {

namespace http = boost::beast::http;

namespace {

constexpr uint32_t kMaxHead = 16 << 10;
constexpr size_t kMaxBuffered = 64 << 10;  // bytes that are read ahead
constexpr double kLinger_s = 2.0;
constexpr int64_t kMostLingering = int64_t{1} << 20;

// A timer of which no call comes that was meant for an earlier setting.
class Alarm {
 public:
  explicit Alarm(net::io_context& io) : timer_(io) {}

  template <class Owner>
  void set(double s, std::shared_ptr<Owner> owner, void (Owner::*then)()) {
    const uint64_t number = ++number_;
    timer_.expires_after(seconds(s));
    timer_.async_wait([this, number, owner, then](error_code error) {
      if (!error && number == number_) ((*owner).*then)();
    });
  }
  void stop() {
    ++number_;
    timer_.cancel();
  }

 private:
  Timer timer_;
  uint64_t number_ = 0;
};

}  // namespace

class HttpConnection : public Connection, public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<Shared> shared, Socket socket)
      : shared_(std::move(shared)),
        socket_(std::move(socket)),
        alarm_(shared_->io),
        stall_(shared_->io),
        ping_(shared_->io) {}

  void start() override {
    error_code ignored;
    socket_.set_option(net::ip::tcp::no_delay(true), ignored);
    wait_for_request();
  }

  void refuse(int status, const std::string& message) override {
    keeps_ = false;
    const ApiError error(status, status >= 500 ? "unavailable_error" : "invalid_request_error", message);
    HttpReply reply{status, error.body()};
    if (error.may_retry()) reply.headers.emplace_back("Retry-After", "1");
    put(head_of(reply, /*sends_length=*/true) + reply.body);
    is_complete_ = true;
    write();
  }

  void close() override {
    alarm_.stop();
    stall_.stop();
    ping_.stop();
    error_code ignored;
    socket_.close(ignored);
    if (current_ != nullptr) {
      const auto exchange = std::exchange(current_, nullptr);
      exchange->connection_ = nullptr;
      exchange->is_gone_ = true;
      --shared_->num_open;
      if (exchange->on_gone_) std::exchange(exchange->on_gone_, nullptr)();
    }
    shared_->connections.erase(shared_from_this());
  }

  void reply(const HttpReply& reply) override {
    put(head_of(reply, /*sends_length=*/true));
    if (!is_head_) put(reply.body);
    is_complete_ = true;
    write();
  }

  void begin_events(const HttpReply& reply) override {
    is_stream_ = true;
    put(head_of(reply, /*sends_length=*/false));
    ping_.set(shared_->options.keep_alive_s, shared_from_this(), &HttpConnection::ping);
    write();
  }

  void send_chunk(const std::string& data) override {
    put_chunk(data);
    ping_.set(shared_->options.keep_alive_s, shared_from_this(), &HttpConnection::ping);
    write();
  }

  void end_events() override {
    ping_.stop();
    if (is_chunked_) put("0\r\n\r\n");
    is_complete_ = true;
    write();
  }

 private:
  // [Note: who reads] At most one read is under way at any time. While a reply is made, watch() reads, so
  // that a client that goes away is noticed. What it reads otherwise is the beginning of the next request,
  // which waits in the buffer; then nothing watches until the reply is complete. A watch that is still under
  // way when the reply is complete becomes the wait for the next request.

  void wait_for_request() {
    if (!keeps_) return linger();
    alarm_.set(shared_->options.idle_s, shared_from_this(), &HttpConnection::close);
    if (buffer_.size() > 0) return read_head();
    state_ = State::Idle;
    watch();
  }

  void watch() {
    if (is_watching_ || buffer_.size() > 0) return;
    is_watching_ = true;
    socket_.async_read_some(buffer_.prepare(4096),
                            [self = shared_from_this()](error_code error, size_t count) {
                              self->is_watching_ = false;
                              if (error) return self->close();
                              if (self->state_ == State::Lingering) return self->linger_on(count);
                              self->buffer_.commit(count);
                              if (self->state_ == State::Idle) self->read_head();
                            });
  }

  void read_head() {
    state_ = State::Reading;
    parser_.emplace();
    parser_->header_limit(kMaxHead);
    parser_->body_limit(static_cast<uint64_t>(shared_->options.max_body));
    is_late_ = false;
    alarm_.set(shared_->options.header_s, shared_from_this(), &HttpConnection::be_late);
    http::async_read_header(socket_, buffer_, *parser_,
                            [self = shared_from_this()](error_code error, size_t) {
                              self->alarm_.stop();
                              if (error) return self->fail(error, "the head of the request");
                              self->take_head();
                            });
  }

  void be_late() {
    is_late_ = true;
    error_code ignored;
    socket_.cancel(ignored);
  }

  // Answers a request that could not be read, or ends the connection where nobody waits for an answer.
  void fail(error_code error, const std::string& what) {
    if (is_late_) return refuse(408, what + " did not come in time");
    if (error == http::error::header_limit || error == http::error::buffer_overflow)
      return refuse(431, "the head of the request is larger than " + std::to_string(kMaxHead) + " bytes");
    if (error == http::error::body_limit) {
      return refuse(413, "the body of the request is larger than " +
                             std::to_string(shared_->options.max_body) + " bytes");
    }
    if (error.category() != http::make_error_code(http::error::end_of_stream).category() ||
        error == http::error::end_of_stream)
      return close();
    refuse(400, "the request is no valid HTTP: " + error.message());
  }

  void take_head() {
    const auto& message = parser_->get();
    HttpRequest request;
    request.method = std::string(message.method_string());
    const std::string target(message.target());
    const size_t mark = target.find('?');
    request.path = target.substr(0, mark);
    if (mark != std::string::npos) request.query = target.substr(mark + 1);
    for (const auto& field : message) {
      std::string name(field.name_string());
      std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
      request.headers[name] = std::string(field.value());
    }
    is_head_ = request.method == "HEAD";
    is_modern_ = message.version() == 11;
    keeps_ = message.keep_alive() && !shared_->has_ended;
    if (message.version() != 11 && message.version() != 10)
      return refuse(505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    if (target.empty() || target[0] != '/') return refuse(400, "the request's target is no path");
    const std::string coding = request.header("transfer-encoding");
    if (!coding.empty() && !boost::beast::iequals(coding, "chunked"))
      return refuse(501, "the transfer encoding is not supported; send chunked, or Content-Length");
    if (auto reply = shared_->check(request)) {
      // The body is not read, so nothing behind it can be either.
      if (!parser_->is_done()) keeps_ = false;
      request_ = std::move(request);
      begin_exchange();
      return this->reply(*reply);
    }
    request_ = std::move(request);
    if (parser_->is_done()) return take_request();
    const auto length = parser_->content_length();
    const int64_t size = length ? static_cast<int64_t>(*length) : shared_->options.max_body;
    if (room_ = shared_->room_of(size); *shared_->body_bytes > shared_->options.max_bodies()) {
      room_.reset();
      return refuse(503, "the server has too many large requests to read this one now");
    }
    alarm_.set(shared_->options.body_s, shared_from_this(), &HttpConnection::be_late);
    if (is_modern_ && boost::beast::iequals(request_.header("expect"), "100-continue")) {
      net::async_write(socket_, net::buffer(kContinue),
                       [self = shared_from_this()](error_code error, size_t) {
                         if (error) return self->close();
                         self->read_body();
                       });
    } else {
      read_body();
    }
  }

  void read_body() {
    http::async_read(socket_, buffer_, *parser_, [self = shared_from_this()](error_code error, size_t) {
      self->alarm_.stop();
      if (error) return self->fail(error, "the body of the request");
      self->request_.body = std::move(self->parser_->get().body());
      self->room_ = self->shared_->room_of(std::ssize(self->request_.body));
      self->take_request();
    });
  }

  void begin_exchange() {
    state_ = State::Handling;
    is_complete_ = is_stream_ = is_chunked_ = false;
    current_ = std::make_shared<Exchange>(shared_, shared_from_this(), std::move(request_), std::move(room_));
    parser_.reset();
    ++shared_->num_open;
  }

  void take_request() {
    begin_exchange();
    watch();
    shared_->handle(current_);
  }

  std::string head_of(const HttpReply& reply, bool sends_length) {
    std::string head = std::string(is_modern_ ? "HTTP/1.1 " : "HTTP/1.0 ") + std::to_string(reply.status) +
                       " " + status_words(reply.status) + "\r\nContent-Type: " + reply.content_type + "\r\n";
    for (const auto& [name, value] : reply.headers)
      head.append(name).append(": ").append(value).append("\r\n");
    is_chunked_ = !sends_length && is_modern_;
    if (sends_length) head += "Content-Length: " + std::to_string(reply.body.size()) + "\r\n";
    if (is_chunked_) head += "Transfer-Encoding: chunked\r\n";
    if (!sends_length && !is_chunked_) keeps_ = false;
    head += keeps_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
    return head;
  }

  void put(std::string_view bytes) { out_.append(bytes); }
  void put_chunk(const std::string& data) {
    if (!is_chunked_) return put(data);
    char size[24];
    std::snprintf(size, sizeof size, "%zx\r\n", data.size());
    put(size);
    put(data);
    put("\r\n");
  }

  void ping() { send_chunk(": keep-alive\n\n"); }

  void write() {
    if (is_writing_) return;
    if (out_.empty()) return have_written();
    is_writing_ = true;
    in_flight_ = std::exchange(out_, {});
    sent_ = 0;
    write_some();
  }

  void write_some() {
    stall_.set(shared_->options.stall_s, shared_from_this(), &HttpConnection::close);
    socket_.async_write_some(net::buffer(in_flight_.data() + sent_, in_flight_.size() - sent_),
                             [self = shared_from_this()](error_code error, size_t count) {
                               if (error) return self->close();
                               self->sent_ += count;
                               if (self->sent_ < self->in_flight_.size()) return self->write_some();
                               self->have_written();
                             });
  }

  void have_written() {
    stall_.stop();
    is_writing_ = false;
    if (current_ != nullptr && is_stream_)
      current_->unsent_ -= std::min<int64_t>(current_->unsent_, std::ssize(in_flight_));
    in_flight_.clear();
    if (!out_.empty()) return write();
    if (!std::exchange(is_complete_, false)) return;
    if (current_ != nullptr) {
      current_->connection_ = nullptr;
      current_->on_gone_ = nullptr;
      current_ = nullptr;
      --shared_->num_open;
    }
    wait_for_request();
  }

  // Ends the connection so that the client gets the last reply: bytes that it has sent and nobody has read
  // would make the system drop that.
  void linger() {
    state_ = State::Lingering;
    error_code ignored;
    socket_.shutdown(net::ip::tcp::socket::shutdown_send, ignored);
    alarm_.set(kLinger_s, shared_from_this(), &HttpConnection::close);
    buffer_.clear();
    watch();
  }
  void linger_on(size_t count) {
    lingered_ += static_cast<int64_t>(count);
    if (lingered_ > std::max(kMostLingering, shared_->options.max_body)) return close();
    watch();
  }

  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  enum class State { Idle, Reading, Handling, Lingering };

  const std::shared_ptr<Shared> shared_;
  Socket socket_;
  Alarm alarm_, stall_, ping_;
  boost::beast::flat_buffer buffer_{kMaxBuffered};
  std::optional<http::request_parser<http::string_body>> parser_;
  State state_ = State::Idle;
  HttpRequest request_;
  BodyRoom room_;  // of a body that is being read
  std::shared_ptr<Exchange> current_;
  std::string out_, in_flight_;
  size_t sent_ = 0;
  int64_t lingered_ = 0;
  bool keeps_ = true, is_modern_ = true, is_head_ = false, is_late_ = false;
  bool is_watching_ = false, is_writing_ = false;
  bool is_complete_ = false;  // all of the reply stands in out_
  bool is_stream_ = false, is_chunked_ = false;
};

std::shared_ptr<Connection> make_connection(std::shared_ptr<Shared> shared, Socket socket) {
  return std::make_shared<HttpConnection>(std::move(shared), std::move(socket));
}

}  // namespace tessera::serving::detail

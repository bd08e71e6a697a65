#include "tessera/serving/http_server.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "tessera/core/error.h"

#include "tests/testing/http_client.h"

namespace tessera::serving {
namespace {

using std::chrono::milliseconds;
using testing::HttpAnswer;
using testing::HttpClient;

template <class Condition>
bool comes_true(Condition condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return condition();
}

// A server that tells each request back: method, path, query and body. /hold keeps the exchange, /open begins
// an event stream and keeps it; the head of /no is refused.
class HttpServerTest : public ::testing::Test {
 protected:
  void start(HttpOptions options = {}) {
    server_ = std::make_unique<HttpServer>(
        options,
        [](const HttpRequest& head) -> std::optional<HttpReply> {
          if (head.path != "/no") return std::nullopt;
          return HttpReply{401, "no"};
        },
        [this](std::shared_ptr<HttpExchange> exchange) {
          const HttpRequest& request = exchange->request();
          if (request.path == "/hold" || request.path == "/open") {
            if (request.path == "/open") exchange->begin_events({});
            exchange->when_gone([this] { ++num_gone_; });
            held_ = std::move(exchange);
            has_held_ = true;
            return;
          }
          exchange->reply({200,
                           request.method + " " + request.path + " " + request.query + " " + request.body,
                           "text/plain",
                           {}});
        });
  }
  void TearDown() override {
    server_.reset();
    held_.reset();
  }
  HttpAnswer ask(const std::string& text) const {
    HttpClient client(server_->port());
    client.send(text);
    return client.reply();
  }

  std::unique_ptr<HttpServer> server_;
  std::shared_ptr<HttpExchange> held_;
  std::atomic<bool> has_held_ = false;
  std::atomic<int> num_gone_ = 0;
};

TEST_F(HttpServerTest, KeepsAConnectionAndReadsBodiesOfBothKinds) {
  start();
  HttpClient client(server_->port());
  // The second request comes with the first.
  client.send("POST /a?x=1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.reply().body, "POST /a x=1 abc");
  EXPECT_EQ(client.reply().body, "GET /b  ");
  client.send("POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
  client.send("1;note=x\r\nc\r\n0\r\n\r\n");
  EXPECT_EQ(client.reply().body, "POST /c  abc");
  client.send("POST /d HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.reply().status, 100);
  client.send("ok");
  EXPECT_EQ(client.reply().body, "POST /d  ok");
  client.send("HEAD /e HTTP/1.1\r\n\r\n");
  const HttpAnswer head = client.reply(/*has_body=*/false);
  EXPECT_EQ(head.headers.at("content-length"), "9");
  client.send("GET /f HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.reply().body, "GET /f  ");
  EXPECT_TRUE(client.is_at_end());
  EXPECT_EQ(ask("GET /g HTTP/1.0\r\n\r\n").body, "GET /g  ");
}

TEST_F(HttpServerTest, RefusesBrokenAndSmuggledRequests) {
  start({.max_body = 1000});
  const std::string big(20000, 'a');
  struct Case {
    const char* what;
    std::string text;
    int status;
  };
  const Case cases[] = {
      {"no HTTP", "hello\r\n\r\n", 400},
      {"both lengths", "POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       400},
      {"both lengths, the other way",
       "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", 400},
      {"two lengths", "POST / HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", 400},
      {"a list of lengths", "POST / HTTP/1.1\r\nContent-Length: 4, 5\r\n\r\nabcde", 400},
      {"a length with a sign", "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400},
      {"a length with a plus", "POST / HTTP/1.1\r\nContent-Length: +3\r\n\r\nabc", 400},
      {"a huge length", "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400},
      {"a coding before chunked", "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
       501},
      {"a coding that is not chunked", "POST / HTTP/1.1\r\nTransfer-Encoding: identity\r\n\r\n", 501},
      {"a space before the colon", "POST / HTTP/1.1\r\nContent-Length : 3\r\n\r\nabc", 400},
      {"a line that ends in LF", "GET / HTTP/1.1\nHost: x\n\n", 400},
      {"a negative chunk", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", 400},
      {"a huge chunk", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 400},
      {"a large body", "POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", 413},
      {"a large body in chunks",
       "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n200\r\n" + std::string(512, 'a') +
           "\r\n200\r\n" + std::string(512, 'a') + "\r\n0\r\n\r\n",
       413},
      {"a large head", "GET / HTTP/1.1\r\nA: " + big + "\r\n\r\n", 431},
      {"a long target", "GET /" + big + " HTTP/1.1\r\n\r\n", 431},
      {"a target that is no path", "GET http://elsewhere/ HTTP/1.1\r\n\r\n", 400},
      {"another version", "GET / HTTP/3.0\r\n\r\n", 400},
      {"an unread body", "POST /no HTTP/1.1\r\nContent-Length: 900\r\n\r\nabc", 401},
  };
  for (const Case& each : cases) {
    HttpClient client(server_->port());
    // A request that is smuggled behind it must never be answered.
    client.send(each.text);
    client.send("GET /smuggled HTTP/1.1\r\n\r\n");
    const HttpAnswer answer = client.reply();
    EXPECT_EQ(answer.status, each.status) << each.what << ": " << answer.body;
    EXPECT_TRUE(client.is_at_end()) << each.what;
  }
  EXPECT_EQ(ask("GET /after HTTP/1.1\r\n\r\n").body, "GET /after  ");
  EXPECT_TRUE(comes_true([&] { return server_->num_open() == 0; }));
}

TEST_F(HttpServerTest, AllBodiesTogetherAreBounded) {
  const HttpOptions options{.max_body = 100 << 10};
  start(options);
  const std::string whole(static_cast<size_t>(options.max_body), 'a');
  const auto head_of = [](size_t size) {
    return "POST /hold HTTP/1.1\r\nContent-Length: " + std::to_string(size) + "\r\n\r\n";
  };
  // One body is there and its reply is waited for; of the others only the heads have come.
  HttpClient held(server_->port());
  held.send(head_of(whole.size()) + whole);
  ASSERT_TRUE(comes_true([&] { return has_held_.load(); }));
  std::vector<std::unique_ptr<HttpClient>> slow;
  for (int64_t used = options.max_body; used < options.max_bodies(); used += options.max_body) {
    slow.push_back(std::make_unique<HttpClient>(server_->port()));
    slow.back()->send(head_of(whole.size()) + "a");
  }
  const auto is_refused = [&](const std::string& head) {
    HttpClient client(server_->port());
    client.send(head);
    client.send(whole);
    const HttpAnswer answer = client.reply();
    if (answer.status != 503) return false;
    EXPECT_EQ(answer.headers.at("retry-after"), "1");
    return true;
  };
  const std::string large =
      "POST /a HTTP/1.1\r\nContent-Length: " + std::to_string(whole.size()) + "\r\n\r\n";
  EXPECT_TRUE(comes_true([&] { return is_refused(large); }));
  EXPECT_TRUE(is_refused("POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"));
  EXPECT_EQ(ask("POST /small HTTP/1.1\r\nContent-Length: 1\r\n\r\nb").body, "POST /small  b");
  // Room comes from a client that leaves, and from a reply that is complete.
  slow.pop_back();
  EXPECT_TRUE(comes_true([&] { return !is_refused(large); }));
  slow.push_back(std::make_unique<HttpClient>(server_->port()));
  slow.back()->send(head_of(whole.size()));
  EXPECT_TRUE(comes_true([&] { return is_refused(large); }));
  held_->reply({200, "done"});
  EXPECT_EQ(held.reply().body, "done");
  held_.reset();
  EXPECT_TRUE(comes_true([&] { return !is_refused(large); }));
}

TEST_F(HttpServerTest, SlowClientsAreCutAndOthersAreAnswered) {
  start({.header_s = 0.3, .body_s = 0.3, .idle_s = 0.3});
  HttpClient slow_head(server_->port()), slow_body(server_->port()), idle(server_->port());
  slow_head.send("GET /a HT");
  slow_body.send("POST /a HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(ask("GET /b HTTP/1.1\r\n\r\n").body, "GET /b  ");
  const HttpAnswer head = slow_head.reply(), body = slow_body.reply();
  EXPECT_EQ(head.status, 408);
  EXPECT_EQ(head.json().at("error").at("message"), "the head of the request did not come in time");
  EXPECT_EQ(body.status, 408);
  EXPECT_TRUE(idle.is_at_end());
}

TEST_F(HttpServerTest, EventsComeAsTheyAreSentAndKeepTheStreamAlive) {
  start({.keep_alive_s = 0.1});
  HttpClient client(server_->port());
  client.send("GET /open HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(client.read_until(": keep-alive\n\n"));
  held_->send_event("{\"a\": 1}");
  ASSERT_TRUE(client.read_until("{\"a\": 1}"));
  held_->send_event("[DONE]");
  held_->end_events();
  const HttpAnswer answer = client.reply();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(answer.events(), (std::vector<std::string>{"{\"a\": 1}", "[DONE]"}));
  client.send("GET /next HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.reply().body, "GET /next  ");
  EXPECT_EQ(num_gone_, 0);
  // An old client gets the events without chunks, up to the end of the connection.
  has_held_ = false;
  HttpClient old(server_->port());
  old.send("GET /open HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(comes_true([&] { return has_held_.load(); }));
  held_->send_event("x");
  held_->end_events();
  EXPECT_EQ(old.reply().events(), std::vector<std::string>{"x"});
}

TEST_F(HttpServerTest, AClientThatLeavesIsNoticed) {
  start();
  for (const char* path : {"/hold", "/open"}) {
    has_held_ = false;
    num_gone_ = 0;
    HttpClient client(server_->port());
    client.send(std::string("GET ") + path + " HTTP/1.1\r\n\r\n");
    ASSERT_TRUE(comes_true([&] { return has_held_.load(); }));
    EXPECT_EQ(server_->num_open(), 1);
    client.leave();
    EXPECT_TRUE(comes_true([&] { return num_gone_ == 1; })) << path;
    EXPECT_EQ(server_->num_open(), 0);
    // Events to nobody are dropped, and who asks late is told at once.
    held_->send_event("x");
    held_->when_gone([this] { ++num_gone_; });
    EXPECT_TRUE(comes_true([&] { return num_gone_ == 2; })) << path;
  }
}

// The engine may end an answer after the server has ended. The sanitizer's build tells whether what is sent
// then is kept for ever.
TEST_F(HttpServerTest, AnExchangeOutlivesTheServer) {
  start();
  HttpClient client(server_->port());
  client.send("GET /open HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(comes_true([&] { return has_held_.load(); }));
  std::atomic<bool> ends = false;
  std::thread sender([&, exchange = held_] {
    while (!ends) {
      exchange->send_event("x");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    exchange->end_events();
  });
  server_.reset();
  EXPECT_EQ(num_gone_, 1);
  held_->when_gone([this] { ++num_gone_; });
  EXPECT_EQ(num_gone_, 2);
  ends = true;
  sender.join();
}

TEST_F(HttpServerTest, AStreamWhoseReaderStallsIsCut) {
  const std::string block(100000, 'x');
  // One bound is the bytes that wait, the other the time in which none is taken.
  for (const HttpOptions& options : {HttpOptions{.stall_s = 60, .max_unsent = 1 << 20},
                                     HttpOptions{.stall_s = 0.3, .max_unsent = int64_t{1} << 40}}) {
    start(options);
    has_held_ = false;
    num_gone_ = 0;
    HttpClient client(server_->port());
    client.send("GET /open HTTP/1.1\r\n\r\n");
    ASSERT_TRUE(comes_true([&] { return has_held_.load(); }));
    for (int i = 0; i < 200; ++i) held_->send_event(block);
    EXPECT_TRUE(comes_true([&] { return num_gone_ == 1; }));
  }
}

TEST_F(HttpServerTest, MoreConnectionsThanAllowedAreRefused) {
  start({.max_connections = 3});
  {
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 3; ++i) {
      clients.push_back(std::make_unique<HttpClient>(server_->port()));
      clients.back()->send("GET /a HTTP/1.1\r\n\r\n");
      EXPECT_EQ(clients.back()->reply().status, 200);
    }
    EXPECT_EQ(ask("GET /a HTTP/1.1\r\n\r\n").status, 503);
  }
  EXPECT_TRUE(comes_true([&] { return ask("GET /a HTTP/1.1\r\n\r\n").status == 200; }));
}

TEST_F(HttpServerTest, AnAddressInUseIsRefused) {
  start();
  try {
    const HttpServer other({.port = server_->port()}, nullptr, nullptr);
    FAIL() << "two servers listen at one port";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-CONFIG-ADDRESS");
  }
}

}  // namespace
}  // namespace tessera::serving

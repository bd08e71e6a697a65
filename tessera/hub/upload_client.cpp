#include "tessera/hub/upload_client.h"

#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/hub/retries.h"
#include "tessera/io/json_file.h"

namespace tessera::hub {
namespace {

constexpr size_t kMaxReplyBytes = size_t{64} << 20;
constexpr int kMostMoves = 5;

// Returns the address on the same host that a repository of another name by now has moved to; else "".
std::string moved_to(const io::HttpAnswer& head, const std::string& url) {
  if (head.status != 307 && head.status != 308) return "";
  const std::string place = head.header("location"), origin(io::origin_of(url));
  if (place.starts_with('/') && !place.starts_with("//")) return origin + place;
  return io::origin_of(place) == origin ? place : "";
}

}  // namespace

Error upload_answer_error(const std::string& what) {
  return Error(ErrorKind::Storage, "HUB-ANSWER", endpoint() + " does not answer an upload as a hub: " + what)
      .hint("HF_ENDPOINT names the hub");
}

nlohmann::json UploadClient::Reply::json() const {
  return io::parse_json(text, endpoint(), ErrorKind::Storage);
}

UploadClient::UploadClient(const UploadTarget& target, const Limits& limits, const std::atomic<bool>& stop)
    : target_(target),
      limits_(limits),
      stop_(stop),
      hub_(endpoint()),
      hub_client_(limits, token(), stop),
      storage_client_(limits, "", stop) {}

io::HttpClient& UploadClient::client_for(const std::string& url) {
  const bool is_encrypted = url.starts_with("https://");
  if (!is_encrypted && (hub_.starts_with("https://") || !url.starts_with("http://")))
    throw upload_answer_error("it names " + std::string(io::origin_of(url)) +
                              " to send to, without encryption");
  return io::origin_of(url) == io::origin_of(hub_) ? hub_client_ : storage_client_;
}

UploadClient::Reply UploadClient::ask(const std::string& what, const io::HttpSending& sending) {
  io::HttpClient& client = client_for(sending.url);
  Retries retries(limits_, target_.shown() + ": " + what, stop_, Way::Up);
  Reply reply;
  reply.head = retries.ask([&] {
    reply.text.clear();
    return client.send(sending, [&](const io::HttpAnswer&, std::string_view bytes) {
      if (reply.text.size() + bytes.size() > kMaxReplyBytes)
        throw upload_answer_error("an answer without an end");
      reply.text += bytes;
    });
  });
  return reply;
}

UploadClient::Reply UploadClient::post(const std::string& what, const std::string& url,
                                       const std::string& body, const std::string& type) {
  io::HttpSending sending;
  sending.url = url;
  sending.headers = {"Content-Type: " + type};
  if (type == kLfsType) sending.headers.push_back("Accept: " + type);
  sending.num_bytes = std::ssize(body);
  sending.read = [&](int64_t offset, char* to, int64_t count) {
    std::memcpy(to, body.data() + offset, static_cast<size_t>(count));
  };
  for (int i = 0; i < kMostMoves; ++i) {
    Reply reply = ask(what, sending);
    const std::string next = moved_to(reply.head, sending.url);
    if (next.empty()) return reply;
    sending.url = next;
  }
  throw upload_answer_error("it redirects without an end");
}

void UploadClient::check_stop() const {
  if (stop_)
    throw Error(ErrorKind::Storage, "HUB-BROKEN", "cannot upload " + target_.shown() + ": interrupted");
}

io::HttpAnswer UploadClient::put(const std::string& what, io::HttpSending sending) {
  sending.method = "PUT";
  return ask(what, sending).head;
}

}  // namespace tessera::hub

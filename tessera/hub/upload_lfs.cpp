#include "tessera/hub/upload_lfs.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/io/file.h"
#include "tessera/io/json_values.h"

namespace tessera::hub {
namespace {

using nlohmann::json;

constexpr int kUploadAttempts = 3;  // from the first byte on, each with new addresses

const json& object_at(const json& parent, const char* key) {
  static const json kNone = json::object();
  const auto found = parent.is_object() ? parent.find(key) : parent.end();
  return found != parent.end() && found->is_object() ? *found : kNone;
}

// Returns a number that the hub writes as such or as a text; 0 for anything else.
int64_t number_of(const json& value) {
  if (value.is_number_integer()) return io::integer_of(value).value_or(0);
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  int64_t number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  return fault == std::errc() && end == text.data() + text.size() ? number : 0;
}

// Returns the address in an answer of the hub; a mirror passes on those that name the hub itself, and takes
// their requests, too.
std::string address_at(const json& action) {
  constexpr std::string_view kHub = "https://huggingface.co/";
  const std::string url = io::text_at(action, "href");
  return url.starts_with(kHub) ? endpoint() + url.substr(kHub.size() - 1) : url;
}

// The hub's answer: where and how a file is sent.
struct PutOrder {
  bool is_there = false;  // the hub has the contents
  std::string url;        // the place of the whole file, or the one that joins the parts
  std::vector<std::string> headers;
  int64_t part_bytes = 0;  // 0 = it is put whole
  std::vector<std::string> part_urls;
  std::string verify_url;  // "" = nothing to verify
};

void read_header(const json& header, const LocalFile& file, PutOrder& order) {
  std::map<int64_t, std::string> parts;
  for (const auto& [name, value] : header.items()) {
    const bool is_number = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    if (name == "chunk_size") {
      order.part_bytes = number_of(value);
      if (order.part_bytes <= 0) throw upload_answer_error("it gives no size of parts");
    } else if (is_number && value.is_string()) {
      parts[number_of(name)] = value.get<std::string>();
    } else if (value.is_string()) {
      order.headers.push_back(name + ": " + value.get<std::string>());
    }
  }
  if (order.part_bytes == 0) return;
  order.headers.clear();
  for (auto& [number, url] : parts) order.part_urls.push_back(std::move(url));
  const int64_t need = (file.size + order.part_bytes - 1) / order.part_bytes;
  if (std::ssize(order.part_urls) != need) {
    throw upload_answer_error("it gives addresses for " + std::to_string(order.part_urls.size()) +
                              " parts of " + file.name + ", not " + std::to_string(need));
  }
}

PutOrder read_order(const json& answer, const LocalFile& file, const std::string& sha256) {
  const auto objects = answer.is_object() ? answer.find("objects") : answer.end();
  if (objects == answer.end() || !objects->is_array() || objects->size() != 1 ||
      io::text_at(objects->front(), "oid") != sha256)
    throw upload_answer_error("it does not mention " + file.name);
  const json& object = objects->front();
  if (object.contains("error")) {
    const json& error = object_at(object, "error");
    throw Error(ErrorKind::Config, "HUB-REFUSED", endpoint() + " refused " + file.name)
        .got((error.contains("code") ? error["code"].dump() + ": " : "") + io::text_at(error, "message"));
  }
  const json& actions = object_at(object, "actions");
  const json& upload = object_at(actions, "upload");
  PutOrder order;
  order.is_there = upload.empty();
  if (order.is_there) return order;
  order.url = address_at(upload);
  order.verify_url = address_at(object_at(actions, "verify"));
  read_header(object_at(upload, "header"), file, order);
  return order;
}

// Counts the bytes that are sent of one file; an attempt that begins again takes its bytes back.
class SentBytes {
 public:
  explicit SentBytes(Progress& progress) : progress_(progress) {}
  void set(int64_t bytes) { progress_.add(bytes - std::exchange(bytes_, bytes)); }

 private:
  Progress& progress_;
  int64_t bytes_ = 0;
};

// One attempt to upload the file. Methods that send return what is wrong, or "".
class Attempt {
 public:
  Attempt(UploadClient& client, const LocalFile& file, std::string sha256, SentBytes& sent)
      : client_(client), file_(file), sha256_(std::move(sha256)), sent_(sent) {}

  std::string run() {
    const PutOrder order = ask();
    std::string fault;
    if (!order.is_there) {
      opened_ = io::File::open(file_.path);
      fault = order.part_bytes > 0 ? put_parts(order) : put_whole(order);
      if (fault.empty() && !order.verify_url.empty()) fault = verify(order.verify_url);
    }
    if (fault.empty()) sent_.set(file_.size);
    return fault;
  }

 private:
  PutOrder ask() {
    const UploadTarget& target = client_.target();
    const json object = {{"oid", sha256_}, {"size", file_.size}};
    const json question = {{"operation", "upload"},
                           {"transfers", json::array({"basic", "multipart"})},
                           {"objects", json::array({object})},
                           {"hash_algo", "sha256"},
                           {"ref", {{"name", target.wanted()}}}};
    const auto reply = client_.post(file_.name, endpoint() + '/' + target.id + ".git/info/lfs/objects/batch",
                                    question.dump(), kLfsType);
    if (!reply.head.is_good()) throw upload_refusal(target, reply.head);
    return read_order(reply.json(), file_, sha256_);
  }

  io::HttpAnswer put(const std::string& url, const std::vector<std::string>& headers, int64_t begin,
                     int64_t num_bytes) {
    io::HttpSending sending;
    sending.url = url;
    sending.headers = headers;
    sending.num_bytes = num_bytes;
    sending.read = [this, begin](int64_t offset, char* to, int64_t count) {
      opened_.read_at(begin + offset, to, count);
      sent_.set(begin + offset + count);
    };
    return client_.put(file_.name, std::move(sending));
  }

  std::string put_whole(const PutOrder& order) {
    return fault_of_answer("the storage", put(order.url, order.headers, 0, file_.size));
  }

  std::string put_parts(const PutOrder& order) {
    json parts = json::array();
    for (const std::string& url : order.part_urls) {
      const int64_t begin = std::ssize(parts) * order.part_bytes;
      const io::HttpAnswer answer = put(url, {}, begin, std::min(order.part_bytes, file_.size - begin));
      const std::string etag = answer.header("etag");
      if (!answer.is_good()) return fault_of_answer("the storage", answer);
      if (etag.empty()) return "the storage gives part " + std::to_string(parts.size() + 1) + " no ETag";
      parts.push_back({{"partNumber", parts.size() + 1}, {"etag", etag}});
    }
    const json whole = {{"oid", sha256_}, {"parts", parts}};
    return fault_of_answer("the hub, asked to join the parts,",
                           client_.post(file_.name, order.url, whole.dump(), kLfsType).head);
  }

  std::string verify(const std::string& url) {
    const json whole = {{"oid", sha256_}, {"size", file_.size}};
    return fault_of_answer("the hub, asked to verify the file,",
                           client_.post(file_.name, url, whole.dump()).head);
  }

  static std::string fault_of_answer(const std::string& who, const io::HttpAnswer& answer) {
    if (answer.is_good()) return "";
    return who + " answers " + answer.told();
  }

  UploadClient& client_;
  const LocalFile& file_;
  const std::string sha256_;
  SentBytes& sent_;
  io::File opened_;
};

}  // namespace

std::string upload_large_file(UploadClient& client, const LocalFile& file, Progress& progress) {
  const std::string sha256 = sha256_of(file, [&] { client.check_stop(); });
  SentBytes sent(progress);
  std::string fault;
  for (int i = 0; i < kUploadAttempts; ++i) {
    fault = Attempt(client, file, sha256, sent).run();
    if (fault.empty()) return sha256;
  }
  throw Error(ErrorKind::Storage, "HUB-UPLOAD",
              "cannot upload " + client.target().shown() + ": " + file.name + ": " + fault);
}

}  // namespace tessera::hub

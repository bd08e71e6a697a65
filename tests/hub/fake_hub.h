// A hub with one repository, which gives large files by redirections to a second host, as the real one does.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/sha256.h"

#include "tests/testing/fake_server.h"

namespace tessera::testing {

class FakeHub {
 public:
  struct File {
    std::string text;
    bool is_large = false;
  };
  using Fault = std::function<void(FakeReply&)>;

  static constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

  explicit FakeHub(std::map<std::string, File> files, std::string kind = "models",
                   std::string id = "org/name")
      : files_(std::move(files)), kind_(std::move(kind)), id_(std::move(id)) {}

  std::string url() const { return hub_.url(); }

  // Has the next answers for this file ("" = for the list of files) changed, one by each fault.
  void fail_next(const std::string& file, std::vector<Fault> faults) {
    const std::lock_guard lock(mutex_);
    faults_[file] = {faults.begin(), faults.end()};
  }
  // Has all answers for the file changed.
  void fail_always(const std::string& file, Fault fault) {
    const std::lock_guard lock(mutex_);
    lasting_faults_[file] = std::move(fault);
  }
  // Has the hub know the commit by this name alone, beside its own.
  void set_revision(std::string revision) { revision_ = std::move(revision); }
  // Has the list name a file that is not served.
  void name_too(const std::string& name) { files_[name]; }

  std::vector<FakeRequest> hub_requests() { return hub_.requests(); }
  std::vector<FakeRequest> store_requests() { return store_.requests(); }
  size_t num_requests() { return hub_.requests().size() + store_.requests().size(); }

  static std::string etag_of(const File& file) {
    Sha256 hash;
    hash.add(file.text);
    const std::string text = hash.hex();
    return file.is_large ? text : text.substr(0, 40);
  }
  std::string etag_of(const std::string& name) const { return etag_of(files_.at(name)); }

 private:
  FakeReply answer(const FakeRequest& request) {
    const std::string list = "/api/" + kind_ + "/" + id_ + "/revision/";
    const bool is_list =
        request.path == list + revision_ + "?blobs=true" || request.path == list + kCommit + "?blobs=true";
    const std::string files = (kind_ == "models" ? "/" : "/datasets/") + id_ + "/resolve/" + kCommit + "/";
    if (is_list) return spoilt("", {200, list_text()});
    const std::string name =
        request.path.starts_with(files) ? decoded(request.path.substr(files.size())) : "";
    if (!files_.contains(name)) {
      FakeReply missing{404};
      missing.headers["X-Error-Code"] =
          request.path.starts_with("/api/" + kind_ + "/" + id_ + "/") ? "RevisionNotFound" : "RepoNotFound";
      return spoilt("", missing);
    }
    if (!files_.at(name).is_large) return spoilt(name, contents(name, request));
    FakeReply reply{302};
    reply.headers["Location"] = store_.url() + "/" + name;
    return reply;
  }

  static std::string decoded(std::string text) {
    for (size_t at = 0; (at = text.find('%', at)) != std::string::npos; ++at)
      text.replace(at, 3, 1, static_cast<char>(std::stoi(text.substr(at + 1, 2), nullptr, 16)));
    return text;
  }

  FakeReply answer_of_store(const FakeRequest& request) {
    const std::string name = request.path.substr(1);
    return spoilt(name, contents(name, request));
  }

  FakeReply contents(const std::string& name, const FakeRequest& request) const {
    FakeReply reply;
    reply.body = files_.at(name).text;
    const std::string range = request.header("range");
    if (range.empty()) return reply;
    const size_t size = reply.body.size(), begin = std::stoul(range.substr(range.find('=') + 1));
    if (begin >= size) return {416};
    reply.status = 206;
    reply.headers["Content-Range"] =
        "bytes " + std::to_string(begin) + "-" + std::to_string(size - 1) + "/" + std::to_string(size);
    reply.body.erase(0, begin);
    return reply;
  }

  FakeReply spoilt(const std::string& name, FakeReply reply) {
    const std::lock_guard lock(mutex_);
    if (const auto found = lasting_faults_.find(name); found != lasting_faults_.end()) found->second(reply);
    auto& next = faults_[name];
    if (!next.empty()) {
      next.front()(reply);
      next.pop_front();
    }
    return reply;
  }

  std::string list_text() const {
    nlohmann::json files = nlohmann::json::array();
    for (const auto& [name, file] : files_) {
      nlohmann::json item = {
          {"rfilename", name}, {"size", file.text.size()}, {"blobId", etag_of(file).substr(0, 40)}};
      if (file.is_large)
        item["lfs"] = {{"sha256", etag_of(file)}, {"size", file.text.size()}, {"pointerSize", 130}};
      files.push_back(item);
    }
    return nlohmann::json{{"id", id_}, {"sha", kCommit}, {"siblings", files}}.dump();
  }

  std::map<std::string, File> files_;
  const std::string kind_, id_;
  std::string revision_ = "main";
  std::mutex mutex_;
  std::map<std::string, std::deque<Fault>> faults_;
  std::map<std::string, Fault> lasting_faults_;
  FakeServer store_{[this](const FakeRequest& request) { return answer_of_store(request); }};
  FakeServer hub_{[this](const FakeRequest& request) { return answer(request); }};
};

}  // namespace tessera::testing

// A hub that takes uploads into one repository, large files by way of a second host, as the real one does. It
// checks what it gets as the real one does: tokens, checksums, the ETags of parts.
#pragma once

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

class FakeUploadHub {
 public:
  using json = nlohmann::json;
  using Fault = std::function<void(FakeReply&)>;
  // The contents, "oid <sha256>" or "removed", by the names of a commit's files.
  using Files = std::map<std::string, std::string>;

  static constexpr const char* kToken = "hf_write";

  // To be set before the first request.
  int64_t part_bytes = 0;  // 0: large files are put whole
  bool is_there = false, may_make = true, may_write = true, says_to_verify = true;
  int status_of_refusal = 403;  // where may_make is false
  bool names_main_hub = false;  // in the addresses of its own, as a mirror does
  std::string ignored_file;
  std::vector<std::string> files;  // names of those that the repository has already

  std::string url() const { return hub_.url(); }
  // Has the next answers to this step changed, one by each fault: "create", "branch", "preupload", "batch",
  // "put", "complete", "verify", "commit".
  void fail_next(const std::string& step, std::vector<Fault> faults) {
    const std::lock_guard lock(mutex_);
    faults_[step] = {faults.begin(), faults.end()};
  }
  void store(const std::string& text) { stored_[sha256(text)] = text; }

  std::vector<FakeRequest> hub_requests() { return hub_.requests(); }
  std::vector<FakeRequest> store_requests() { return store_.requests(); }
  // The steps that requests have asked for, in their order.
  std::vector<std::string> steps() {
    const std::lock_guard lock(mutex_);
    return steps_;
  }
  // The body of the request that has made the repository; null if there was none.
  json made() {
    const std::lock_guard lock(mutex_);
    return made_;
  }
  std::vector<Files> commits() {
    const std::lock_guard lock(mutex_);
    return commits_;
  }
  std::map<std::string, std::string> stored() {
    const std::lock_guard lock(mutex_);
    return stored_;
  }

  static std::string sha256(const std::string& text) {
    Sha256 hash;
    hash.add(text);
    return hash.hex();
  }

 private:
  static bool begins(const std::string& path, const std::string& with) { return path.starts_with(with); }

  // Answers one request of `step`, or as its next fault says.
  FakeReply spoilt(const std::string& step, const std::function<FakeReply()>& answer) {
    const std::lock_guard lock(mutex_);
    steps_.push_back(step);
    FakeReply reply = answer();
    auto& next = faults_[step];
    if (!next.empty()) {
      next.front()(reply);
      next.pop_front();
    }
    return reply;
  }

  FakeReply answer(const FakeRequest& request) {
    const std::string& path = request.path;
    if (request.method == "GET" && begins(path, "/api/models/org/name/revision/")) return list();
    if (request.method != "POST") return {405};
    if (begins(path, "/complete/"))
      return spoilt("complete", [&] { return complete(path.substr(10), request); });
    if (request.header("authorization") != std::string("Bearer ") + kToken) return {401};
    if (path == "/api/repos/create") return spoilt("create", [&] { return create(request); });
    if (begins(path, "/api/models/org/name/branch/")) return spoilt("branch", [&] { return FakeReply{200}; });
    if (begins(path, "/api/models/org/name/preupload/"))
      return spoilt("preupload", [&] { return preupload(request); });
    if (begins(path, "/api/models/org/name/commit/"))
      return spoilt("commit", [&] { return commit(request); });
    if (path == "/org/name.git/info/lfs/objects/batch")
      return spoilt("batch", [&] { return batch(request); });
    if (path == "/verify") return spoilt("verify", [&] { return verify(request); });
    return {404};
  }

  FakeReply list() const {
    json answer = {{"sha", "0123"}, {"siblings", json::array()}};
    for (const std::string& name : files)
      answer["siblings"].push_back({{"rfilename", name}, {"size", 1}, {"blobId", std::string(40, 'a')}});
    return {200, answer.dump()};
  }

  FakeReply create(const FakeRequest& request) {
    if (!may_make) return {status_of_refusal};
    if (is_there) return {409};
    is_there = true;
    made_ = json::parse(request.body);
    return {200, R"({"url": "x"})"};
  }

  FakeReply preupload(const FakeRequest& request) {
    if (!is_there) return {404};
    if (!may_write) return {403, "", {{"X-Error-Message", "not for you"}}};
    const json question = json::parse(request.body);
    json answer = {{"files", json::array()}};
    for (const json& file : question.at("files")) {
      const std::string name = file.at("path");
      answer["files"].push_back({{"path", name},
                                 {"uploadMode", name.ends_with(".safetensors") ? "lfs" : "regular"},
                                 {"shouldIgnore", name == ignored_file}});
    }
    return {200, answer.dump()};
  }

  FakeReply batch(const FakeRequest& request) {
    const json question = json::parse(request.body), object = question.at("objects").at(0);
    const std::string type = "application/vnd.git-lfs+json", oid = object.at("oid");
    if (question.at("operation") != "upload" || question.at("hash_algo") != "sha256" ||
        question.at("transfers") != json::array({"basic", "multipart"}) || request.header("accept") != type ||
        request.header("content-type") != type)
      return {422};
    const std::string own = names_main_hub ? "https://huggingface.co" : url();
    json answer = {{"oid", oid}, {"size", object.at("size")}};
    if (!stored_.contains(oid)) {
      json& upload = answer["actions"]["upload"];
      upload = {{"href", store_.url() + "/put/" + oid}, {"header", {{"X-Signed", "yes"}}}};
      const int64_t size = object.at("size");
      for (int64_t i = 0; part_bytes > 0 && i * part_bytes < size; ++i) {
        const std::string number = std::to_string(i + 1), key = std::string(5 - number.size(), '0') + number;
        upload["header"][key] = store_.url() + "/part/" + key;
      }
      if (part_bytes > 0) {
        upload["href"] = own + "/complete/" + oid;
        upload["header"]["chunk_size"] = std::to_string(part_bytes);
      }
      if (says_to_verify) answer["actions"]["verify"] = {{"href", own + "/verify"}};
    }
    return {200,
            json{{"transfer", part_bytes > 0 ? "multipart" : "basic"}, {"objects", json::array({answer})}}
                .dump()};
  }

  FakeReply answer_of_store(const FakeRequest& request) {
    return spoilt("put", [&]() -> FakeReply {
      if (request.method != "PUT" || !request.header("authorization").empty()) return {400};
      if (begins(request.path, "/part/")) {
        parts_[request.path.substr(6)] = request.body;
        FakeReply reply;
        reply.headers["ETag"] = '"' + sha256(request.body) + '"';
        return reply;
      }
      if (request.header("x-signed") != "yes") return {403};
      const std::string oid = request.path.substr(5);
      if (sha256(request.body) != oid) return {400};
      stored_[oid] = request.body;
      return {200};
    });
  }

  FakeReply complete(const std::string& oid, const FakeRequest& request) {
    const json whole = json::parse(request.body);
    std::string text;
    int64_t number = 0;
    for (const json& part : whole.at("parts")) {
      const std::string name = std::to_string(++number), key = std::string(5 - name.size(), '0') + name;
      if (part.at("partNumber") != number || part.at("etag") != '"' + sha256(parts_[key]) + '"') return {400};
      text += parts_[key];
    }
    if (whole.at("oid") != oid || sha256(text) != oid) return {400};
    stored_[oid] = text;
    return {200};
  }

  FakeReply verify(const FakeRequest& request) {
    const json whole = json::parse(request.body);
    const auto found = stored_.find(whole.at("oid"));
    return found != stored_.end() && whole.at("size") == found->second.size() ? FakeReply{200}
                                                                              : FakeReply{404};
  }

  FakeReply commit(const FakeRequest& request) {
    if (request.header("content-type") != "application/x-ndjson") return {415};
    Files files;
    for (size_t begin = 0; begin < request.body.size();) {
      const size_t end = request.body.find('\n', begin);
      const json line = json::parse(request.body.substr(begin, end - begin)), &value = line.at("value");
      begin = end + 1;
      if (line.at("key") == "header") continue;
      const std::string name = value.at("path");
      if (line.at("key") == "file") {
        files[name] = value.at("content");
      } else if (line.at("key") == "deletedFile") {
        files[name] = "removed";
      } else {
        const std::string oid = value.at("oid");
        if (!stored_.contains(oid) || value.at("size") != stored_[oid].size()) return {400};
        files[name] = "oid " + oid;
      }
    }
    commits_.push_back(files);
    return {200, R"({"commitUrl": "x"})"};
  }

  std::mutex mutex_;
  std::vector<std::string> steps_;
  json made_;
  std::vector<Files> commits_;
  std::map<std::string, std::string> stored_, parts_;
  std::map<std::string, std::deque<Fault>> faults_;
  FakeServer store_{[this](const FakeRequest& request) { return answer_of_store(request); }};
  FakeServer hub_{[this](const FakeRequest& request) { return answer(request); }};
};

}  // namespace tessera::testing

#include "tessera/hub/fetch.h"

#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/io/disk_calls.h"
#include "tessera/io/file.h"

#include "tests/hub/fake_hub.h"
#include "tests/testing/temp_folder.h"

namespace tessera::hub {
namespace {

namespace fs = std::filesystem;
using tessera::testing::FakeHub;
using tessera::testing::FakeReply;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

// Text that no compression and no mistake of a byte leaves as it is.
std::string large_text(size_t size, uint32_t seed) {
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return text;
}

// A model in two shards, with files that nobody needs.
std::map<std::string, FakeHub::File> sharded_model() {
  return {
      {"config.json", {"{}"}},
      {"tokenizer.json", {"{\"version\": 1}"}},
      {"additional_chat_templates/tool use.jinja", {"{{ messages }}"}},
      {"generation_config.json", {""}},
      {"model.safetensors.index.json",
       {R"({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})"}},
      {"model-00001-of-00002.safetensors", {large_text(100'000, 1), true}},
      {"model-00002-of-00002.safetensors", {large_text(50'000, 2), true}},
      {"pytorch_model.bin", {"pickle", true}},
      {"consolidated.safetensors", {"twice", true}},
      {"onnx/model.onnx", {"onnx", true}},
      {"README.md", {"# Name"}}};
}

std::map<std::string, FakeHub::File> small_model() {
  return {{"config.json", {"{}"}},
          {"tokenizer.json", {"[]"}},
          {"model.safetensors", {large_text(20'000, 3), true}}};
}

class FetchTest : public ::testing::Test {
 protected:
  FetchTest() {
    for (const char* name : {"HF_HUB_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE"}) ::unsetenv(name);
    ::setenv("NO_PROXY", "127.0.0.1", 1);
    ::setenv("HF_HOME", home_.path().c_str(), 1);
    limits_.first_pause_s = 0.001;
    limits_.connect_s = 2;
    limits_.attempts = 4;
  }
  ~FetchTest() override { io::disk::set_hook({}); }

  FakeHub& start(std::map<std::string, FakeHub::File> files, const std::string& kind = "models") {
    hub_.emplace(std::move(files), kind);
    ::setenv("HF_ENDPOINT", (hub_->url() + "/").c_str(), 1);
    return *hub_;
  }
  std::string fetch_name(const std::string& revision = "") {
    return fetch({Kind::Model, "org/name", revision}, choose_model, limits_);
  }
  std::string error_of(const std::string& revision = "") {
    try {
      return "no error, but " + fetch_name(revision);
    } catch (const Error& error) {
      return error.what();
    }
  }
  std::string folder() const { return home_ / "hub/models--org--name"; }
  std::string snapshot() const { return folder() + "/snapshots/" + FakeHub::kCommit; }
  std::string incomplete(const std::string& name) const {
    return folder() + "/blobs/" + hub_->etag_of(name) + ".incomplete";
  }

  // Returns what the requests for a file asked for: "" for the whole, else the range.
  std::vector<std::string> ranges_of(const std::string& file) {
    std::vector<std::string> ranges;
    for (const auto& requests : {hub_->hub_requests(), hub_->store_requests()}) {
      for (const auto& request : requests) {
        if (request.path.ends_with("/" + file)) ranges.push_back(request.header("range"));
      }
    }
    return ranges;
  }

  testing::TempFolder home_;
  Limits limits_;
  std::optional<FakeHub> hub_;
};

std::string text_of(const std::string& path) { return io::read_file(path, 1 << 24); }

TEST_F(FetchTest, BringsWhatAModelNeedsInTheLayoutOfHuggingFace) {
  FakeHub& hub = start(sharded_model());
  EXPECT_EQ(fetch_name(), snapshot());
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(snapshot())) {
    if (entry.is_symlink()) names.push_back(entry.path().lexically_relative(snapshot()));
  }
  EXPECT_THAT(names,
              UnorderedElementsAre("config.json", "tokenizer.json", "generation_config.json",
                                   "additional_chat_templates/tool use.jinja", "model.safetensors.index.json",
                                   "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
  for (const std::string& name : names)
    EXPECT_EQ(text_of(snapshot() + "/" + name), sharded_model()[name].text);
  EXPECT_EQ(fs::read_symlink(snapshot() + "/config.json"), "../../blobs/" + hub.etag_of("config.json"));
  EXPECT_EQ(fs::read_symlink(snapshot() + "/additional_chat_templates/tool use.jinja"),
            "../../../blobs/" + hub.etag_of("additional_chat_templates/tool use.jinja"));
  EXPECT_EQ(text_of(folder() + "/refs/main"), FakeHub::kCommit);

  // Files that are there are used without a request: by branch, by commit, and where nothing may be fetched.
  const size_t before = hub.num_requests();
  EXPECT_EQ(fetch_name(), snapshot());
  EXPECT_EQ(fetch_name(FakeHub::kCommit), snapshot());
  ::setenv("HF_HUB_OFFLINE", "True", 1);
  EXPECT_EQ(fetch_name("main"), snapshot());
  EXPECT_EQ(hub.num_requests(), before);
}

TEST_F(FetchTest, ALostFileIsFetchedAlone) {
  FakeHub& hub = start(sharded_model());
  fetch_name();
  fs::remove(folder() + "/blobs/" + hub.etag_of("model-00002-of-00002.safetensors"));
  const size_t before = hub.num_requests();
  fetch_name();
  EXPECT_EQ(hub.num_requests(), before + 3) << "the list, the redirection, and the file";
  EXPECT_EQ(text_of(snapshot() + "/model-00002-of-00002.safetensors"), large_text(50'000, 2));
}

// The branch has gone on by then.
TEST_F(FetchTest, WhatABranchLacksIsFetchedOfItsCommit) {
  FakeHub& hub = start(sharded_model());
  fetch_model("org/name", "", Want::Tokenizer);
  hub.set_revision("moved");
  EXPECT_EQ(fetch_name(), snapshot());
  EXPECT_TRUE(fs::exists(snapshot() + "/model-00002-of-00002.safetensors"));
}

TEST_F(FetchTest, TheTokenGoesToTheHubAlone) {
  const auto expect_sent = [&](const std::string& token) {
    for (const auto& request : hub_->hub_requests()) EXPECT_EQ(request.header("authorization"), token);
    EXPECT_THAT(hub_->store_requests(), Not(IsEmpty()));
    for (const auto& request : hub_->store_requests()) EXPECT_EQ(request.header("authorization"), "");
  };
  start(small_model());
  ::setenv("HF_TOKEN", " hf_abc\n", 1);
  fetch_name();
  expect_sent("Bearer hf_abc");
  // The file of `hf auth login` is read where the variable is not set.
  fs::remove_all(home_ / "hub");
  start(small_model());
  ::unsetenv("HF_TOKEN");
  home_.write("token", "hf_file\n");
  fetch_name();
  expect_sent("Bearer hf_file");
  ::setenv("HF_TOKEN", "hf_abc\r\nX-Other: y", 1);
  fs::remove_all(home_ / "hub");
  EXPECT_THAT(error_of(),
              HasSubstr("E-CONFIG-ENVIRONMENT]: the environment variable HF_TOKEN contains no token"));
}

TEST_F(FetchTest, PassingFaultsAreOvercome) {
  const std::string weights = "model.safetensors", config = "config.json";
  const FakeHub::Fault cut = [](FakeReply& reply) { reply.cut_after = 7'000; };
  const FakeHub::Fault broken = [](FakeReply& reply) {
    reply = {500, "", {{"RateLimit", "\"api\";r=9;t=300"}}};
  };
  const FakeHub::Fault other = [](FakeReply& reply) { reply.body[5] ^= 1; };
  const FakeHub::Fault longer = [](FakeReply& reply) { reply.body += "more"; };
  const FakeHub::Fault shorter = [](FakeReply& reply) { reply.body.resize(9'000); };
  const FakeHub::Fault busy = [](FakeReply& reply) { reply = {429, "", {{"Retry-After", "1"}}}; };
  const FakeHub::Fault elsewhere = [](FakeReply& reply) {
    if (reply.status == 206) reply.headers["Content-Range"] = "bytes 1-2/20000";
  };
  const FakeHub::Fault whole = [](FakeReply& reply) {
    if (reply.status == 206) reply = {200, large_text(20'000, 3)};
  };
  struct Case {
    const char* what;
    std::string file;
    std::vector<FakeHub::Fault> faults;
    std::vector<std::string> ranges;  // of the requests that bring the file's bytes
  };
  const Case cases[] = {
      {"cut twice", weights, {cut, cut}, {"", "bytes=7000-", "bytes=14000-"}},
      {"a server that knows no ranges", weights, {cut, whole}, {"", "bytes=7000-"}},
      {"bytes of another place", weights, {cut, elsewhere}, {"", "bytes=7000-", ""}},
      {"500 twice", weights, {broken, broken}, {"", "", ""}},
      {"500 for a small file", config, {broken}, {"", ""}},
      {"another byte", weights, {other}, {"", ""}},
      {"more bytes", weights, {longer}, {"", ""}},
      {"fewer bytes", weights, {shorter}, {"", "bytes=9000-"}},
      {"a busy server", weights, {busy}, {"", ""}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    fs::remove_all(home_ / "hub");
    start(small_model()).fail_next(each.file, each.faults);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(error_of(), "no error, but " + snapshot());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(seconds.count(), each.what == std::string("a busy server") ? 0.99 : 0.0);
    EXPECT_EQ(text_of(snapshot() + "/" + weights), large_text(20'000, 3));
    std::vector<std::string> ranges = ranges_of(each.file);
    // A large file is asked for twice each time: of the hub, and where the hub sends us.
    if (each.file == weights) ranges.erase(ranges.begin(), ranges.begin() + std::ssize(ranges) / 2);
    EXPECT_EQ(ranges, each.ranges);
  }
  fs::remove_all(home_ / "hub");
  start(small_model()).fail_next("", {broken, broken});
  EXPECT_EQ(fetch_name(), snapshot());
}

TEST_F(FetchTest, WhatAnEarlierDownloadLeftIsTakenUp) {
  const std::string weights = "model.safetensors", text = large_text(20'000, 3);
  struct Case {
    const char* what;
    std::string left;
    std::vector<std::string> ranges;
  };
  const Case cases[] = {{"a part", text.substr(0, 12'345), {"bytes=12345-"}},
                        {"all of it", text, {}},
                        {"all, and wrong", std::string(20'000, 'x'), {""}},
                        {"a wrong part", std::string(100, 'x'), {"bytes=100-", ""}},
                        {"more than the file", text + "more", {""}}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    fs::remove_all(home_ / "hub");
    start(small_model());
    fs::create_directories(folder() + "/blobs");
    io::write_file_atomic(incomplete(weights), each.left);
    EXPECT_EQ(error_of(), "no error, but " + snapshot());
    EXPECT_EQ(text_of(snapshot() + "/" + weights), text);
    std::vector<std::string> ranges = ranges_of(weights);
    ranges.erase(ranges.begin(), ranges.begin() + std::ssize(ranges) / 2);
    EXPECT_EQ(ranges, each.ranges);
    EXPECT_FALSE(fs::exists(incomplete(weights)));
  }
}

TEST_F(FetchTest, LastingFaultsAreTold) {
  const std::string weights = "model.safetensors";
  const auto status = [](int status, const std::string& code = "", const std::string& words = "") {
    return FakeHub::Fault([=](FakeReply& reply) {
      reply = {status};
      if (!code.empty()) reply.headers["X-Error-Code"] = code;
      if (!words.empty()) reply.headers["X-Error-Message"] = words;
    });
  };
  struct Case {
    const char* what;
    std::string file;
    FakeHub::Fault fault;
    std::vector<std::string> parts;
  };
  const Case cases[] = {
      {"gated",
       weights,
       status(401, "GatedRepo", "Access to model org/name is restricted"),
       {"E-CONFIG-HUB-ACCESS", "gives model org/name only to users with access; got 401: Access to model",
        "accept its licence at http://127.0.0.1", "/org/name, and set HF_TOKEN"}},
      {"not yours", weights, status(403), {"E-CONFIG-HUB-ACCESS", "accept its licence"}},
      {"unknown user", "", status(401), {"E-CONFIG-HUB-ACCESS", "if the name is correct: set HF_TOKEN"}},
      {"no such repository",
       "",
       status(401, "RepoNotFound"),
       {"E-CONFIG-HUB-NOT-FOUND", "has no model org/name, revision main; got 401",
        "if it exists and is private"}},
      {"404", "", status(404), {"E-CONFIG-HUB-NOT-FOUND", "model org/name"}},
      {"400", "", status(400), {"E-CONFIG-HUB-REFUSED", "got 400"}},
      {"no JSON", "", [](FakeReply& reply) { reply.body = "<html>"; }, {"E-STORAGE"}},
      {"no list",
       "",
       [](FakeReply& reply) { reply.body = R"({"sha": "abc"})"; },
       {"E-STORAGE-HUB-ANSWER", "no list"}},
      {"a commit that is a path",
       "",
       [](FakeReply& reply) { reply.body = R"({"sha": "../x", "siblings": []})"; },
       {"E-STORAGE-HUB-ANSWER"}},
      {"a checksum that is a path",
       "",
       [](FakeReply& reply) {
         reply.body = R"({"sha": "a", "siblings": [{"rfilename": "a", "blobId": "../../a", "size": 1}]})";
       },
       {"E-STORAGE-HUB-ANSWER"}},
      {"a checksum that is a lock's name",
       "",
       [](FakeReply& reply) {
         reply.body = R"({"sha": "a", "siblings": [{"rfilename": "a", "blobId": "tessera", "size": 1}]})";
       },
       {"E-STORAGE-HUB-ANSWER", "a file without name, checksum or size"}},
      {"500",
       weights,
       status(500),
       {"E-STORAGE-HUB-BROKEN", "model org/name: model.safetensors: the server answers 500",
        "the same command resumes"}},
      {"a pause of an hour",
       weights,
       [](FakeReply& reply) {
         reply = {429, "", {{"RateLimit", "\"resolvers\";r=0;t=3600"}}};
       },
       {"E-STORAGE-HUB-BROKEN", "answers 429 and asks for a pause of 1h00m"}},
      {"a pause of a day",
       weights,
       [](FakeReply& reply) {
         reply = {429, "", {{"Retry-After", "86400"}}};
       },
       {"E-STORAGE-HUB-BROKEN", "answers 429 and asks for a pause of 24h"}},
      {"fewer bytes",
       weights,
       [](FakeReply& reply) {
         if (reply.status == 200)
           reply.body.resize(5'000);
         else
           reply = {416};
       },
       {"E-STORAGE-HUB-BROKEN", "model.safetensors"}},
      {"more bytes",
       weights,
       [](FakeReply& reply) { reply.body += "x"; },
       {"E-STORAGE-HUB-CHECK", "got more bytes, need 20000 bytes with SHA-256"}},
      {"other bytes",
       weights,
       [](FakeReply& reply) { reply.body[0] ^= 1; },
       {"E-STORAGE-HUB-CHECK", "got SHA-256 "}},
      {"no end of redirections",
       weights,
       [this](FakeReply& reply) {
         reply = {302, "", {{"Location", "model.safetensors"}}};
       },
       {"E-STORAGE-HUB-BROKEN", "too many redirects. hint: SSL_CERT_FILE sets the trusted certificates"}},
      {"a redirection to a file",
       weights,
       [](FakeReply& reply) {
         reply = {302, "", {{"Location", "file:///etc/passwd"}}};
       },
       {"E-STORAGE-HUB-BROKEN", "redirects to file://, which is not encrypted or not a web address"}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    fs::remove_all(home_ / "hub");
    start(small_model()).fail_always(each.file, each.fault);
    const std::string text = error_of();
    for (const std::string& part : each.parts) EXPECT_THAT(text, HasSubstr(part));
    EXPECT_FALSE(fs::exists(snapshot())) << "what is not whole must not look so";
    EXPECT_FALSE(fs::exists(folder() + "/blobs/" + hub_->etag_of(weights)));
  }
}

TEST_F(FetchTest, RevisionsAreNamed) {
  FakeHub& hub = start(small_model());
  EXPECT_THAT(error_of("v2"),
              AllOf(HasSubstr("E-CONFIG-HUB-NOT-FOUND"), HasSubstr("no revision v2 of org/name")));
  hub.set_revision("refs%2Fpr%2F1");
  EXPECT_EQ(fetch_name("refs/pr/1"), snapshot());
  EXPECT_EQ(text_of(folder() + "/refs/refs/pr/1"), FakeHub::kCommit);
  for (const char* name : {"../x", "/x", "a//b", "a b"}) {
    EXPECT_THAT(error_of(name), HasSubstr("E-CONFIG-HUB-NOT-FOUND]: no revision has this name")) << name;
  }
}

TEST_F(FetchTest, AnUnnamedRevisionIsMain) {
  start(small_model()).set_revision("v1.0");
  EXPECT_EQ(fetch_name("v1.0"), snapshot());
  EXPECT_THAT(error_of(), HasSubstr("E-CONFIG-HUB-NOT-FOUND]: " + hub_->url() + " has no revision main"));
  ::setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(fetch_name(), snapshot());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("the cached files are used: "));
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  EXPECT_EQ(fetch_name(), snapshot());
}

TEST_F(FetchTest, NamesOfFilesStayInTheFolder) {
  for (const char* name :
       {"../../../evil.safetensors", "/tmp/evil.safetensors", "a/../../evil", "a\\b", "a//b"}) {
    SCOPED_TRACE(name);
    auto files = small_model();
    files.erase("model.safetensors");
    files["model.safetensors.index.json"].text = nlohmann::json{{"weight_map", {{"a", name}}}}.dump();
    files[name] = {"evil", true};
    start(files);
    EXPECT_THAT(error_of(),
                AllOf(HasSubstr("E-CONFIG-HUB-FILES"), HasSubstr("leads out of the repository's folder")));
    fs::remove_all(home_ / "hub");
    EXPECT_THAT(home_.entries(), IsEmpty());
  }
}

TEST_F(FetchTest, RepositoriesWithoutTheFilesAreRefusedBeforeAnyDownload) {
  auto files = small_model();
  files.erase("model.safetensors");
  files["pytorch_model.bin"] = {"x", true};
  start(files);
  EXPECT_THAT(error_of(),
              AllOf(HasSubstr("E-CONFIG-HUB-FILES"), HasSubstr("no weights in safetensors; got config.json, "
                                                               "pytorch_model.bin, tokenizer.json")));
  files["name.Q8_0.gguf"] = {"GGUF", true};
  FakeHub& hub = start(files);
  EXPECT_THAT(error_of(), HasSubstr("name one of its GGUF files: org/name:name.Q8_0.gguf"));
  EXPECT_EQ(hub.num_requests(), 1u);
  EXPECT_EQ(fetch_model("org/name:name.Q8_0.gguf", "", Want::Model), snapshot() + "/name.Q8_0.gguf");
  EXPECT_EQ(fetch_model("org/name", "", Want::Tokenizer), snapshot());
  EXPECT_TRUE(fs::exists(snapshot() + "/tokenizer.json"));
  EXPECT_THROW(fetch_model("org/name:other.gguf", "", Want::Model), Error);
  EXPECT_THROW(fetch_model("org/name", "", Want::Adapter), Error);
  // An index that names a shard which is not there.
  files["model.safetensors.index.json"] = {R"({"weight_map": {"a": "b.safetensors"}})"};
  start(files);
  EXPECT_THAT(error_of(), AllOf(HasSubstr("E-CONFIG-HUB-FILES"), HasSubstr("b.safetensors")));
}

TEST_F(FetchTest, AllPartsOfAModelAreFetchedByTheNameOfOne) {
  FakeHub& hub = start({{"q/M-00001-of-00002.gguf", {"GGUF 1", true}},
                        {"q/M-00002-of-00002.gguf", {"GGUF 2", true}},
                        {"q/M-00001-of-00003.gguf", {"other", true}}});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(fetch_model("org/name:q/M-00001-of-00002.gguf", "", Want::Model),
              snapshot() + "/q/M-00001-of-00002.gguf");
    EXPECT_EQ(text_of(snapshot() + "/q/M-00002-of-00002.gguf"), "GGUF 2");
    EXPECT_FALSE(fs::exists(snapshot() + "/q/M-00001-of-00003.gguf"));
    EXPECT_EQ(hub.num_requests(), 5u);
  }
  EXPECT_THROW(fetch_model("org/name:q/M-00001-of-00003.gguf", "", Want::Model), Error)
      << "two are not there";
}

TEST_F(FetchTest, AdaptersAreFetchedAsSuch) {
  start({{"adapter_config.json", {"{}"}},
         {"adapter_model.safetensors", {"x", true}},
         {"training_args.bin", {"x"}}});
  for (const Want want : {Want::Adapter, Want::Model})
    EXPECT_EQ(fetch_model("org/name", "", want), snapshot());
  EXPECT_FALSE(fs::exists(snapshot() + "/training_args.bin"));
  EXPECT_EQ(hub_->num_requests(), 4u);
}

TEST_F(FetchTest, WithoutANetworkTheCacheIsUsed) {
  ::setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
  EXPECT_THAT(
      error_of(),
      AllOf(HasSubstr("E-STORAGE-HUB-UNREACHABLE]: cannot download model org/name: http://127.0.0.1:1: "),
            HasSubstr("HTTPS_PROXY")));
  // Python's tools have left these. The one without a tokenizer may not be all of its repository.
  home_.write("hub/models--org--name/refs/main", FakeHub::kCommit);
  home_.write("hub/models--org--name/snapshots/" + std::string(FakeHub::kCommit) + "/config.json", "{}");
  EXPECT_THAT(error_of(), HasSubstr("E-STORAGE-HUB-UNREACHABLE"));
  home_.write("hub/models--org--name/snapshots/" + std::string(FakeHub::kCommit) + "/model.safetensors", "x");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(fetch_name(), snapshot());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("the cached files are used"));

  ::setenv("HF_HUB_OFFLINE", "1", 1);
  EXPECT_EQ(fetch_name(), snapshot());
  EXPECT_THAT(
      error_of("v2"),
      AllOf(HasSubstr("E-CONFIG-HUB-OFFLINE]: model org/name at revision v2 would have to be downloaded"),
            HasSubstr("hf download org/name --revision v2")));
  ::setenv("HF_ENDPOINT", "ftp://x", 1);
  ::unsetenv("HF_HUB_OFFLINE");
  EXPECT_THAT(error_of("v2"), HasSubstr("E-CONFIG-ENVIRONMENT]: the environment variable HF_ENDPOINT"));
}

TEST_F(FetchTest, ASilentServerIsGivenUp) {
  start(small_model()).fail_always("", [](FakeReply& reply) { reply.is_silent = true; });
  limits_.stall_s = 1;
  limits_.attempts = 1;
  EXPECT_THAT(error_of(), HasSubstr("E-STORAGE-HUB-BROKEN"));
}

TEST_F(FetchTest, AFullDiskIsTold) {
  start(small_model());
  io::disk::set_hook([](std::string_view call, const std::string& path) {
    return call == "write" && path.ends_with(".incomplete") ? ENOSPC : 0;
  });
  EXPECT_THAT(error_of(), AllOf(HasSubstr("E-STORAGE-NO-SPACE"), HasSubstr(".incomplete")));
  io::disk::set_hook({});
  EXPECT_EQ(fetch_name(), snapshot());
  // A file that cannot fit is not begun.
  fs::remove_all(home_ / "hub");
  start(small_model()).fail_always("", [](FakeReply& reply) {
    auto list = nlohmann::json::parse(reply.body);
    for (auto& item : list["siblings"]) {
      // The sum of three is more than a number holds.
      (item.contains("lfs") ? item["lfs"] : item)["size"] = int64_t{1} << 62;
    }
    reply.body = list.dump();
  });
  EXPECT_THAT(error_of(), AllOf(HasSubstr("E-STORAGE-NO-SPACE"), HasSubstr("HF_HUB_CACHE")));
  EXPECT_EQ(hub_->num_requests(), 1u);
  // Nor one that is read before the others.
  start(sharded_model()).fail_always("", [](FakeReply& reply) {
    auto list = nlohmann::json::parse(reply.body);
    for (auto& item : list["siblings"]) item["size"] = int64_t{1} << 40;
    reply.body = list.dump();
  });
  EXPECT_THAT(error_of(), AllOf(HasSubstr("E-CONFIG-HUB-FILES"),
                                HasSubstr("model.safetensors.index.json is too large; got 1.0 TiB")));
  EXPECT_EQ(hub_->num_requests(), 1u);
}

TEST_F(FetchTest, OneFetchesWhileOthersWait) {
  FakeHub& hub = start(sharded_model());
  std::vector<std::thread> threads;
  std::vector<std::string> found(3);
  ::testing::internal::CaptureStderr();
  for (std::string& each : found) threads.emplace_back([&] { each = error_of(); });
  for (std::thread& each : threads) each.join();
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(found, ::testing::Each("no error, but " + snapshot()));
  EXPECT_EQ(hub.num_requests(), 1u + 4 + 2 * 2) << "a list, four small files, and two that are redirected";
  EXPECT_THAT(told, HasSubstr("tessera: downloading model org/name: 6 files, 147 KiB to "));
  EXPECT_EQ(told.find("downloading"), told.rfind("downloading"));
}

TEST_F(FetchTest, WhatIsNoNameOfTheHubIsNotAskedFor) {
  for (const char* name :
       {"gpt2", "../a", "/a/b", "a/b/c", "a/b.gguf", "a/b.safetensors", "a/b:../c.gguf", "s3://a/b"})
    EXPECT_FALSE(is_fetchable(name)) << name;
  for (const char* name : {"a/b", "Qwen/Qwen2.5-0.5B", "a/b:c/d.gguf"})
    EXPECT_TRUE(is_fetchable(name)) << name;
  ::setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
  EXPECT_EQ(fetch_model("gpt2", "", Want::Model), std::nullopt);
  home_.write("hub/models--gpt2/snapshots/abc/config.json", "{}");
  EXPECT_EQ(fetch_model("gpt2", "", Want::Model), home_ / "hub/models--gpt2/snapshots/abc");
}

}  // namespace
}  // namespace tessera::hub

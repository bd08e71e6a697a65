#include "tessera/hub/upload.h"

#include <filesystem>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "tessera/core/base64.h"
#include "tessera/core/error.h"
#include "tessera/hub/upload_client.h"
#include "tessera/hub/upload_files.h"

#include "tests/hub/fake_upload_hub.h"
#include "tests/testing/temp_folder.h"

namespace tessera::hub {
namespace {

using tessera::testing::FakeReply;
using tessera::testing::FakeUploadHub;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

using Fault = FakeUploadHub::Fault;
using Steps = std::vector<std::string>;

std::string weights_text() {
  std::string text(20'000, '\0');
  uint32_t seed = 7;
  for (char& c : text) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return text;
}

class UploadTest : public ::testing::Test {
 protected:
  UploadTest() {
    for (const char* name : {"HF_HUB_OFFLINE", "HF_HUB_CACHE"}) ::unsetenv(name);
    ::setenv("NO_PROXY", "127.0.0.1", 1);
    ::setenv("HF_HOME", home_.path().c_str(), 1);
    ::setenv("HF_TOKEN", FakeUploadHub::kToken, 1);
    limits_.first_pause_s = 0.001;
    limits_.connect_s = 2;
    limits_.attempts = 4;
    home_.write("out/config.json", "{}");
    home_.write("out/tokenizer.json", "{\"version\": 1}");
    home_.write("out/model.safetensors", weights_text());
    home_.write("out/README.md", "# Name");
    home_.write("out/additional_chat_templates/tool use.jinja", "{{ messages }}");
    for (const char* name :
         {"out/recipe.yaml", "out/metrics.jsonl", "out/runs/events", "out/training_args.bin",
          "out/checkpoint-5/rank-0.safetensors", "out/old.safetensors"})
      home_.write(name, "x");
    start();
  }
  ~UploadTest() override { ::unsetenv("HF_TOKEN"); }

  FakeUploadHub& start() {
    hub_.emplace();
    ::setenv("HF_ENDPOINT", hub_->url().c_str(), 1);
    return *hub_;
  }
  std::string folder() const { return home_ / "out"; }

  // Uploads the folder. Returns the error, or "".
  std::string error_of(const UploadTarget& target = {"org/name"}) {
    try {
      std::vector<LocalFile> files = files_to_upload(folder());
      prepare_upload(target, limits_);
      std::atomic<bool> stop = false;
      upload(std::move(files), target, stop, limits_);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  std::string check_error(const UploadTarget& target) {
    try {
      check_upload(target);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  void expect_all_is_there() {
    const std::string sha256 = FakeUploadHub::sha256(weights_text());
    ASSERT_THAT(hub_->commits(), SizeIs(1));
    EXPECT_THAT(hub_->commits()[0],
                UnorderedElementsAre(
                    Pair("config.json", base64("{}")), Pair("tokenizer.json", base64("{\"version\": 1}")),
                    Pair("README.md", base64("# Name")), Pair("model.safetensors", "oid " + sha256),
                    Pair("additional_chat_templates/tool use.jinja", base64("{{ messages }}"))));
    EXPECT_EQ(hub_->stored()[sha256], weights_text());
  }

  testing::TempFolder home_;
  Limits limits_;
  std::optional<FakeUploadHub> hub_;
};

TEST_F(UploadTest, SendsWhatAResultConsistsOf) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(error_of(), "");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("uploading model org/name: 5 files, 19.6 KiB"),
                    HasSubstr("uploaded to " + hub_->url() + "/org/name\n")));
  expect_all_is_there();
  EXPECT_EQ(hub_->made(), nlohmann::json({{"organization", "org"}, {"name", "name"}, {"type", "model"}}));
  EXPECT_EQ(hub_->steps(), (Steps{"create", "preupload", "preupload", "batch", "put", "verify", "commit"}));
  // Once more: the hub has the weights, and they are not sent.
  EXPECT_EQ(error_of(), "");
  EXPECT_THAT(hub_->store_requests(), SizeIs(1));
  EXPECT_THAT(hub_->commits(), SizeIs(2));
}

TEST_F(UploadTest, WeightsOfAnEarlierResultGo) {
  const std::string shard = "model-00001-of-00002.safetensors", index = "model.safetensors.index.json";
  hub_->is_there = true;
  hub_->files = {"model.safetensors",        shard, index, "notes.md", "other.safetensors",
                 "adapter_model.safetensors"};
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(error_of(), "");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("removes the weights of an earlier result: " + shard + ", " + index + "\n"));
  EXPECT_THAT(hub_->commits()[0], SizeIs(7));
  for (const std::string& name : {shard, index}) EXPECT_EQ(hub_->commits()[0].at(name), "removed");
  // An adapter leaves a model's weights alone.
  std::filesystem::remove_all(home_ / "out");
  home_.write("out/adapter_config.json", "{}");
  home_.write("out/adapter_model.safetensors", weights_text());
  EXPECT_EQ(error_of(), "");
  EXPECT_THAT(hub_->commits()[1], SizeIs(2));
}

TEST_F(UploadTest, ARepositoryIsMadeOnceTheHubIsFree) {
  const Fault busy = [&](FakeReply& reply) {
    hub_->is_there = false;
    reply = {409};
  };
  hub_->fail_next("create", {busy, busy});
  EXPECT_EQ(error_of(), "");
  expect_all_is_there();
  start().fail_next("create", std::vector<Fault>(9, busy));
  EXPECT_THAT(error_of(),
              HasSubstr("E-STORAGE-HUB-BROKEN]: cannot upload model org/name: making its repository"));
}

TEST_F(UploadTest, LargeFilesGoInTheirParts) {
  for (const int64_t part_bytes : {7'000, 10'000, 20'000, 1'000'000}) {
    SCOPED_TRACE(part_bytes);
    start().part_bytes = part_bytes;
    EXPECT_EQ(error_of(), "");
    expect_all_is_there();
    EXPECT_THAT(hub_->store_requests(), SizeIs((20'000 + part_bytes - 1) / part_bytes));
  }
}

TEST_F(UploadTest, AMirrorTakesWhatIsSentToTheHub) {
  start().part_bytes = 9'000;
  hub_->names_main_hub = true;
  EXPECT_EQ(error_of(), "");
  expect_all_is_there();
  EXPECT_EQ(hub_->steps(), (Steps{"create", "preupload", "preupload", "batch", "put", "put", "put",
                                  "complete", "verify", "commit"}));
}

TEST_F(UploadTest, TheStorageGetsNoToken) {
  for (const int64_t part_bytes : {0, 9'000}) {
    start().part_bytes = part_bytes;
    EXPECT_EQ(error_of(), "");
    ASSERT_THAT(hub_->store_requests(), Not(IsEmpty()));
    for (const auto& request : hub_->store_requests()) EXPECT_EQ(request.header("authorization"), "");
    for (const auto& request : hub_->hub_requests())
      EXPECT_EQ(request.header("authorization"), "Bearer hf_write") << request.path;
  }
}

TEST_F(UploadTest, TheRepositoryIsMadeAsAskedFor) {
  EXPECT_EQ(error_of({"org/name", "v/1", true}), "");
  EXPECT_EQ(hub_->made().value("private", false), true);
  EXPECT_EQ(hub_->steps()[1], "branch");
  EXPECT_EQ(hub_->hub_requests().back().path, "/api/models/org/name/commit/v%2F1");
  start();
  EXPECT_EQ(error_of({"org/name", "", false}), "");
  EXPECT_EQ(hub_->made().value("private", true), false);
  // A token without leave to make one may write to one that is there.
  for (const int status : {401, 402, 403}) {
    SCOPED_TRACE(status);
    start().may_make = false;
    hub_->status_of_refusal = status;
    hub_->is_there = true;
    EXPECT_EQ(error_of(), "");
  }
  start().ignored_file = "README.md";
  EXPECT_EQ(error_of(), "");
  EXPECT_FALSE(hub_->commits()[0].contains("README.md"));
}

TEST_F(UploadTest, PassingFaultsAreOvercome) {
  const Fault broken = [](FakeReply& reply) { reply = {500}; };
  const Fault cut = [](FakeReply& reply) { reply.is_cut = true; };
  const Fault too_old = [](FakeReply& reply) { reply = {403}; };
  const Fault wrong_etag = [](FakeReply& reply) { reply.headers["ETag"] = "\"other\""; };
  const Fault no_etag = [](FakeReply& reply) { reply.headers.clear(); };
  struct Case {
    const char* what;
    std::string step;
    std::vector<Fault> faults;
    int64_t part_bytes = 0;
    int64_t batches = 1;
  };
  std::vector<Case> cases = {{"an address that is too old", "put", {too_old}, 0, 2},
                             {"a part's address that is too old", "put", {too_old}, 9'000, 2},
                             {"a wrong ETag", "put", {wrong_etag}, 9'000, 2},
                             {"no ETag", "put", {no_etag, no_etag}, 9'000, 3},
                             {"a file that is not verified", "verify", {too_old}, 0, 2}};
  for (const char* step : {"create", "preupload", "batch", "put", "complete", "verify", "commit"}) {
    cases.push_back({"500", step, {broken}, 9'000});
    cases.push_back({"a connection that breaks, twice", step, {cut, cut}, 9'000});
  }
  cases.push_back({"a whole file that breaks", "put", {cut, broken}});
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what + std::string(": ") + each.step);
    start().part_bytes = each.part_bytes;
    hub_->fail_next(each.step, each.faults);
    EXPECT_EQ(error_of(), "");
    const Steps steps = hub_->steps();
    const auto count = [&](const char* step) { return std::count(steps.begin(), steps.end(), step); };
    if (each.step == "put" || each.step == "verify") {
      EXPECT_EQ(count("batch"), each.batches);
    }
    // A commit whose answer was lost is made once more, with the same contents.
    if (each.step != "commit") expect_all_is_there();
    EXPECT_EQ(hub_->commits().back().size(), 5U);
  }
}

TEST_F(UploadTest, LastingFaultsAreTold) {
  const Fault broken = [](FakeReply& reply) { reply = {500}; };
  const Fault no_etag = [](FakeReply& reply) { reply.headers.clear(); };
  const auto says = [](const std::string& body) {
    return Fault([body](FakeReply& reply) { reply = {200, body}; });
  };
  struct Case {
    const char* what;
    std::string step;
    Fault fault;
    std::vector<std::string> parts;
  };
  const Case cases[] = {
      {"500",
       "put",
       broken,
       {"E-STORAGE-HUB-BROKEN]: cannot upload model org/name: model.safetensors: the server answers 500",
        "the same command again sends the rest"}},
      {"no ETag", "put", no_etag, {"E-STORAGE-HUB-UPLOAD", "the storage gives part 1 no ETag"}},
      {"a commit that is refused",
       "commit",
       [](FakeReply& reply) {
         reply = {400, "", {{"X-Error-Message", "bad card"}}};
       },
       {"E-CONFIG-HUB-REFUSED", "got 400: bad card"}},
      {"a refused object",
       "batch",
       [](FakeReply& reply) {
         auto answer = nlohmann::json::parse(reply.body);
         answer["objects"][0]["error"] = {{"code", 422}, {"message", "too large"}};
         reply.body = answer.dump();
       },
       {"E-CONFIG-HUB-REFUSED", "refused model.safetensors; got 422: too large"}},
      {"no objects", "batch", says("{}"), {"E-STORAGE-HUB-ANSWER", "does not mention model.safetensors"}},
      {"fewer parts than needed",
       "batch",
       [](FakeReply& reply) {
         auto answer = nlohmann::json::parse(reply.body);
         answer["objects"][0]["actions"]["upload"]["header"].erase("00002");
         reply.body = answer.dump();
       },
       {"E-STORAGE-HUB-ANSWER", "addresses for 2 parts of model.safetensors, not 3"}},
      {"a file of this machine as the storage",
       "batch",
       [](FakeReply& reply) {
         auto answer = nlohmann::json::parse(reply.body);
         answer["objects"][0]["actions"]["upload"] = {{"href", "file:///tmp/tessera-evil"}};
         reply.body = answer.dump();
       },
       {"E-STORAGE-HUB-ANSWER", "names file:"}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    start().part_bytes = 9'000;
    hub_->fail_next(each.step, std::vector<Fault>(20, each.fault));
    const std::string text = error_of();
    for (const std::string& part : each.parts) EXPECT_THAT(text, HasSubstr(part));
    // The fake hub notes a commit before a fault changes its answer.
    if (each.step != "commit") {
      EXPECT_THAT(hub_->commits(), IsEmpty());
    }
  }
  EXPECT_FALSE(std::filesystem::exists("/tmp/tessera-evil"));
}

TEST_F(UploadTest, WhoMayNotWriteIsToldBeforeTheTraining) {
  const auto prepare_error = [&]() -> std::string {
    try {
      prepare_upload({"org/name"}, limits_);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  ::setenv("HF_TOKEN", "hf_other", 1);
  EXPECT_THAT(prepare_error(), AllOf(HasSubstr("E-CONFIG-HUB-ACCESS"), HasSubstr("does not accept the token"),
                                     HasSubstr("/settings/tokens"), Not(HasSubstr("hf_other"))));
  ::setenv("HF_TOKEN", FakeUploadHub::kToken, 1);
  start().may_make = false;
  EXPECT_THAT(prepare_error(), AllOf(HasSubstr("E-CONFIG-HUB-ACCESS"),
                                     HasSubstr("has no write access to model org/name; got 403"),
                                     HasSubstr("a member of org")));
  start().is_there = true;
  hub_->may_write = false;
  EXPECT_THAT(prepare_error(), AllOf(HasSubstr("E-CONFIG-HUB-ACCESS"), HasSubstr("got 403: not for you")));
  ::setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
  EXPECT_THAT(prepare_error(), HasSubstr("E-STORAGE-HUB-UNREACHABLE]: cannot upload model org/name"));
}

TEST_F(UploadTest, ChecksThatAskNobody) {
  for (const char* name : {"name", "org/", "/name", "a/b/c", "org/na me", "org/.name", "org/na--me",
                           "org/a..b", "org/name.git", "../name", "org/name-"})
    EXPECT_THAT(check_error({name}), HasSubstr("E-CONFIG-HUB-NAME")) << name;
  for (const char* name : {"org/name", "a/b", "Org-1/SmolLM2-135M_v1.0"}) EXPECT_EQ(check_error({name}), "");
  EXPECT_THAT(check_error({"org/name", "a b"}), HasSubstr("E-CONFIG-HUB-NAME"));
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  EXPECT_THAT(check_error({"org/name"}), AllOf(HasSubstr("E-CONFIG-HUB-OFFLINE"), HasSubstr("HF_HUB_OFFLINE"),
                                               HasSubstr("push_to_hub=false")));
  ::unsetenv("HF_HUB_OFFLINE");
  ::unsetenv("HF_TOKEN");
  EXPECT_THAT(check_error({"org/name"}), AllOf(HasSubstr("E-CONFIG-HUB-ACCESS"), HasSubstr("needs a token"),
                                               HasSubstr("hf auth login")));
  home_.write("token", "hf_file\n");
  EXPECT_EQ(check_error({"org/name"}), "");
  EXPECT_THAT(hub_->hub_requests(), IsEmpty());
  EXPECT_EQ((UploadTarget{"org/name", "v1", true}.command("my out's")),
            "tessera upload 'my out'\\''s' org/name --private --revision v1");
}

TEST_F(UploadTest, FoldersWithoutAResultAreRefused) {
  namespace fs = std::filesystem;
  fs::remove(home_ / "out/model.safetensors");
  EXPECT_THAT(error_of(), AllOf(HasSubstr("cannot upload " + folder()), HasSubstr("no weights")));
  home_.write("out/model.safetensors.index.json", R"({"weight_map": {"a": "b.safetensors"}})");
  EXPECT_THAT(error_of(), AllOf(HasSubstr("E-CONFIG-UPLOAD-FILES"), HasSubstr("b.safetensors")));
  fs::remove_all(home_ / "out");
  home_.write("out/manifest.json", "{}");
  EXPECT_THAT(error_of(), AllOf(HasSubstr("E-CONFIG-UPLOAD-FILES"), HasSubstr("tessera convert")));
  home_.write("out/adapter_config.json", "{}");
  home_.write("out/adapter_model.safetensors", "");
  EXPECT_EQ(error_of(), "");
  EXPECT_THAT(hub_->commits().back(), UnorderedElementsAre(Pair("adapter_config.json", base64("{}")),
                                                           Pair("adapter_model.safetensors", "")))
      << "the storage takes no file without bytes";
}

TEST_F(UploadTest, AdaptersNameTheirBaseModelForOthers) {
  std::filesystem::remove_all(home_ / "out");
  home_.write("out/adapter_model.safetensors", weights_text());
  const auto uploaded = [&](const std::string& base) {
    home_.write("out/adapter_config.json", R"({"r": 8, "base_model_name_or_path": ")" + base + "\"}");
    start();
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(error_of(), "");
    const std::string told = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(told.find("names a folder of this machine") != std::string::npos, base == "/models/a") << base;
    return hub_->commits().back().at("adapter_config.json");
  };
  const std::string snapshot = "/cache/hub/models--org--base/snapshots/0123";
  EXPECT_EQ(uploaded(snapshot), base64("{\n  \"r\": 8,\n  \"base_model_name_or_path\": \"org/base\"\n}\n"));
  for (const std::string base : {"org/base", "/models/a"})
    EXPECT_EQ(uploaded(base), base64(R"({"r": 8, "base_model_name_or_path": ")" + base + "\"}"));
}

TEST_F(UploadTest, ARequestToStopEndsIt) {
  prepare_upload({"org/name"}, limits_);
  std::atomic<bool> stop = false;
  hub_->fail_next("put", {[&](FakeReply& reply) {
                    stop = true;
                    reply = {500};
                  }});
  EXPECT_THROW(upload(files_to_upload(folder()), {"org/name"}, stop, limits_), Error);
  EXPECT_THAT(hub_->commits(), IsEmpty());
  // Nor is a large file read to its end for its checksum.
  UploadClient client({"org/name"}, limits_, stop);
  const LocalFile file{"model.safetensors", folder() + "/model.safetensors", 20'000};
  EXPECT_THROW(sha256_of(file, [&] { client.check_stop(); }), Error);
}

}  // namespace
}  // namespace tessera::hub

#include "tessera/serving/dashboard.h"

#include <filesystem>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/http_client.h"
#include "tests/testing/temp_folder.h"

namespace tessera::serving {
namespace {

using ::testing::HasSubstr;
using testing::HttpAnswer;

class DashboardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.write("runs/a/metrics.jsonl", "{\"step\":1,\"loss\":2}\n{\"step\":2,\"lo");
    folder_.write("runs/a/recipe.yaml", "max_steps: 4\n# <script>\xff\n");
    folder_.write("runs/<b>.tessera-partial/metrics.jsonl", "");
    folder_.write("secret/metrics.jsonl", "secret\n");
    start({});
  }
  void start(ApiKeys keys) {
    server_.reset();
    dashboard_.emplace(std::vector<std::string>{folder_ / "runs"}, std::move(keys));
    server_.emplace(
        HttpOptions{}, [this](const HttpRequest& head) { return dashboard_->check(head); },
        [this](const std::shared_ptr<HttpExchange>& exchange) { dashboard_->handle(exchange); });
  }
  HttpAnswer get(const std::string& path, const std::string& headers = "") const {
    return testing::get(server_->port(), path, headers);
  }

  testing::TempFolder folder_;
  std::optional<Dashboard> dashboard_;
  std::optional<HttpServer> server_;
};

TEST_F(DashboardTest, ListsRunsAndGivesTheirLinesAsTheyCome) {
  const auto runs = get("/runs").json().at("runs");
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].at("name"), "<b>");
  EXPECT_EQ(runs[0].at("state"), "failed");
  EXPECT_EQ(runs[1].at("state"), "finished");
  EXPECT_EQ(runs[1].at("step"), 1);
  EXPECT_EQ(runs[1].at("steps"), 4);
  EXPECT_EQ(runs[1].at("seconds_left"), nullptr);
  const auto first = get("/runs/1/metrics").json();
  EXPECT_EQ(first.at("lines"), "{\"step\":1,\"loss\":2}\n");
  const std::string next = "/runs/1/metrics?after=" + std::to_string(first.at("next").get<int>()) +
                           "&mark=" + first.at("mark").get<std::string>();
  EXPECT_EQ(get(next).json().at("lines"), "");
  EXPECT_EQ(runs[1].at("sample_bytes"), 0);
  EXPECT_EQ(get("/runs/1/samples").status, 404);
  folder_.write("runs/a/samples.jsonl", "{\"step\":1}\n{");
  EXPECT_EQ(get("/runs").json().at("runs")[1].at("sample_bytes"), 12);
  EXPECT_EQ(get("/runs/1/samples").json().at("lines"), "{\"step\":1}\n");
  folder_.write("runs/a/metrics.jsonl", "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":\"\xff\"}\n");
  EXPECT_EQ(get(next).json().at("lines"), "{\"step\":2,\"loss\":\"\ufffd\"}\n");
  folder_.write("runs/a/metrics.jsonl", "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4}\n");
  EXPECT_EQ(get(next).json().at("begin"), 0);
  const HttpAnswer recipe = get("/runs/1/recipe");
  EXPECT_EQ(recipe.body, "max_steps: 4\n# <script>\ufffd\n");
  EXPECT_EQ(recipe.headers.at("content-type"), "text/plain; charset=utf-8");
  EXPECT_EQ(recipe.headers.at("x-content-type-options"), "nosniff");
  std::filesystem::remove_all(folder_ / "runs/a");
  EXPECT_EQ(get("/runs").json().at("runs")[1].at("state"), "gone");
  EXPECT_EQ(get("/runs/1/metrics").status, 404);
}

TEST_F(DashboardTest, NoPathLeavesTheFolders) {
  std::filesystem::create_symlink(folder_ / "secret/metrics.jsonl", folder_ / "runs/a/recipe.yaml.tmp");
  std::filesystem::rename(folder_ / "runs/a/recipe.yaml.tmp", folder_ / "runs/a/recipe.yaml");
  const std::pair<const char*, int> rows[] = {
      {"/runs/1/recipe", 404},  // a link by now
      {"/runs/2/metrics", 404},
      {"/runs/-1/metrics", 404},
      {"/runs/18446744073709551616/metrics", 404},
      {"/runs/1", 404},
      {"/runs/", 404},
      {"/runs/1/", 404},
      {"/runs//metrics", 404},
      {"/runs/1x/metrics", 404},
      {"/runs/+1/metrics", 404},
      {"/runs/1/../../secret/metrics", 404},
      {"/runs/../secret/metrics.jsonl", 404},
      {"/runs/%2e%2e/metrics", 404},
      {"/runs/1/metrics.jsonl", 404},
      {"/runs/1/metrics/../recipe", 404},
      {"/secret/metrics.jsonl", 404},
      {"//etc/passwd", 404},
      {"/runs/1/metrics?after=x", 400},
      {"/runs/1/metrics?after=-1", 400},
      {"/runs/1/metrics?after=99999999999999999999", 400},
      {"/runs/1/metrics?after=9223372036854775807&mark=../x", 200},
      {"/runs/1/metrics?mark=a&&after", 200},
      {"/health", 200},
  };
  for (const auto& [path, status] : rows) {
    const HttpAnswer answer = get(path);
    EXPECT_EQ(answer.status, status) << path << ": " << answer.body;
    EXPECT_THAT(answer.body, ::testing::Not(HasSubstr("secret\n"))) << path;
  }
  testing::HttpClient client(server_->port());
  client.send("DELETE /runs HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.reply().status, 405);
}

TEST_F(DashboardTest, ThePageHasAStrictPolicyAndAsksForTheKey) {
  start(ApiKeys({"k"}));
  const HttpAnswer page = get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.headers.at("content-security-policy"), HasSubstr("default-src 'none'"));
  for (const char* outside : {"src=", "href=", "@import", "url(", "innerHTML", "eval("})
    EXPECT_EQ(page.body.find(outside), std::string::npos) << outside;
  for (const char* path : {"/runs", "/runs/0/metrics", "/runs/0/recipe", "/other"}) {
    EXPECT_EQ(get(path).status, 401) << path;
  }
  EXPECT_EQ(get("/runs", "Authorization: Bearer k\r\n").status, 200);
}

}  // namespace
}  // namespace tessera::serving

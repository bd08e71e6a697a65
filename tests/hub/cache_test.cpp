#include "tessera/hub/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/testing/temp_folder.h"

namespace tessera::hub {
namespace {

class HubCacheTest : public ::testing::Test {
 protected:
  HubCacheTest() {
    ::setenv("HF_HUB_CACHE", folder_.path().c_str(), 1);
    folder_.write("datasets--org--name/refs/main", "abc\n");
    folder_.write("datasets--org--name/refs/pr/1", "def");
    folder_.write("datasets--org--name/snapshots/abc/a.jsonl", "");
    folder_.write("datasets--org--name/snapshots/def/a.jsonl", "");
    folder_.write("datasets--one/snapshots/123/a.jsonl", "");
    folder_.write("models--org--name/refs/main", "abc");
    folder_.write("models--org--name/snapshots/abc/config.json", "");
    folder_.write("datasets--org--evil/refs/main", "../../models--org--name/snapshots/abc");
  }
  ~HubCacheTest() override {
    for (const char* name : {"HF_HUB_CACHE", "HF_HOME"}) ::unsetenv(name);
  }

  std::string find(const std::string& id, const std::string& revision = "") {
    const auto found = find_snapshot({Kind::Dataset, id, revision});
    return found ? found->substr(folder_.path().size() + 1) : "";
  }

  testing::TempFolder folder_;
};

TEST_F(HubCacheTest, FindsSnapshotsByRevision) {
  EXPECT_EQ(find("org/name"), "datasets--org--name/snapshots/abc");
  EXPECT_EQ(find("org/name", "pr/1"), "datasets--org--name/snapshots/def");
  EXPECT_EQ(find("org/name", "def"), "datasets--org--name/snapshots/def");
  EXPECT_EQ(find("org/name", "v2"), "");
  EXPECT_EQ(find("one"), "datasets--one/snapshots/123");
  EXPECT_EQ(find("one", "main"), "");
  EXPECT_FALSE(find_snapshot({Kind::Dataset, "one", ""}, false)) << "it may be of another revision than main";
  EXPECT_TRUE(find_snapshot({Kind::Dataset, "org/name", ""}, false));
  EXPECT_EQ(find("org/none"), "");
  EXPECT_EQ(find("org/evil"), "") << "a reference is no path";
  EXPECT_TRUE(find_snapshot({Kind::Model, "org/name", ""}).has_value());
  EXPECT_FALSE(find_snapshot({Kind::Model, "one", ""}).has_value());
}

TEST_F(HubCacheTest, TheFolderIsThatOfTheUsersTools) {
  EXPECT_EQ(cache_folder(), folder_.path());
  ::unsetenv("HF_HUB_CACHE");
  ::setenv("HF_HOME", "/of/the/user", 1);
  EXPECT_EQ(cache_folder(), "/of/the/user/hub");
  ::unsetenv("HF_HOME");
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_THAT(cache_folder(), ::testing::EndsWith("/.cache/huggingface/hub"));
  ::setenv("XDG_CACHE_HOME", "/caches", 1);
  EXPECT_EQ(cache_folder(), "/caches/huggingface/hub");
}

TEST_F(HubCacheTest, NamesOfTheHub) {
  for (const char* name : {"org/name", "name", "Open-Orca/Slim.Orca_2"}) EXPECT_TRUE(is_hub_id(name)) << name;
  for (const char* name : {"", "/a", "a/", "a/b/c", "../a", "a/..", "s3://a", "a b", "a/*.json"})
    EXPECT_FALSE(is_hub_id(name)) << name;
  for (const char* name : {"a", "a/b.c", "a b/c"}) EXPECT_TRUE(is_inner_path(name)) << name;
  for (const char* name : {"", "/a", "a/", "a//b", "a/./b", "../a", "a/..", "a\\b", "a\nb"})
    EXPECT_FALSE(is_inner_path(name)) << name;
  EXPECT_EQ(download_command({Kind::Dataset, "a/b", "v1"}),
            "hf download --repo-type dataset a/b --revision v1");
}

}  // namespace
}  // namespace tessera::hub

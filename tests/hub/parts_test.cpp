// The small parts that a download is made of.
#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/base64.h"
#include "tessera/core/error.h"
#include "tessera/core/sha256.h"
#include "tessera/hub/progress.h"
#include "tessera/hub/snapshot.h"
#include "tessera/io/http_client.h"

#include "tests/testing/temp_folder.h"

namespace tessera::hub {
namespace {

std::string sha256(const std::vector<std::string>& parts) {
  Sha256 hash;
  for (const std::string& part : parts) hash.add(part);
  return hash.hex();
}

// The checksums are those of sha256sum.
TEST(HubPartsTest, Sha256) {
  EXPECT_EQ(sha256({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256({"abc"}), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256({"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"}),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256({std::string(1'000'000, 'a')}),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // However the bytes are cut, the checksum is the same.
  for (size_t size = 0; size < 200; ++size) {
    const std::string text(size, 'q');
    for (const size_t cut : {size / 3, size / 2, size - size / 7})
      EXPECT_EQ(sha256({text.substr(0, cut), text.substr(cut)}), sha256({text})) << size;
  }
}

TEST(HubPartsTest, SeveralCanLinkTheSameFiles) {
  const tessera::testing::TempFolder cache;
  ::setenv("HF_HUB_CACHE", cache.path().c_str(), 1);
  cache.write("models--org--name/blobs/abc", "");
  Listing listing{"0123"};
  std::vector<RemoteFile> files;
  for (int i = 0; i < 1000; ++i) files.push_back({std::to_string(i), 0, "abc"});
  std::atomic<int> num_ready = 0;
  std::vector<std::thread> threads;
  std::vector<std::string> faults(4);
  for (std::string& fault : faults) {
    threads.emplace_back([&] {
      for (++num_ready; num_ready < 4;) std::this_thread::yield();
      try {
        make_snapshot({Kind::Model, "org/name", "0123"}, listing, files);
      } catch (const Error& error) {
        fault = error.what();
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_THAT(faults, ::testing::Each(""));
}

TEST(HubPartsTest, StatesOfSnapshotsThatOtherToolsHaveMade) {
  struct Case {
    std::vector<std::string> files;
    ChooseFiles choose;
    SnapshotState state;
  };
  const ChooseFiles all = [](const Names& names, const ReadFile&) {
    return Choice{{names.begin(), names.end()}, false};
  };
  const std::string part = "data/train-00000-of-00002", other = "data/train-00001-of-00002",
                    hash = "-0123456789abcdef.parquet", other_hash = "-fedcba9876543210.parquet";
  const Case cases[] = {
      {{part + ".parquet"}, all, SnapshotState::Lacking},
      {{part + ".parquet", other + ".parquet"}, all, SnapshotState::Unsure},
      {{part + hash}, all, SnapshotState::Lacking},
      {{part + hash, other + other_hash}, all, SnapshotState::Unsure},
      {{part + "-a.parquet", other + "-b.parquet"}, all, SnapshotState::Lacking},
      {{"tokenizer.json"}, choose_tokenizer, SnapshotState::Unsure},
      {{"tokenizer.json", "tokenizer_config.json"}, choose_tokenizer, SnapshotState::Whole},
      {{"config.json", "model.safetensors", "tokenizer.json"}, choose_model, SnapshotState::Unsure},
      {{"adapter_config.json", "adapter_model.safetensors"}, choose_adapter, SnapshotState::Unsure},
      {{"M-00001-of-00002.gguf"}, choose_one("M-00001-of-00002.gguf"), SnapshotState::Lacking},
      {{"M-00001-of-00002.gguf", "M-00002-of-00002.gguf"},
       choose_one("M-00001-of-00002.gguf"),
       SnapshotState::Whole},
      {{"M-00003-of-00002.gguf"}, choose_one("M-00003-of-00002.gguf"), SnapshotState::Whole},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(::testing::PrintToString(each.files));
    const tessera::testing::TempFolder cache;
    ::setenv("HF_HUB_CACHE", cache.path().c_str(), 1);
    const Repository repository{Kind::Model, "org/name", ""};
    for (const std::string& file : each.files) cache.write("models--org--name/snapshots/0123/" + file, "");
    EXPECT_EQ(state_of(repository, repository.snapshot_folder("0123"), each.choose), each.state);
  }
}

// The texts are those of RFC 4648.
TEST(HubPartsTest, Base64) {
  const std::string text = "foobar";
  const char* const wanted[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
  for (size_t size = 0; size <= text.size(); ++size) EXPECT_EQ(base64(text.substr(0, size)), wanted[size]);
  EXPECT_EQ(base64("\xff\xfe\x00\x80"), "//4=") << "a text of C ends before its NUL";
  EXPECT_EQ(base64(std::string_view("\xff\xfe\x00\x80", 4)), "//4AgA==");
}

TEST(HubPartsTest, AddressesAndProgress) {
  EXPECT_EQ(io::url_quoted("a b/\xc3\xa9+%.json", true), "a%20b/%C3%A9%2B%25.json");
  EXPECT_EQ(io::url_quoted("refs/pr/1", false), "refs%2Fpr%2F1");
  EXPECT_EQ(progress_line("org/name", 1 << 29, 1 << 30, 1 << 28, 4.0),
            "org/name: [============            ] 50 % of 1.0 GiB, 64.0 MiB/s, 8s left");
  EXPECT_EQ(progress_line("a/b", 0, 0, 0, 0.0), "a/b: [========================] 100 % of 0 B, 0 B/s");
  EXPECT_EQ(progress_line("a/b", -5, 100, -5, 1.0), "a/b: [                        ] 0 % of 100 B, 0 B/s")
      << "more was fetched again than had come";
}

}  // namespace
}  // namespace tessera::hub

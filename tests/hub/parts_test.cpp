// The small parts that a download is made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/sha256.h"
#include "tessera/hub/http_client.h"
#include "tessera/hub/progress.h"

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

TEST(HubPartsTest, AddressesAndProgress) {
  EXPECT_EQ(url_quoted("a b/\xc3\xa9+%.json", true), "a%20b/%C3%A9%2B%25.json");
  EXPECT_EQ(url_quoted("refs/pr/1", false), "refs%2Fpr%2F1");
  EXPECT_EQ(progress_line("org/name", 1 << 29, 1 << 30, 1 << 28, 4.0),
            "org/name: [============            ] 50 % of 1.0 GiB, 64.0 MiB/s, 8s left");
  EXPECT_EQ(progress_line("a/b", 0, 0, 0, 0.0), "a/b: [========================] 100 % of 0 B, 0 B/s");
  EXPECT_EQ(progress_line("a/b", -5, 100, -5, 1.0), "a/b: [                        ] 0 % of 100 B, 0 B/s")
      << "more was fetched again than had come";
}

}  // namespace
}  // namespace tessera::hub

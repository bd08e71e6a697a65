// Compares the ids of the shared data by digests: one number for each file and family.
#include <cinttypes>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/text/tokenizer/tokenizer.h"

#include "tests/testing/paths.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/skip.h"

namespace tessera::text {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

const fs::path kReference = fs::path(testing::source_folder()) / "tests/reference/data/tokenizer";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

struct Digest {
  const Tokenizer& tokenizer;
  uint64_t hash = 0xcbf29ce484222325;
  int64_t count = 0;

  void add(std::string_view text) {
    const auto ids = tokenizer.encode(text);
    for (const int32_t id : ids) mix(static_cast<uint64_t>(id));
    mix(uint64_t{1} << 32);
    count += static_cast<int64_t>(ids.size());
  }
  void add_strings(const ordered_json& value) {
    if (value.is_string()) {
      add(value.get_ref<const std::string&>());
    } else if (value.is_structured()) {
      for (const auto& item : value) add_strings(item);
    }
  }
  void mix(uint64_t value) { hash = (hash ^ value) * 0x100000001b3; }
};

void add_file(Digest& digest, const fs::path& path) {
  const std::string content = read_file(path);
  const auto lines = [&](auto use) {
    for (size_t begin = 0; begin <= content.size();) {
      const size_t end = std::min(content.find('\n', begin), content.size());
      use(std::string_view(content).substr(begin, end - begin));
      begin = end + 1;
    }
  };
  if (path.extension() == ".txt") {
    digest.add(content);
    lines([&](std::string_view line) { digest.add(line); });
  } else if (path.extension() == ".jsonl") {
    lines([&](std::string_view line) {
      if (!line.empty()) digest.add_strings(ordered_json::parse(line));
    });
  } else {
    digest.add_strings(ordered_json::parse(content));
  }
}

TEST(TokenizerSharedData, DigestsEqualTheReference) {
  const fs::path folder = testing::shared_data("tinyshakespeare.txt");
  if (folder.empty()) GTEST_SKIP() << testing::skip::kSharedData;
  const auto reference = ordered_json::parse(read_file(kReference / "shared_data.json"));
  for (const auto& [family, files] : reference.items()) {
    const Tokenizer tokenizer = Tokenizer::from_file((kReference / family / "tokenizer.json").string());
    for (const auto& [name, wanted] : files.items()) {
      Digest digest{tokenizer};
      add_file(digest, folder / name);
      char text[17];
      std::snprintf(text, sizeof text, "%016" PRIx64, digest.hash);
      EXPECT_EQ(digest.count, wanted[0].get<int64_t>()) << family << ' ' << name;
      EXPECT_EQ(text, wanted[1].get<std::string>()) << family << ' ' << name;
    }
  }
}

}  // namespace
}  // namespace tessera::text

// Runs a fuzz target without libFuzzer: replay FOLDER [SEED]. It takes every file of the folder, and some
// hundred copies of each with random changes, which are the same for the same seed. If an input ends the
// program, it is in the file that the program has named.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

namespace {

using Bytes = std::vector<uint8_t>;

constexpr int kCopies = 200;

Bytes read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

Bytes changed(Bytes bytes, std::mt19937_64& random) {
  const uint64_t num_changes = 1 + random() % 4;
  for (uint64_t i = 0; i < num_changes; ++i) {
    const size_t at = bytes.empty() ? 0 : random() % bytes.size();
    const size_t count = std::min<size_t>(1 + random() % 16, bytes.size() - at);
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (random() % 5) {
      case 0:
        if (!bytes.empty()) bytes[at] ^= static_cast<uint8_t>(1U << (random() % 8));
        break;
      case 1: bytes.erase(place, place + static_cast<std::ptrdiff_t>(count)); break;
      case 2: bytes.resize(at); break;
      case 3: {
        const Bytes part(place, place + static_cast<std::ptrdiff_t>(count));
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(random() % (bytes.size() + 1)), part.begin(),
                     part.end());
        break;
      }
      default: bytes.insert(place, static_cast<uint8_t>(random()));
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FOLDER [SEED]\n", argv[0]);
    return 2;
  }
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::random_device()();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  std::mt19937_64 random(seed);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    std::fprintf(stderr, "%s holds no input\n", argv[1]);
    return 2;
  }
  const std::filesystem::path current =
      std::filesystem::temp_directory_path() / ("tessera-fuzz-" + std::to_string(getpid()));
  for (const auto& file : files) {
    const Bytes original = read_file(file);
    for (int copy = 0; copy <= kCopies; ++copy) {
      const Bytes bytes = copy == 0 ? original : changed(original, random);
      std::ofstream(current, std::ios::binary | std::ios::trunc)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
  }
  std::filesystem::remove(current);
  std::printf("%zu inputs, %d changed copies of each\n", files.size(), kCopies);
  return 0;
}

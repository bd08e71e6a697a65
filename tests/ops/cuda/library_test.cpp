// Tests of the library that nvcc has made: its exports, the devices that it has code for, and the compiler's
// messages.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <elf.h>
#include <gtest/gtest.h>

#include "tessera/core/shared_library.h"
#include "tessera/ops/cuda/kernels.h"

#include "tests/testing/paths.h"
#include "tests/testing/skip.h"

namespace tessera::ops::cuda {
namespace {

namespace fs = std::filesystem;

fs::path build_folder() { return fs::path(testing::program_path()).parent_path(); }

class CudaLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(path_)) GTEST_SKIP() << testing::skip::kNvcc;
    std::ifstream file(path_, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    ASSERT_GT(bytes_.size(), sizeof(Elf64_Ehdr));
  }

  template <class T>
  T at(size_t place) const {
    T value;
    EXPECT_LE(place + sizeof value, bytes_.size());
    std::memcpy(&value, bytes_.data() + place, sizeof value);
    return value;
  }
  Elf64_Shdr section(size_t number) const {
    const auto header = at<Elf64_Ehdr>(0);
    return at<Elf64_Shdr>(header.e_shoff + number * header.e_shentsize);
  }
  size_t sections() const { return at<Elf64_Ehdr>(0).e_shnum; }
  Elf64_Shdr section(const std::string& name) const {
    const size_t names = section(at<Elf64_Ehdr>(0).e_shstrndx).sh_offset;
    for (size_t i = 0; i < sections(); ++i) {
      if (name == bytes_.data() + names + section(i).sh_name) return section(i);
    }
    ADD_FAILURE() << "no section " << name;
    return {};
  }

  const fs::path path_ = build_folder() / "libtessera_cuda.so";
  std::vector<char> bytes_;
};

TEST_F(CudaLibrary, ExportsOneSymbol) {
  const Elf64_Shdr symbols = section(".dynsym"), names = section(".dynstr");
  std::set<std::string> exported;
  for (size_t i = 0; i < symbols.sh_size / sizeof(Elf64_Sym); ++i) {
    const auto symbol = at<Elf64_Sym>(symbols.sh_offset + i * sizeof(Elf64_Sym));
    if (symbol.st_shndx != SHN_UNDEF) exported.insert(bytes_.data() + names.sh_offset + symbol.st_name);
  }
  EXPECT_EQ(exported, std::set<std::string>{kCudaKernelsSymbol});
}

// The container of device code has a header of 16 bytes, then entries, each with a header that gives its kind
// (1 = PTX, 2 = machine code), its size and the device.
TEST_F(CudaLibrary, HasCodeForEveryDevice) {
  constexpr uint32_t kMagic = 0xba55ed50;
  const Elf64_Shdr code = section(".nv_fatbin");
  std::map<std::pair<int, uint32_t>, int> found;
  size_t place = code.sh_offset;
  const size_t end = code.sh_offset + code.sh_size;
  while (place + 16 <= end) {
    if (at<uint32_t>(place) != kMagic) {
      place += 4;  // padding between the containers of two sources
      continue;
    }
    size_t entry = place + at<uint16_t>(place + 6);
    place = entry + at<uint64_t>(place + 8);
    ASSERT_LE(place, end);
    while (entry + 32 <= place) {
      ++found[{at<uint16_t>(entry), at<uint32_t>(entry + 28)}];
      entry += at<uint32_t>(entry + 4) + at<uint64_t>(entry + 8);
    }
    ASSERT_EQ(entry, place);
  }
  const int sources = found[std::pair(2, 80u)];
  EXPECT_GE(sources, 10);
  EXPECT_EQ(found[std::pair(2, 90u)], sources);
  EXPECT_GE(found[std::pair(1, 90u)], 10);
  EXPECT_EQ(found.size(), 3u);
}

// Checks the messages of ptxas: registers that a kernel lacks are spilled to memory. Kernels for rows that
// are too wide for two vectors a thread may spill some.
TEST_F(CudaLibrary, KernelsKeepTheirRegisters) {
  constexpr int kMostBytes = 64;
  const std::regex kernel("Compiling entry function '([^']+)' for '([^']+)'");
  const std::regex spills("([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads");
  std::map<std::string, int> kernels;
  for (const auto& file : fs::directory_iterator(build_folder() / "cuda")) {
    if (!file.path().native().ends_with(".cu.log")) continue;
    std::ifstream log(file.path());
    std::string line, name;
    std::smatch match;
    while (std::getline(log, line)) {
      if (std::regex_search(line, match, kernel)) {
        name = match[1];
        ++kernels[match[2]];
      } else if (std::regex_search(line, match, spills)) {
        EXPECT_LE(std::stoi(match[1]), kMostBytes) << name;
        EXPECT_LE(std::stoi(match[2]), kMostBytes) << name;
      }
    }
  }
  EXPECT_GT(kernels["sm_80"], 50);
  EXPECT_EQ(kernels["sm_90a"], kernels["sm_80"]);
}

TEST_F(CudaLibrary, OpensWithoutADriverAndSaysWhatItLacks) {
  SharedLibrary library({path_});
  CudaKernelsFunction table = nullptr;
  library.find(table, kCudaKernelsSymbol);
  ASSERT_TRUE(library.is_usable()) << library.why_not();
  const CudaKernels& kernels = *table();
  EXPECT_EQ(kernels.version, kCudaKernelsVersion);
  EXPECT_EQ(kernels.size, static_cast<int32_t>(sizeof(CudaKernels)));
  // Every entry is there.
  std::vector<void*> entries((sizeof(CudaKernels) - offsetof(CudaKernels, error_text)) / sizeof(void*));
  std::memcpy(entries.data(), &kernels.error_text, entries.size() * sizeof(void*));
  for (size_t i = 0; i < entries.size(); ++i) EXPECT_NE(entries[i], nullptr) << i;
  // A call without elements starts nothing, and a type that an entry does not take is refused before a
  // device is needed.
  EXPECT_EQ(kernels.cast(Type::F32, nullptr, Type::BF16, nullptr, 0, nullptr), 0);
  const int32_t error = kernels.cast(Type::F64, nullptr, Type::BF16, nullptr, 8, nullptr);
  EXPECT_STREQ(kernels.error_text(error), "invalid argument");
}

}  // namespace
}  // namespace tessera::ops::cuda

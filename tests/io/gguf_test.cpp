#include "tessera/io/gguf.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/io/gguf_writer.h"

#include "tests/io/allocation_meter.h"
#include "tests/io/byte_mutations.h"
#include "tests/io/expect_error.h"
#include "tests/io/gguf_builder.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_folder.h"

namespace tessera::io {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using testing::GgufBytes;
using ::testing::IsEmpty;
using testing::raw;
using testing::TempFolder;

constexpr uint32_t kU8 = 0, kU32 = 4, kF32 = 6, kBool = 7, kString = 8, kArray = 9, kU64 = 10;
const std::string kReference = testing::source_folder() + "/tests/reference/data/gguf/";

std::string array(uint32_t type, uint64_t count, const std::string& elements) {
  return raw(type) + raw(count) + elements;
}

class GgufTest : public ::testing::Test {
 protected:
  void write(const std::string& bytes) { std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes; }
  GgufFile open(const GgufBytes& file) {
    write(file.bytes());
    return GgufFile::open(path_);
  }
  void expect_refused(const std::string& bytes, const std::vector<std::string>& parts) {
    write(bytes);
    std::vector<std::string> all = parts;
    all.push_back(path_);
    const size_t before = testing::allocated_bytes;
    expect_error(ErrorKind::Model, all, [&] { GgufFile::open(path_); });
    EXPECT_LT(testing::allocated_bytes - before, 64 * bytes.size() + 200'000);
  }
  void expect_refused(const GgufBytes& file, const std::vector<std::string>& parts) {
    expect_refused(file.bytes(), parts);
  }

  TempFolder folder_;
  std::string path_ = folder_ / "x.gguf";
};

// Checks that every tensor lies in the file and can be expanded.
void check_in_bounds(const GgufFile& file, int64_t file_size) {
  for (const GgufTensor& tensor : file.tensors()) {
    ASSERT_GE(tensor.begin, 24);
    ASSERT_LE(tensor.begin, tensor.end);
    ASSERT_LE(tensor.end, file_size);
    ASSERT_EQ(tensor.numel() / ggml_block_elements(tensor.type) * ggml_block_bytes(tensor.type),
              tensor.end - tensor.begin);
    ASSERT_EQ(tensor.num_rows() * tensor.row_elements(), tensor.numel());
    std::vector<float> values(static_cast<size_t>(tensor.numel()));
    file.read_f32(tensor, 0, tensor.num_rows(), values.data());
    ASSERT_EQ(file.find(tensor.name), &tensor);
  }
}

TEST_F(GgufTest, ReadsMetadataOfEveryType) {
  const GgufFile file = GgufFile::open(kReference + "f32.gguf");
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.get_string("general.architecture"), "llama");
  EXPECT_EQ(file.get_uint("test.u8"), 200u);
  EXPECT_EQ(file.get_int("test.i8"), -100);
  EXPECT_EQ(file.get_uint("test.u16"), 60000u);
  EXPECT_EQ(file.get_int("test.i16"), -30000);
  EXPECT_EQ(file.get_uint("test.u32"), 4000000000u);
  EXPECT_EQ(file.get_int("test.u32"), 4000000000);
  EXPECT_EQ(file.get_int("test.i32"), -2000000000);
  EXPECT_EQ(file.get_uint("test.u64"), UINT64_MAX);
  EXPECT_EQ(file.get_int("test.i64"), INT64_MIN);
  EXPECT_EQ(file.get_float("test.f32"), 0.1f);
  EXPECT_EQ(file.get_float("test.f64"), 0.1);
  EXPECT_TRUE(file.get_bool("test.bool"));
  EXPECT_EQ(file.get_string("test.string"), std::string("\xc3\xa9\0\n", 4));
  EXPECT_THAT(file.get_strings("test.strings"), ElementsAre("a", "", "ab c"));
  EXPECT_THAT(file.get_ints("test.ints"), ElementsAre(1, -2, 3));
  EXPECT_THAT(file.get_floats("test.floats"), ElementsAre(0.5, -0.25));
  EXPECT_THAT(file.get_bools("test.bools"), ElementsAre(true, false, true));
  EXPECT_TRUE(file.contains("test.u8"));
  EXPECT_FALSE(file.contains("test.u9"));
  EXPECT_EQ(file.get_uint("test.u9", 7), 7u);
  EXPECT_EQ(file.get_uint("test.u8", 7), 200u);
  EXPECT_EQ(file.get_float("none", 1.5), 1.5);
  EXPECT_EQ(file.get_string("none", "x"), "x");
  EXPECT_TRUE(file.get_bool("none", true));
}

TEST_F(GgufTest, GettersNameTheKey) {
  const GgufFile file = GgufFile::open(kReference + "f32.gguf");
  expect_error(ErrorKind::Model, {"E-MODEL-GGUF-MISSING-KEY", "f32.gguf", "'none'"},
               [&] { file.get_uint("none"); });
  const auto refused = [&](const std::string& key, const std::string& got, auto call) {
    expect_error(ErrorKind::Model, {"E-MODEL-GGUF-VALUE", "f32.gguf: key '" + key + "'", "got " + got}, call);
  };
  refused("test.i8", "-100", [&] { file.get_uint("test.i8"); });
  refused("test.u64", "an unsigned integer", [&] { file.get_int("test.u64"); });
  refused("test.f32", "a float", [&] { file.get_uint("test.f32"); });
  refused("test.u8", "an unsigned integer", [&] { file.get_float("test.u8"); });
  refused("test.u8", "an unsigned integer", [&] { file.get_bool("test.u8"); });
  refused("test.u8", "an unsigned integer", [&] { file.get_string("test.u8"); });
  refused("test.bool", "a bool", [&] { file.get_int("test.bool"); });
  refused("test.strings", "an array of strings", [&] { file.get_ints("test.strings"); });
  refused("test.ints", "an array of numbers", [&] { file.get_strings("test.ints"); });
  refused("test.ints", "an array of numbers", [&] { file.get_floats("test.ints"); });
  refused("test.floats", "an array of numbers", [&] { file.get_ints("test.floats"); });
  refused("test.bools", "an array of numbers", [&] { file.get_ints("test.bools"); });
  refused("test.ints", "an array of numbers", [&] { file.get_bools("test.ints"); });
  refused("test.string", "a string", [&] { file.get_uint("test.string", 1); });
}

TEST_F(GgufTest, ShapesAreInPyTorchOrder) {
  const GgufFile file = GgufFile::open(kReference + "q4_k.gguf");
  const GgufTensor* tensor = file.find("blk.1.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_THAT(tensor->shape, ElementsAre(2, 1, 512));
  EXPECT_EQ(tensor->row_elements(), 512);
  EXPECT_EQ(tensor->num_rows(), 2);
  EXPECT_EQ(tensor->type_name(), "Q4_K");
  EXPECT_EQ(file.find("none"), nullptr);
}

TEST_F(GgufTest, ReadingThroughTheBufferEqualsReadingByRows) {
  // The tensor is several times as large as the buffer of 1 MiB, in a type whose blocks do not divide the
  // buffer.
  constexpr int64_t kRows = 300, kRow = 256 * 64;
  const GgufBytes file =
      GgufBytes().tensor("t", {kRow, kRows}, 14, 0).with_data(static_cast<size_t>(kRows * kRow / 256 * 210));
  const GgufFile gguf = open(file);
  const GgufTensor& tensor = gguf.tensors().front();
  std::vector<float> all(static_cast<size_t>(kRows * kRow)), row(static_cast<size_t>(kRow));
  gguf.read_f32(tensor, 0, kRows, all.data());
  for (int64_t i = 0; i < kRows; ++i) {
    gguf.read_f32(tensor, i, 1, row.data());
    ASSERT_TRUE(std::equal(row.begin(), row.end(), all.begin() + i * kRow)) << i;
  }
}

TEST_F(GgufTest, ReadOutsideTheTensorIsAnInternalError) {
  const GgufFile file = GgufFile::open(kReference + "q4_0.gguf");
  const GgufTensor& tensor = *file.find("blk.0.weight");
  float value = 0;
  for (const auto& [first, count] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {3, 1}, {-1, 1}, {4, 0}, {0, -1}, {1, INT64_MAX}}) {
    expect_error(ErrorKind::Internal, {"blk.0.weight"},
                 [&, f = first, n = count] { file.read_f32(tensor, f, n, &value); });
  }
}

TEST_F(GgufTest, FileThatShrinksIsStorage) {
  const GgufFile file = open(GgufBytes().tensor("t", {32}, 2, 0).with_data(18));
  write("");
  float values[32];
  expect_error(ErrorKind::Storage, {"E-STORAGE-SHORT-READ"},
               [&] { file.read_f32(file.tensors()[0], 0, 1, values); });
  expect_error(ErrorKind::Storage, {"E-STORAGE-NOT-FOUND"}, [&] { GgufFile::open(folder_ / "none"); });
}

TEST_F(GgufTest, MagicAndVersion) {
  expect_refused("", {"the file ends inside the magic number"});
  expect_refused("GGU", {"the file ends"});
  GgufBytes file;
  file.magic = "FUGG";
  expect_refused(file, {"E-MODEL-GGUF-MAGIC", "got 'FUGG'"});
  file.magic = "GGUF";
  for (const uint32_t version : {0u, 1u, 4u, 102u, UINT32_MAX}) {
    file.version = version;
    expect_refused(file, {"E-MODEL-GGUF-VERSION", "got " + std::to_string(version)});
  }
  file.version = 3u << 24;
  expect_refused(file, {"E-MODEL-GGUF-VERSION", "big-endian"});
  for (const uint32_t version : {2u, 3u}) {
    file.version = version;
    EXPECT_EQ(open(file).version(), version);
    EXPECT_THAT(open(file).tensors(), IsEmpty());
  }
}

TEST_F(GgufTest, CountsBeyondTheFile) {
  for (const int64_t count :
       {int64_t{-1}, int64_t{1}, int64_t{1000}, int64_t{1'000'000'000'000}, INT64_MAX, INT64_MIN}) {
    GgufBytes file;
    file.num_tensors = count;
    expect_refused(file, {"impossible number of tensors", "got " + std::to_string(count)});
    file.num_tensors = 0;
    file.num_keys = count;
    expect_refused(file, {"impossible number of keys", "got " + std::to_string(count)});
  }
  GgufBytes file;
  file.entry("k", kU32, raw<uint32_t>(1)).num_keys = 2;
  file.data = std::string(100, '\0');
  expect_refused(file, {"empty key"});
}

TEST_F(GgufTest, Keys) {
  for (const uint64_t length : {UINT64_MAX, uint64_t{1} << 63, uint64_t{65536}}) {
    GgufBytes file;
    file.num_keys = 1;
    file.entries = raw(length) + "key" + std::string(100'000, 'k');
    expect_refused(file, {"a key is too long"});
  }
  GgufBytes long_key;
  long_key.num_keys = 1;
  long_key.entries = raw<uint64_t>(1000) + "key" + std::string(100, 'k');
  expect_refused(long_key, {"the file ends inside a key", "need 1000"});
  expect_refused(GgufBytes().entry("", kU32, raw<uint32_t>(1)), {"empty key"});
  for (const std::string key : {"a b", "a\n", "\xc3\xa9", "\x7f"}) {
    expect_refused(GgufBytes().entry(key, kU32, raw<uint32_t>(1)), {"printable ASCII"});
  }
  expect_refused(GgufBytes().entry(std::string("a\0b", 3), kU32, raw<uint32_t>(1)), {"printable ASCII"});
  expect_refused(GgufBytes().entry("k", kU32, raw<uint32_t>(1)).entry("k", kU32, raw<uint32_t>(1)),
                 {"E-MODEL-GGUF-DUPLICATE", "key 'k'"});
  EXPECT_EQ(open(GgufBytes().entry("command-r.n", kU32, raw<uint32_t>(5))).get_uint("command-r.n"), 5u);
  EXPECT_EQ(open(GgufBytes().entry(std::string(65535, 'k'), kU8, raw<uint8_t>(5)))
                .get_uint(std::string(65535, 'k')),
            5u);
}

TEST_F(GgufTest, Values) {
  for (const uint32_t type : {13u, 14u, 1000u, UINT32_MAX}) {
    expect_refused(GgufBytes().entry("k", type, raw<uint64_t>(1)),
                   {"key 'k'", "unknown value type", "got " + std::to_string(type)});
  }
  for (const uint8_t value : {2, 7, 255}) {
    expect_refused(GgufBytes().entry("k", kBool, raw(value)),
                   {"key 'k'", "must be 0 or 1", "got " + std::to_string(value)});
    expect_refused(GgufBytes().entry("k", kArray, array(kBool, 2, raw<uint8_t>(1) + raw(value))),
                   {"key 'k'", "must be 0 or 1"});
  }
  for (const uint64_t length : {UINT64_MAX, uint64_t{1} << 62, (uint64_t{1} << 30) + 1}) {
    expect_refused(GgufBytes().entry("k", kString, raw(length) + "x"), {"key 'k'", "a string is too long"});
  }
  expect_refused(GgufBytes().entry("k", kString, raw<uint64_t>(2) + "x"),
                 {"key 'k'", "ends inside a string", "need 2"});
  expect_refused(GgufBytes().entry("k12", kU64, "1234"), {"key 'k12'", "ends inside a value"});
}

TEST_F(GgufTest, Arrays) {
  const std::string nested = array(kU32, 1, raw<uint32_t>(1));
  expect_refused(GgufBytes().entry("k", kArray, array(kArray, 1, nested)), {"key 'k'", "arrays of arrays"});
  expect_refused(GgufBytes().entry("k", kArray, array(13, 1, "x")), {"key 'k'", "unknown value type"});
  for (const uint64_t count : {UINT64_MAX, uint64_t{1} << 62, uint64_t{1'000'000'000'000}, uint64_t{3}}) {
    expect_refused(GgufBytes().entry("k", kArray, array(kU32, count, "12345678")),
                   {"key 'k'", "the array is longer", "at most 2"});
    expect_refused(GgufBytes().entry("k", kArray, array(kString, count, "1234567812345678")),
                   {"key 'k'", "the array is longer", "at most 2"});
  }
  expect_refused(
      GgufBytes().entry("k", kArray, array(kString, 2, testing::gguf_string("a") + raw<uint64_t>(9) + "x")),
      {"key 'k'", "ends inside"});
  const GgufFile file =
      open(GgufBytes().entry("s", kArray, array(kString, 0, "")).entry("n", kArray, array(kF32, 0, "")));
  EXPECT_THAT(file.get_strings("s"), IsEmpty());
  EXPECT_THAT(file.get_floats("n"), IsEmpty());
}

TEST_F(GgufTest, Alignment) {
  for (const uint32_t alignment : {0u, 1u, 4u, 12u, 13u, 24u, UINT32_MAX}) {
    expect_refused(GgufBytes().entry("general.alignment", kU32, raw(alignment)),
                   {"general.alignment", "got " + std::to_string(alignment)});
  }
  expect_refused(GgufBytes().entry("general.alignment", kU64, raw<uint64_t>(32)),
                 {"general.alignment", "must be a u32"});
  expect_refused(GgufBytes().entry("general.alignment", kString, testing::gguf_string("32")),
                 {"general.alignment", "must be a u32"});
  GgufBytes file;
  file.alignment = 8;
  file.entry("general.alignment", kU32, raw<uint32_t>(8))
      .tensor("a", {1}, 0, 0)
      .tensor("b", {2}, 0, 8)
      .with_data(16);
  EXPECT_EQ(open(file).find("b")->begin % 8, 0);
  check_in_bounds(open(file), static_cast<int64_t>(file.bytes().size()));
  // Under the default alignment these offsets leave no room for the padding.
  expect_refused(GgufBytes().tensor("a", {1}, 0, 0).tensor("b", {2}, 0, 8).with_data(64),
                 {"tensor 'b'", "got offset 8, need 32"});
}

TEST_F(GgufTest, TensorEntries) {
  const auto tensor = [](const std::vector<int64_t>& dims, uint32_t type = 0, const std::string& name = "t") {
    return GgufBytes().tensor(name, dims, type, 0).with_data(64);
  };
  expect_refused(tensor({1, 1, 1, 1, 1}), {"tensor 't'", "too many dims", "got 5"});
  expect_refused(tensor({1, -1}), {"tensor 't'", "negative dim", "got -1"});
  expect_refused(tensor({INT64_MAX, 2}), {"tensor 't'", "overflows"});
  expect_refused(tensor({INT64_MAX}), {"overflows"});
  expect_refused(tensor({INT64_MAX - 1}), {"overflows"});
  expect_refused(tensor({0, INT64_MAX, 2}), {"overflows"});
  expect_refused(tensor({int64_t{1} << 61, 2}), {"tensor 't'", "size overflows"});
  expect_refused(tensor({31}, 2), {"tensor 't'", "multiple of 32 for Q4_0", "got 31"});
  expect_refused(tensor({128, 2}, 12), {"multiple of 256 for Q4_K"});
  expect_refused(tensor({}, 8), {"multiple of 32 for Q8_0"});
  expect_refused(tensor({17}), {"tensor 't'", "beyond the end"});
  expect_refused(tensor({int64_t{1} << 50}), {"tensor 't'", "beyond the end"});
  expect_refused(tensor({1}, 0, std::string(64, 'n')), {"a tensor's name is too long"});
  expect_refused(GgufBytes().tensor("t", {1}, 0, 0).tensor("t", {1}, 0, 32).with_data(64),
                 {"E-MODEL-GGUF-DUPLICATE", "tensor 't'"});
  EXPECT_EQ(open(tensor({1}, 0, std::string(63, 'n'))).tensors().size(), 1u);
  EXPECT_EQ(open(tensor({})).tensors()[0].numel(), 1);
  EXPECT_EQ(open(tensor({0, 5})).tensors()[0].numel(), 0);
  EXPECT_EQ(open(tensor({1, 1, 1, 16})).tensors()[0].num_rows(), 16);
  GgufBytes no_room = GgufBytes();
  no_room.num_tensors = 1;
  no_room.tensors = raw<uint64_t>(UINT64_MAX) + std::string(100, 't');
  expect_refused(no_room, {"a tensor's name is too long"});
}

TEST_F(GgufTest, OtherTensorTypesAreRefusedByName) {
  for (const auto& [id, name] :
       std::vector<std::pair<uint32_t, std::string>>{{4, "type 4"},
                                                     {5, "type 5"},
                                                     {16, "IQ2_XXS"},
                                                     {21, "IQ3_S"},
                                                     {26, "I32"},
                                                     {34, "TQ1_0"},
                                                     {41, "Q1_0"},
                                                     {UINT32_MAX, "type 4294967295"}}) {
    expect_refused(GgufBytes().tensor("t", {256}, id, 0).with_data(64),
                   {"E-MODEL-GGUF-TENSOR-TYPE", "tensor 't'", "got " + name});
  }
}

TEST_F(GgufTest, OffsetsMustFollowOneAnother) {
  const auto two = [](uint64_t first, uint64_t second, size_t num_bytes) {
    return GgufBytes().tensor("a", {2}, 0, first).tensor("b", {2}, 0, second).with_data(num_bytes);
  };
  check_in_bounds(open(two(0, 32, 40)), static_cast<int64_t>(two(0, 32, 40).bytes().size()));
  expect_refused(two(32, 64, 128), {"tensor 'a'", "need 0"});
  expect_refused(two(0, 0, 128), {"tensor 'b'", "need 32"});
  expect_refused(two(0, 8, 128), {"tensor 'b'", "need 32"});
  expect_refused(two(0, 64, 128), {"tensor 'b'", "need 32"});
  expect_refused(two(0, UINT64_MAX, 128), {"tensor 'b'", "need 32"});
  expect_refused(two(0, 32, 39), {"tensor 'b'", "beyond the end"});
  expect_refused(GgufBytes().tensor("a", {8}, 0, 0), {"tensor 'a'", "beyond the end"});
}

// Returns a file with metadata of several types and three tensors, one of them empty.
GgufBytes small_file() {
  return GgufBytes()
      .entry("a", kU32, raw<uint32_t>(1))
      .entry("b", kString, testing::gguf_string("x"))
      .entry("c", kArray, array(kBool, 2, std::string("\0\1", 2)))
      .entry("d", kArray, array(kString, 1, testing::gguf_string("y")))
      .tensor("q", {32}, 2, 0)
      .tensor("e", {0}, 0, 32)
      .tensor("f", {1, 2}, 0, 32)
      .with_data(40);
}

TEST_F(GgufTest, EverySingleByteMutation) {
  const std::string original = small_file().bytes();
  const size_t header = small_file().header().size();
  check_in_bounds(open(small_file()), static_cast<int64_t>(original.size()));
  const auto [accepted, refused] = testing::mutate_every_byte(path_, original, header, [&] {
    check_in_bounds(GgufFile::open(path_), static_cast<int64_t>(original.size()));
  });
  EXPECT_GT(accepted, 256);  // changes of values and names, for example, give valid files
  EXPECT_GT(refused, 256 * 100);
}

TEST_F(GgufTest, EveryTruncation) {
  const std::string original = small_file().bytes();
  for (size_t length = 0; length < original.size(); ++length)
    expect_refused(original.substr(0, length), {"E-MODEL-GGUF"});
  write(original + std::string(100, 'x'));  // padding after the last tensor is common
  check_in_bounds(GgufFile::open(path_), static_cast<int64_t>(original.size()));
}

TEST_F(GgufTest, AWrittenFileIsReadBack) {
  const std::vector<std::string> texts = {"a", "", "\u00fc"};
  const std::vector<int32_t> ints = {-1, 7};
  const std::vector<float> floats = {0.5f, -2.0f};
  GgufMetadata metadata;
  metadata.add("u", uint32_t{3});
  metadata.add("f", 1.5f);
  metadata.add("b", true);
  metadata.add("s", "text");
  metadata.add("ss", std::span<const std::string>(texts));
  metadata.add("is", std::span<const int32_t>(ints));
  metadata.add("fs", std::span<const float>(floats));
  const std::vector<float> small = {1.0f, 2.0f, 3.0f};
  const std::vector<char> blocks(4 * 34, 1);
  GgufWriter writer(
      path_, metadata,
      {{"small", GgmlType::F32, {3}}, {"blocks", GgmlType::Q8_0, {2, 64}}, {"end", GgmlType::F32, {1}}});
  writer.write_rows(1, 1, 1, blocks.data());
  writer.write_rows(0, 0, 1, small.data());
  writer.write_rows(1, 0, 1, blocks.data());
  writer.write_rows(2, 0, 1, small.data());
  EXPECT_THROW(writer.write_rows(1, 1, 2, blocks.data()), Error);
  EXPECT_FALSE(std::filesystem::exists(path_));
  writer.commit();
  EXPECT_EQ(static_cast<int64_t>(std::filesystem::file_size(path_)), writer.num_bytes());

  const GgufFile file = GgufFile::open(path_);
  EXPECT_EQ(file.get_uint("u"), 3u);
  EXPECT_EQ(file.get_float("f"), 1.5);
  EXPECT_TRUE(file.get_bool("b"));
  EXPECT_EQ(file.get_string("s"), "text");
  EXPECT_EQ(file.get_strings("ss"), texts);
  EXPECT_THAT(file.get_ints("is"), ElementsAre(-1, 7));
  EXPECT_THAT(file.get_floats("fs"), ElementsAre(0.5, -2.0));
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_THAT(file.find("blocks")->shape, ElementsAre(2, 64));
  for (const GgufTensor& tensor : file.tensors()) EXPECT_EQ(tensor.begin % 32, 0) << tensor.name;
  std::vector<float> read(3);
  file.read_f32(*file.find("small"), 0, 1, read.data());
  EXPECT_EQ(read, small);
  std::vector<char> stored(blocks.size());
  file.read_blocks(*file.find("blocks"), 0, 2, stored.data());
  EXPECT_EQ(stored, blocks);
}

TEST_F(GgufTest, AWriterThatDoesNotCommitLeavesTheOldFile) {
  write("old");
  { GgufWriter writer(path_, {}, {{"small", GgmlType::F32, {3}}}); }
  EXPECT_EQ(read_file(path_, 100), "old");
  EXPECT_EQ(
      std::distance(std::filesystem::directory_iterator(std::filesystem::path(path_).parent_path()), {}), 1);
}

}  // namespace
}  // namespace tessera::io

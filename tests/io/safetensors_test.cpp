#include "tessera/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/io/allocation_meter.h"
#include "tests/io/byte_mutations.h"
#include "tests/io/expect_error.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_folder.h"

namespace tessera::io {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::IsEmpty;
using testing::TempFolder;

const std::string kReference = testing::source_folder() + "/tests/reference/data/safetensors/";

std::string file_bytes(const std::string& header, const std::string& data, uint64_t length) {
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}
std::string file_bytes(const std::string& header, const std::string& data) {
  return file_bytes(header, data, header.size());
}

class SafetensorsTest : public ::testing::Test {
 protected:
  void write(const std::string& bytes) { std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes; }
  SafetensorsFile open(const std::string& bytes) {
    write(bytes);
    return SafetensorsFile::open(path_);
  }
  void expect_refused(const std::string& bytes, const std::vector<std::string>& parts) {
    SCOPED_TRACE(bytes.substr(0, 200));
    write(bytes);
    std::vector<std::string> all = parts;
    all.push_back(path_);
    const size_t before = testing::allocated_bytes;
    expect_error(ErrorKind::Model, all, [&] { SafetensorsFile::open(path_); });
    EXPECT_LT(testing::allocated_bytes - before, 64 * bytes.size() + 100'000);
  }
  void expect_header_refused(const std::string& header, const std::string& data,
                             const std::vector<std::string>& parts) {
    expect_refused(file_bytes(header, data), parts);
  }

  TempFolder folder_;
  std::string path_ = folder_ / "x.safetensors";
};

// Checks that every tensor lies in the file, fits its shape and can be read.
void check_in_bounds(const SafetensorsFile& file, int64_t file_size) {
  for (const TensorInfo& tensor : file.tensors()) {
    ASSERT_GE(tensor.begin, 8);
    ASSERT_LE(tensor.begin, tensor.end);
    ASSERT_LE(tensor.end, file_size);
    ASSERT_EQ(tensor.numel() * dtype_size(tensor.dtype), tensor.num_bytes());
    std::string bytes(static_cast<size_t>(tensor.num_bytes()), '\0');
    file.read(tensor, 0, tensor.num_bytes(), bytes.data());
    ASSERT_EQ(file.find(tensor.name), &tensor);
  }
}

TEST_F(SafetensorsTest, ReadsAFileOfTheReferenceLibrary) {
  const SafetensorsFile file = SafetensorsFile::open(kReference + "all_types.safetensors");
  ASSERT_EQ(file.tensors().size(), 19u);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  EXPECT_TRUE(std::is_sorted(file.tensors().begin(), file.tensors().end(),
                             [](const TensorInfo& a, const TensorInfo& b) { return a.begin < b.begin; }));
  for (const TensorInfo& tensor : file.tensors()) {
    std::string bytes(static_cast<size_t>(tensor.num_bytes()), '?');
    file.read(tensor, 0, tensor.num_bytes(), bytes.data());
    for (size_t i = 0; i < bytes.size(); ++i)
      EXPECT_EQ(static_cast<unsigned char>(bytes[i]), i % 251) << tensor.name;
  }
  const TensorInfo* f16 = file.find("f16");
  ASSERT_NE(f16, nullptr);
  EXPECT_EQ(f16->dtype, DType::F16);
  EXPECT_THAT(f16->shape, ElementsAre(2, 2, 2));
  EXPECT_EQ(f16->numel(), 8);
  std::string part(3, '?');
  file.read(*f16, 5, 3, part.data());
  EXPECT_EQ(part, "\x05\x06\x07");
  ASSERT_NE(file.find("scalar"), nullptr);
  EXPECT_THAT(file.find("scalar")->shape, IsEmpty());
  EXPECT_EQ(file.find("scalar")->numel(), 1);
  EXPECT_EQ(file.find("empty")->numel(), 0);
  EXPECT_NE(file.find("é \"quoted\"\n"), nullptr);
  EXPECT_EQ(file.find("nothing"), nullptr);
  EXPECT_THAT(SafetensorsFile::open(kReference + "no_tensors.safetensors").tensors(), IsEmpty());
}

TEST_F(SafetensorsTest, WritesTheReferenceLibrarysBytes) {
  for (const std::string name : {"all_types.safetensors", "no_tensors.safetensors"}) {
    const SafetensorsFile source = SafetensorsFile::open(kReference + name);
    std::vector<TensorSpec> specs;
    for (const TensorInfo& tensor : source.tensors())
      specs.push_back({tensor.name, tensor.dtype, tensor.shape});
    std::reverse(specs.begin(), specs.end());
    SafetensorsWriter writer(path_, specs, source.metadata());
    for (const TensorInfo& tensor : source.tensors()) {
      std::string bytes(static_cast<size_t>(tensor.num_bytes()), '\0');
      source.read(tensor, 0, tensor.num_bytes(), bytes.data());
      for (int64_t i = tensor.num_bytes() - 1; i >= 0; --i)
        writer.write(tensor.name, i, &bytes[static_cast<size_t>(i)], 1);
    }
    writer.commit();
    EXPECT_EQ(read_file(path_, 100'000), read_file(kReference + name, 100'000)) << name;
  }
}

TEST_F(SafetensorsTest, RoundTripOfRandomTensors) {
  const unsigned seed = 20240917;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) {
    std::vector<TensorSpec> specs;
    std::map<std::string, std::string> contents;
    const int count = static_cast<int>(random() % 30);
    for (int i = 0; i < count; ++i) {
      TensorSpec spec{"t." + std::to_string(i), static_cast<DType>(random() % 15), {}};
      for (unsigned rank = random() % 5; rank > 0; --rank) spec.shape.push_back(random() % 6);
      std::string bytes(static_cast<size_t>(spec.num_bytes()), '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      contents[spec.name] = bytes;
      specs.push_back(spec);
    }
    SafetensorsWriter writer(path_, specs, {{"a", "1"}, {"b\n", "\"2\""}});
    for (const auto& [name, bytes] : contents)
      writer.write(name, 0, bytes.data(), static_cast<int64_t>(bytes.size()));
    writer.commit();
    const SafetensorsFile file = SafetensorsFile::open(path_);
    ASSERT_EQ(file.tensors().size(), specs.size());
    EXPECT_EQ(file.metadata().at("b\n"), "\"2\"");
    for (const TensorSpec& spec : specs) {
      const TensorInfo* tensor = file.find(spec.name);
      ASSERT_NE(tensor, nullptr);
      EXPECT_EQ(tensor->dtype, spec.dtype);
      EXPECT_EQ(tensor->shape, spec.shape);
      std::string bytes(static_cast<size_t>(tensor->num_bytes()), '\0');
      file.read(*tensor, 0, tensor->num_bytes(), bytes.data());
      EXPECT_EQ(bytes, contents[spec.name]);
    }
  }
}

TEST_F(SafetensorsTest, ReadOutsideTheTensorIsAnInternalError) {
  const SafetensorsFile file = SafetensorsFile::open(kReference + "all_types.safetensors");
  char byte = 0;
  const TensorInfo& tensor = *file.find("f64");
  for (const auto& [offset, count] : std::vector<std::pair<int64_t, int64_t>>{
           {24, 1}, {-1, 1}, {0, 25}, {0, -1}, {25, 0}, {1, INT64_MAX}}) {
    expect_error(ErrorKind::Internal, {"f64"},
                 [&, o = offset, n = count] { file.read(tensor, o, n, &byte); });
  }
}

TEST_F(SafetensorsTest, MissingFileIsStorage) {
  expect_error(ErrorKind::Storage, {"E-STORAGE-NOT-FOUND"}, [&] { SafetensorsFile::open(path_); });
}

TEST_F(SafetensorsTest, HeaderLength) {
  expect_refused("", {"too small", "got 0 bytes"});
  expect_refused("1234567", {"too small", "got 7 bytes"});
  expect_refused(file_bytes("{}", "", 3), {"byte 0", "longer than the file", "got 3 bytes"});
  expect_refused(file_bytes("{}", "", 100'000'001), {"byte 0", "too long", "100000001"});
  expect_refused(file_bytes("{}", "", 100'000'000), {"longer than the file"});
  expect_refused(file_bytes("{}", "", UINT64_MAX), {"too long", "18446744073709551615"});
  expect_refused(file_bytes("{}", "", uint64_t{1} << 63), {"too long"});
  expect_refused(file_bytes("", ""), {"malformed JSON"});
}

TEST_F(SafetensorsTest, OtherFormatsGetAHint) {
  expect_refused("PK\x03\x04" + std::string(20, '\0') + "archive/data.pkl",
                 {"pickle is not supported, convert to safetensors"});
  expect_refused(std::string("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j", 12), {"pickle is not supported"});
  expect_refused("version https://git-lfs.github.com/spec/v1\n", {"git lfs pull"});
  expect_refused("GGUF\x03" + std::string(30, '\0'), {"GGUF"});
}

TEST_F(SafetensorsTest, HeaderThatIsNoJsonObject) {
  expect_header_refused("not json", "", {"malformed JSON", "byte 9"});
  expect_header_refused("{\"a\"", "", {"malformed JSON"});
  expect_header_refused("{}}", "", {"malformed JSON", "byte 10"});
  expect_header_refused("{} x", "", {"malformed JSON"});
  expect_header_refused("[]", "", {"must be a JSON object"});
  expect_header_refused("\"a\"", "", {"must be a JSON object"});
  expect_header_refused("null", "", {"must be a JSON object"});
  expect_header_refused("3", "", {"must be a JSON object"});
  expect_header_refused("{}//c", "", {"malformed JSON"});
  expect_header_refused("{\"a\":1e999}", "", {"malformed JSON"});
  expect_header_refused("\xEF\xBB\xBF{}", "", {"byte-order mark", "byte 8"});
  expect_header_refused("{\"\xff\":1}", "", {"not valid UTF-8", "byte 10"});
  expect_header_refused(std::string("{}\0{}", 5), "", {"NUL byte", "byte 10"});
  expect_header_refused("{\"a\n\":1}", "", {"malformed JSON"});
}

TEST_F(SafetensorsTest, DepthBombs) {
  expect_header_refused(std::string(1'000'000, '['), "", {"must be a JSON object"});
  std::string nested;
  for (int i = 0; i < 100'000; ++i) nested += "{\"a\":";
  expect_header_refused(nested, "", {"tensor 'a'", "unknown key 'a'"});
  expect_header_refused("{\"a\":{\"shape\":" + std::string(100'000, '['), "", {"tensor 'a'", "integers"});
}

TEST_F(SafetensorsTest, WhitespaceAroundTheHeaderIsLegal) {
  const std::string entry = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  for (const std::string& header : {entry + "   ", "  " + entry, "\t\r\n" + entry + "\n\t"}) {
    const SafetensorsFile file = open(file_bytes(header, "xy"));
    check_in_bounds(file, static_cast<int64_t>(8 + header.size() + 2));
    EXPECT_EQ(file.tensors().size(), 1u);
  }
}

TEST_F(SafetensorsTest, DuplicatesAreRefused) {
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  expect_header_refused("{" + a + "," + a + "}", "x", {"tensor 'a'", "twice"});
  const std::string escaped = R"("\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]})";
  expect_header_refused("{" + a + "," + escaped + "}", "xy", {"tensor 'a'", "twice"});
  expect_header_refused(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x",
                        {"tensor 'a'", "'dtype' appears twice"});
  expect_header_refused(R"({"__metadata__":{},"__metadata__":{}})", "", {"__metadata__", "twice"});
  expect_header_refused(R"({"__metadata__":{"k":"1","k":"2"}})", "", {"metadata key 'k'", "twice"});
}

TEST_F(SafetensorsTest, MetadataHoldsStringsOnly) {
  for (const std::string value : {"1", "-1", "1.5", "null", "true", "[]", "{}"}) {
    expect_header_refused("{\"__metadata__\":{\"k\":" + value + "}}", "",
                          {"__metadata__", "'k' must be a string"});
  }
  expect_header_refused(R"({"__metadata__":"x"})", "", {"__metadata__", "must be an object"});
  expect_header_refused(R"({"__metadata__":null})", "", {"__metadata__", "must be an object"});
}

TEST_F(SafetensorsTest, EntryFields) {
  expect_header_refused(R"({"a":1})", "", {"tensor 'a'", "must be an object"});
  expect_header_refused(R"({"a":{}})", "", {"tensor 'a'", "lacks"});
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[0]}})", "", {"tensor 'a'", "lacks"});
  expect_header_refused(R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", "", {"tensor 'a'", "lacks"});
  expect_header_refused(R"({"a":{"shape":[0],"data_offsets":[0,0]}})", "", {"tensor 'a'", "lacks"});
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"strides":[1]}})", "",
                        {"unknown key 'strides'"});
  expect_header_refused(R"({"a":{"dtype":1,"shape":[0],"data_offsets":[0,0]}})", "",
                        {"'dtype' must be a string"});
  expect_header_refused(R"({"a":{"dtype":"U8","shape":"x","data_offsets":[0,0]}})", "",
                        {"'shape' must be an array"});
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":0}})", "",
                        {"'data_offsets' must be an array"});
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}})", "", {"two numbers"});
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[]}})", "", {"two numbers"});
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0,0]}})", "", {"two numbers"});
}

TEST_F(SafetensorsTest, ElementTypes) {
  for (const std::string type :
       {"F4", "F6_E2M3", "F6_E3M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "C64"}) {
    expect_header_refused("{\"a\":{\"dtype\":\"" + type + "\",\"shape\":[0],\"data_offsets\":[0,0]}}", "",
                          {"tensor 'a'", "does not support", type});
  }
  for (const std::string type : {"f32", "FLOAT", "", "F33"}) {
    expect_header_refused("{\"a\":{\"dtype\":\"" + type + "\",\"shape\":[0],\"data_offsets\":[0,0]}}", "",
                          {"tensor 'a'", "unknown element type '" + type + "'"});
  }
}

TEST_F(SafetensorsTest, NumbersMustBeIntegersFromZero) {
  for (const std::string number : {"-1", "-0", "1.0", "1e2", "18446744073709551615", "9223372036854775808",
                                   "99999999999999999999999", "null", "true", "\"1\"", "[1]", "{}"}) {
    expect_header_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[" + number + "],\"data_offsets\":[0,1]}}", "x",
                          {"tensor 'a'", "'shape'"});
    expect_header_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0," + number + "]}}", "x",
                          {"tensor 'a'", "'data_offsets'"});
  }
}

TEST_F(SafetensorsTest, SizesThatOverflowOrDoNotMatch) {
  const auto entry = [](const std::string& type, const std::string& shape, const std::string& offsets) {
    return "{\"a\":{\"dtype\":\"" + type + "\",\"shape\":[" + shape + "],\"data_offsets\":[" + offsets +
           "]}}";
  };
  expect_header_refused(entry("U8", "9223372036854775807,2", "0,0"), "", {"tensor 'a'", "overflows"});
  expect_header_refused(entry("U8", "4294967296,4294967296", "0,0"), "", {"overflows"});
  expect_header_refused(entry("U8", "4294967296,4294967296,0", "0,0"), "", {"overflows"});
  expect_header_refused(entry("U8", "0,4294967296,4294967296", "0,0"), "", {"overflows"});
  expect_header_refused(entry("F64", "2305843009213693952", "0,0"), "", {"overflows"});
  expect_header_refused(entry("F32", "2", "0,4"), "wxyz",
                        {"tensor 'a'", "got 4 bytes", "need 8 for F32 [2]"});
  expect_header_refused(entry("F32", "", "0,0"), "", {"need 4"});
  expect_header_refused(entry("U8", "0", "0,1"), "x", {"got 1 bytes"});
  expect_header_refused(entry("U8", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "0,1"), "x", {"too many dims"});
  EXPECT_EQ(
      open(file_bytes(entry("U8", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "0,1"), "x")).tensors()[0].shape.size(),
      16u);
  EXPECT_EQ(open(file_bytes(entry("F32", "", "0,4"), "wxyz")).tensors()[0].numel(), 1);
  EXPECT_EQ(open(file_bytes(entry("F32", "0,9223372036854775807", "0,0"), "")).tensors()[0].numel(), 0);
}

TEST_F(SafetensorsTest, BytesMustTileTheFile) {
  const auto header = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b + "}}";
  };
  check_in_bounds(open(file_bytes(header("[0,2]", "[2,4]"), "wxyz")), 8 + 105 + 4);
  EXPECT_EQ(open(file_bytes(header("[2,4]", "[0,2]"), "wxyz")).tensors()[0].name, "b");  // any header order
  expect_header_refused(header("[2,0]", "[2,4]"), "wxyz", {"tensor 'a'", "end before they begin"});
  expect_header_refused(header("[0,2]", "[1,3]"), "wxy", {"tensor 'b'", "overlap", "'a'"});
  expect_header_refused(header("[0,2]", "[0,2]"), "wx", {"overlap"});
  expect_header_refused(header("[0,2]", "[3,5]"), "wxyz1", {"tensor 'b'", "gap", "need 2"});
  expect_header_refused(header("[1,3]", "[3,5]"), "wxyz1", {"tensor 'a'", "gap"});
  expect_header_refused(header("[0,2]", "[2,4]"), "wxy", {"tensor 'b'", "beyond the end"});
  expect_header_refused(header("[0,2]", "[2,4]"), "wxyz1", {"byte 117", "1 extra bytes"});
  expect_header_refused("{}", "x", {"byte 10", "1 extra bytes"});
  expect_header_refused(header("[0,9223372036854775807]", "[2,4]"), "wxyz", {"beyond the end"});
}

TEST_F(SafetensorsTest, NamesHaveACap) {
  const auto entry = [](size_t length) {
    return "{\"" + std::string(length, 'n') + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})";
  };
  EXPECT_EQ(open(file_bytes(entry(1024), "")).tensors().size(), 1u);
  expect_header_refused(entry(1025), "", {"too long", "got 1025 bytes"});
}

TEST_F(SafetensorsTest, TensorCountHasACap) {
  std::string header = "{";
  for (int i = 0; i <= 1'000'001; ++i) {
    header +=
        (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[],"data_offsets":[0,0]})";
  }
  write(file_bytes(header + "}", ""));
  expect_error(ErrorKind::Model, {"too many tensors"}, [&] { SafetensorsFile::open(path_); });
}

// Returns a small file with a valid header: metadata, and two tensors, one of them empty.
std::string small_file() {
  return file_bytes(R"({"__metadata__":{"k":"v"},"a":{"dtype":"I16","shape":[2,1],"data_offsets":[0,4]},)"
                    R"("b":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}} )",
                    "wxyz");
}

TEST_F(SafetensorsTest, EverySingleByteMutation) {
  const std::string original = small_file();
  open(original);
  const auto [accepted, refused] = testing::mutate_every_byte(path_, original, original.size(), [&] {
    check_in_bounds(SafetensorsFile::open(path_), static_cast<int64_t>(original.size()));
  });
  EXPECT_GT(accepted, 256 * 4);  // at least every change of the data, and many of names
  EXPECT_GT(refused, 256 * 60);
}

TEST_F(SafetensorsTest, EveryTruncationAndExtension) {
  const std::string original = small_file();
  for (size_t length = 0; length < original.size(); ++length)
    expect_refused(original.substr(0, length), {"E-MODEL-SAFETENSORS"});
  for (const size_t extra : {1, 7, 8, 4096})
    expect_refused(original + std::string(extra, '\0'), {"extra bytes"});
}

TEST_F(SafetensorsTest, WriterRefusesBadDeclarations) {
  const TensorSpec a{"a", DType::F32, {2}};
  const auto refused = [&](const std::vector<TensorSpec>& specs, const std::vector<std::string>& parts) {
    expect_error(ErrorKind::Model, parts, [&] { SafetensorsWriter writer(path_, specs); });
  };
  refused({a, a}, {"'a'", "twice"});
  refused({a, {"a", DType::U8, {1}}}, {"'a'", "twice"});
  refused({{"__metadata__", DType::U8, {1}}}, {"reserves"});
  refused({{"\xff", DType::U8, {1}}}, {"UTF-8"});
  refused({{std::string(1025, 'n'), DType::U8, {1}}}, {"too long"});
  refused({{"a", DType::U8, std::vector<int64_t>(17, 1)}}, {"too many dims"});
  refused({{"a", DType::U8, {-1}}}, {"'a'", "negative"});
  refused({{"a", DType::F64, {INT64_MAX}}}, {"'a'", "overflows"});
  refused({{"a", DType::U8, {INT64_MAX}}, {"b", DType::U8, {INT64_MAX}}}, {"too large"});
  expect_error(ErrorKind::Model, {"UTF-8"}, [&] { SafetensorsWriter writer(path_, {a}, {{"k", "\xff"}}); });
  expect_error(ErrorKind::Storage, {"reserve", path_}, [&] {
    SafetensorsWriter writer(path_, {{"a", DType::U8, {int64_t{1} << 62}}});
  });
  EXPECT_THAT(folder_.entries(), IsEmpty());
}

TEST_F(SafetensorsTest, CommitWantsEveryByte) {
  const std::vector<TensorSpec> specs = {{"a", DType::U8, {10}}, {"e", DType::U8, {0}}};
  {
    SafetensorsWriter writer(path_, specs);
    writer.write("a", 0, "0123", 4);
    writer.write("a", 6, "6789", 4);
    expect_error(ErrorKind::Internal, {"'a'", "from byte 4"}, [&] { writer.commit(); });
    writer.write("a", 3, "345", 3);
    expect_error(ErrorKind::Internal, {"'b'"}, [&] { writer.write("b", 0, "x", 1); });
    expect_error(ErrorKind::Internal, {"'a'"}, [&] { writer.write("a", 8, "xyz", 3); });
    expect_error(ErrorKind::Internal, {"'a'"}, [&] { writer.write("a", -1, "x", 1); });
    EXPECT_FALSE(exists(path_));
    writer.commit();
  }
  const SafetensorsFile file = SafetensorsFile::open(path_);
  std::string bytes(10, '?');
  file.read(*file.find("a"), 0, 10, bytes.data());
  EXPECT_EQ(bytes, "0123456789");
  { SafetensorsWriter writer(folder_ / "y.safetensors", specs); }
  EXPECT_THAT(folder_.entries(), ElementsAre("x.safetensors"));
}

TEST_F(SafetensorsTest, WritesFromSeveralThreads) {
  constexpr int64_t kPieces = 64, kPiece = 1000;
  SafetensorsWriter writer(path_, {{"a", DType::U8, {kPieces * kPiece}}});
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = t; i < kPieces; i += 4) {
        const std::string piece(kPiece, static_cast<char>(i));
        writer.write("a", i * kPiece, piece.data(), kPiece);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  writer.commit();
  const SafetensorsFile file = SafetensorsFile::open(path_);
  std::string bytes(kPieces * kPiece, '?');
  file.read(*file.find("a"), 0, kPieces * kPiece, bytes.data());
  for (int64_t i = 0; i < kPieces * kPiece; ++i)
    ASSERT_EQ(bytes[static_cast<size_t>(i)], static_cast<char>(i / kPiece));
}

TEST_F(SafetensorsTest, ReplacingAFileThatIsBeingReadKeepsTheReaderWhole) {
  const std::vector<TensorSpec> specs = {{"a", DType::U8, {4}}};
  const auto save = [&](const char* data) {
    SafetensorsWriter writer(path_, specs);
    writer.write("a", 0, data, 4);
    writer.commit();
  };
  save("old!");
  const SafetensorsFile file = SafetensorsFile::open(path_);
  save("new!");
  std::string bytes(4, '?');
  file.read(file.tensors()[0], 0, 4, bytes.data());
  EXPECT_EQ(bytes, "old!");
}

}  // namespace
}  // namespace tessera::io

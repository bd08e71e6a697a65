#include "tessera/io/model_files.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/io/expect_error.h"
#include "tests/testing/temp_folder.h"

namespace tessera::io {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempFolder;

const std::string kIndex = "model.safetensors.index.json";

// Writes a file of U8 tensors, each of two bytes: the first letter of its name, and `fill`.
void write_tensors(const std::string& path, const std::vector<std::string>& names, char fill = '1') {
  std::vector<TensorSpec> specs;
  for (const std::string& name : names) specs.push_back({name, DType::U8, {2}});
  SafetensorsWriter writer(path, specs, {{"format", "pt"}});
  for (const std::string& name : names) {
    const std::string bytes = {name[0], fill};
    writer.write(name, 0, bytes.data(), 2);
  }
  writer.commit();
}

std::string read_tensor(const ModelFiles& files, const std::string& name) {
  std::string bytes(2, '?');
  files.read(name, 0, 2, bytes.data());
  return bytes;
}

class ModelFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { make_directories(model_); }
  std::string in_model(const std::string& name) const { return model_ + "/" + name; }
  void write_index(const std::string& weight_map,
                   const std::string& rest = R"("metadata":{"total_size":6})") {
    write_file_atomic(in_model(kIndex),
                      "{" + rest + (rest.empty() ? "" : ",") + "\"weight_map\":{" + weight_map + "}}");
  }
  // Writes a and b into the shard "one", and c into the shard "two".
  void write_shards() {
    write_tensors(in_model("one.safetensors"), {"a", "b"});
    write_tensors(in_model("two.safetensors"), {"c"});
    write_index(kGoodMap);
  }
  void expect_refused(const std::vector<std::string>& parts) {
    expect_error(ErrorKind::Model, parts, [&] { ModelFiles::open(model_); });
  }

  static constexpr const char* kGoodMap =
      R"("a":"one.safetensors","b":"one.safetensors","c":"two.safetensors")";
  TempFolder folder_;
  std::string model_ = folder_ / "model";
};

TEST_F(ModelFilesTest, SingleFile) {
  write_tensors(in_model("model.safetensors"), {"a", "b"});
  const ModelFiles files = ModelFiles::open(model_);
  EXPECT_EQ(files.tensors().size(), 2u);
  EXPECT_EQ(files.total_bytes(), 4);
  EXPECT_EQ(files.metadata().at("format"), "pt");
  EXPECT_EQ(read_tensor(files, "b"), "b1");
  EXPECT_FALSE(files.find("c"));
  EXPECT_EQ(files.find("a").tensor->name, "a");
}

TEST_F(ModelFilesTest, Shards) {
  write_shards();
  ModelFiles opened = ModelFiles::open(model_);
  const ModelFiles files = std::move(opened);
  ASSERT_EQ(files.tensors().size(), 3u);
  EXPECT_EQ(files.total_bytes(), 6);
  EXPECT_EQ(read_tensor(files, "a"), "a1");
  EXPECT_EQ(read_tensor(files, "c"), "c1");
  EXPECT_THAT(files.find("c").file->path(), HasSubstr("two.safetensors"));
}

TEST_F(ModelFilesTest, SingleFileComesBeforeAnIndex) {
  write_shards();
  write_tensors(in_model("model.safetensors"), {"z"});
  EXPECT_EQ(ModelFiles::open(model_).tensors().size(), 1u);
}

TEST_F(ModelFilesTest, FileByName) {
  write_tensors(in_model("adapter_model.safetensors"), {"lora"});
  EXPECT_EQ(ModelFiles::open(model_, "adapter_model.safetensors").tensors().size(), 1u);
  expect_error(ErrorKind::Model, {"E-MODEL-NO-FILE", "other.safetensors"},
               [&] { ModelFiles::open(model_, "other.safetensors"); });
}

TEST_F(ModelFilesTest, MissingTensorNamesTheNearest) {
  write_tensors(in_model("model.safetensors"), {"model.layers.0.weight", "b"});
  const ModelFiles files = ModelFiles::open(model_);
  expect_error(ErrorKind::Model,
               {"E-MODEL-TENSOR-MISSING", "'model.layer.0.weight'", "there is 'model.layers.0.weight'"},
               [&] { files.require("model.layer.0.weight"); });
  expect_error(ErrorKind::Model, {"'c'"}, [&] { read_tensor(files, "c"); });
}

TEST_F(ModelFilesTest, FolderWithoutWeights) {
  expect_refused({"E-MODEL-NO-WEIGHTS", model_});
  write_file_atomic(in_model("x.gguf"), "GGUF");
  expect_refused({"E-MODEL-NO-WEIGHTS", "x.gguf", "tessera convert"});
  expect_error(ErrorKind::Model, {"no such model folder"}, [&] { ModelFiles::open(folder_ / "none"); });
  expect_error(ErrorKind::Model, {"must be a folder"}, [&] { ModelFiles::open(in_model("x.gguf")); });
}

TEST_F(ModelFilesTest, FolderOfAnAdapterSaysSo) {
  write_tensors(in_model("adapter_model.safetensors"), {"a"});
  write_file_atomic(in_model("training_args.bin"), "PK");  // a pickle that holds no weights
  write_file_atomic(in_model("optimizer.pt"), "PK");
  expect_refused({"E-MODEL-NO-WEIGHTS", "adapter_model.safetensors"});
}

TEST_F(ModelFilesTest, PickleIsRefused) {
  for (const std::string name :
       {"pytorch_model.bin", "consolidated.00.pth", "model.pt", "pytorch_model.bin.index.json"}) {
    SCOPED_TRACE(name);
    write_file_atomic(in_model(name), "PK\x03\x04");
    expect_refused({"E-MODEL-PICKLE", name, "pickle is not supported, convert to safetensors"});
    expect_error(ErrorKind::Model, {"E-MODEL-PICKLE"}, [&] { ModelFiles::open(model_, name); });
    expect_error(ErrorKind::Model, {}, [&] { ModelFiles::open(in_model(name)); });
    remove_file(in_model(name));
  }
  write_tensors(in_model("model.safetensors"), {"a"});
  write_file_atomic(in_model("pytorch_model.bin"), "PK\x03\x04");
  EXPECT_EQ(ModelFiles::open(model_).tensors().size(), 1u);  // a pickle beside safetensors is ignored
  write_file_atomic(in_model("model.safetensors"), std::string("PK\x03\x04") + std::string(100, 'x'));
  expect_refused({"pickle is not supported"});
}

TEST_F(ModelFilesTest, IndexNamesThatLeaveTheFolder) {
  write_shards();
  write_tensors(folder_ / "outside.safetensors", {"c"});
  for (const std::string shard : {"../outside.safetensors", "x/../../outside.safetensors", "..", ""}) {
    SCOPED_TRACE(shard);
    write_index(R"("a":"one.safetensors","b":"one.safetensors","c":")" + shard + "\"");
    expect_refused({"E-MODEL-INDEX", kIndex, "'c'", "leads out of the model folder"});
  }
  write_index(R"("a":"one.safetensors","b":"one.safetensors","c":")" + (folder_ / "outside.safetensors") +
              "\"");
  expect_refused({"'c'", "leads out"});
  write_index(R"("a":"one.safetensors","b":"one.safetensors","c":"two.safetensors\u0000"})");
  expect_error(ErrorKind::Model, {}, [&] { ModelFiles::open(model_); });
  write_index(R"("a":"one.safetensors","b":"one.safetensors","c":"two.safetensors\u0000")");
  expect_refused({"'c'", "leads out"});
}

TEST_F(ModelFilesTest, LinksThatLeaveTheFolder) {
  write_shards();
  write_tensors(folder_ / "outside.safetensors", {"c"});
  fs::remove(in_model("two.safetensors"));
  fs::create_symlink(folder_ / "outside.safetensors", in_model("two.safetensors"));
  expect_refused({"E-MODEL-INDEX", "'c'", "link", "two.safetensors"});
  fs::create_symlink(folder_.path(), in_model("sub"));
  write_index(R"("a":"one.safetensors","b":"one.safetensors","c":"sub/outside.safetensors")");
  expect_refused({"'c'", "link"});
  // A path that merely begins like the folder's lies outside too.
  make_directories(model_ + "-other");
  write_tensors(model_ + "-other/two.safetensors", {"c"});
  fs::remove(in_model("two.safetensors"));
  fs::create_symlink(model_ + "-other/two.safetensors", in_model("two.safetensors"));
  write_index(kGoodMap);
  expect_refused({"link"});
}

TEST_F(ModelFilesTest, LinksInsideTheFolderAndOfAHubCacheAreFine) {
  write_shards();
  fs::rename(in_model("two.safetensors"), in_model("real.safetensors"));
  fs::create_symlink("real.safetensors", in_model("two.safetensors"));
  EXPECT_EQ(ModelFiles::open(model_).tensors().size(), 3u);

  const std::string blobs = folder_ / "hub/blobs", snapshot = folder_ / "hub/snapshots/rev";
  make_directories(blobs);
  make_directories(snapshot);
  for (const std::string& name : {std::string("one.safetensors"), std::string("real.safetensors"), kIndex}) {
    fs::copy(in_model(name), blobs + "/blob-" + name);
  }
  fs::create_symlink("../../blobs/blob-one.safetensors", snapshot + "/one.safetensors");
  fs::create_symlink("../../blobs/blob-real.safetensors", snapshot + "/two.safetensors");
  fs::create_symlink("../../blobs/blob-" + kIndex, snapshot + "/" + kIndex);
  EXPECT_EQ(ModelFiles::open(snapshot).tensors().size(), 3u);
}

TEST_F(ModelFilesTest, SubfolderShardsAreFine) {
  make_directories(in_model("parts"));
  write_tensors(in_model("parts/one.safetensors"), {"a"});
  write_index(R"("a":"parts/one.safetensors")", "");
  EXPECT_EQ(ModelFiles::open(model_).tensors().size(), 1u);
}

TEST_F(ModelFilesTest, AbsentShard) {
  write_shards();
  fs::remove(in_model("two.safetensors"));
  expect_refused({"E-MODEL-INDEX", "'c'", "does not exist", "two.safetensors"});
}

TEST_F(ModelFilesTest, TensorInTwoShards) {
  write_shards();
  write_tensors(in_model("two.safetensors"), {"c", "a"});
  expect_refused({"E-MODEL-TENSOR-TWICE", "tensor 'a'", "one.safetensors", "two.safetensors"});
  write_index(R"("a":"one.safetensors","a":"two.safetensors","b":"one.safetensors","c":"two.safetensors")");
  expect_refused({"DUPLICATE-KEY", "weight_map.a"});
}

TEST_F(ModelFilesTest, ListedTensorThatItsShardLacks) {
  write_shards();
  write_index(R"("a":"one.safetensors","b":"one.safetensors","c":"two.safetensors","d":"two.safetensors")");
  expect_refused({"E-MODEL-TENSOR-MISSING", "two.safetensors", "1 missing: d"});
  std::string map = kGoodMap;
  for (int i = 10; i < 40; ++i) map += ",\"x" + std::to_string(i) + "\":\"one.safetensors\"";
  write_index(map);
  expect_refused({"30 missing: x10", "x29 and 10 more"});
  write_index(R"("a":"two.safetensors","b":"one.safetensors","c":"two.safetensors")");
  expect_error(ErrorKind::Model, {"a"}, [&] { ModelFiles::open(model_); });
}

TEST_F(ModelFilesTest, UnlistedTensor) {
  write_shards();
  write_index(R"("a":"one.safetensors","c":"two.safetensors")");
  expect_refused({"E-MODEL-TENSOR-UNLISTED", "1 unlisted: b"});
}

TEST_F(ModelFilesTest, WrongTotalSizeIsAWarning) {
  write_shards();
  ::testing::internal::CaptureStderr();
  ModelFiles::open(model_);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  for (const std::string total : {"7", "-1", "\"6\"", "6.5", "1e300"}) {
    write_index(kGoodMap, "\"metadata\":{\"total_size\":" + total + "}");
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(ModelFiles::open(model_).total_bytes(), 6);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("warning: " + in_model(kIndex) + ": total_size is "))
        << total;
  }
}

TEST_F(ModelFilesTest, MalformedIndex) {
  write_shards();
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "malformed"},
           {"[]", "must be a JSON object"},
           {"{}", "weight_map"},
           {"{\"weight_map\":[]}", "weight_map"},
           {"{\"weight_map\":{}}", "lists no tensor"},
           {"{\"weight_map\":{\"a\":1}}", "must be a string"},
           {"{\"weight_map\":{\"a\":null}}", "must be a string"},
           {"{\"weight_map\":{\"a\":\"one.safetensors\"}", "malformed"},
           {"{\"weight_map\":{\"a\":\"pytorch_model-00001.bin\"}}", "pickle is not supported"},
           {std::string(100'000, '['), "nested too deeply"}}) {
    write_file_atomic(in_model(kIndex), text);
    expect_refused({part, model_});
  }
}

TEST_F(ModelFilesTest, EveryMutationOfAnIndexIsRefusedOrSafe) {
  write_shards();
  const std::string original = read_file(in_model(kIndex), 10'000);
  ::testing::internal::CaptureStderr();  // hides warnings about total_size
  for (size_t i = 0; i < original.size(); ++i) {
    for (const int change : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
      std::string text = original;
      text[i] = static_cast<char>(text[i] ^ change);
      std::ofstream(in_model(kIndex), std::ios::binary | std::ios::trunc) << text;
      try {
        const ModelFiles files = ModelFiles::open(model_);
        for (const TensorInfo* tensor : files.tensors()) read_tensor(files, tensor->name);
      } catch (const Error& error) {
        ASSERT_TRUE(error.kind() == ErrorKind::Model || error.kind() == ErrorKind::Storage) << error.what();
      }
    }
  }
  ::testing::internal::GetCapturedStderr();
}

class ShardedWriterTest : public ModelFilesTest {
 protected:
  static std::vector<TensorSpec> specs(int64_t count) {
    std::vector<TensorSpec> result;
    for (int64_t i = 0; i < count; ++i)
      result.push_back({std::string(1, static_cast<char>('a' + i)), DType::U8, {2}});
    return result;
  }
  void save(int64_t count, int64_t max_shard_bytes, char fill) {
    ShardedSafetensorsWriter writer(model_, specs(count), {.max_shard_bytes = max_shard_bytes});
    fill_all(writer, count, fill);
    writer.commit();
  }
  static void fill_all(ShardedSafetensorsWriter& writer, int64_t count, char fill) {
    for (const TensorSpec& spec : specs(count)) {
      const std::string bytes = {spec.name[0], fill};
      writer.write(spec.name, 0, bytes.data(), 2);
    }
  }
  void expect_model(int64_t count, char fill) {
    const ModelFiles files = ModelFiles::open(model_);
    ASSERT_EQ(static_cast<int64_t>(files.tensors().size()), count);
    for (const TensorSpec& spec : specs(count))
      EXPECT_EQ(read_tensor(files, spec.name), std::string({spec.name[0], fill}));
  }
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(model_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
};

TEST_F(ShardedWriterTest, OneFileWhenAllFits) {
  save(3, 6, '1');
  EXPECT_THAT(entries(), ElementsAre("model.safetensors"));
  expect_model(3, '1');
  EXPECT_EQ(ModelFiles::open(model_).metadata().at("format"), "pt");
}

TEST_F(ShardedWriterTest, ShardsAndIndexBeyond) {
  save(5, 4, '1');
  EXPECT_THAT(entries(), ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                     "model-00003-of-00003.safetensors", kIndex));
  EXPECT_EQ(read_file(in_model(kIndex), 10'000), R"({
  "metadata": {
    "total_size": 10
  },
  "weight_map": {
    "a": "model-00001-of-00003.safetensors",
    "b": "model-00001-of-00003.safetensors",
    "c": "model-00002-of-00003.safetensors",
    "d": "model-00002-of-00003.safetensors",
    "e": "model-00003-of-00003.safetensors"
  }
}
)");
  expect_model(5, '1');
}

TEST_F(ShardedWriterTest, TensorLargerThanAShardStandsAlone) {
  ShardedSafetensorsWriter writer(model_,
                                  {{"a", DType::U8, {1}}, {"b", DType::U8, {100}}, {"c", DType::U8, {1}}},
                                  {.max_shard_bytes = 10});
  EXPECT_EQ(writer.file_names().size(), 3u);
  writer.write("a", 0, "x", 1);
  writer.write("c", 0, "y", 1);
  const std::string bytes(100, 'z');
  writer.write("b", 50, bytes.data(), 50);
  expect_error(ErrorKind::Internal, {"'b'", "from byte 0"}, [&] { writer.commit(); });
  EXPECT_FALSE(exists(in_model(kIndex)));
  writer.write("b", 0, bytes.data(), 50);
  writer.commit();
  EXPECT_EQ(ModelFiles::open(model_).find("b").tensor->num_bytes(), 100);
}

TEST_F(ShardedWriterTest, LaterSavesReplaceEarlierOnesWhole) {
  save(5, 4, '1');
  save(4, 2, '2');
  EXPECT_EQ(entries().size(), 5u);
  expect_model(4, '2');
  save(3, 100, '3');
  EXPECT_THAT(entries(), ElementsAre("model.safetensors"));
  expect_model(3, '3');
  write_file_atomic(in_model("model-00001-of-0002.safetensors"), "not ours");
  save(4, 4, '4');
  EXPECT_THAT(entries(), ElementsAre("model-00001-of-00002.safetensors", "model-00001-of-0002.safetensors",
                                     "model-00002-of-00002.safetensors", kIndex));
  expect_model(4, '4');
}

TEST_F(ShardedWriterTest, WithoutCommitTheOldModelStays) {
  save(5, 4, '1');
  const std::vector<std::string> before = entries();
  {
    ShardedSafetensorsWriter writer(model_, specs(5), {.max_shard_bytes = 4});
    fill_all(writer, 5, '2');
  }
  {
    ShardedSafetensorsWriter writer(model_, specs(5), {.max_shard_bytes = 4});
    fill_all(writer, 4, '2');
    expect_error(ErrorKind::Internal, {"'e'"}, [&] { writer.commit(); });
  }
  EXPECT_EQ(entries(), before);
  expect_model(5, '1');
}

TEST_F(ShardedWriterTest, MixOfTwoSavesIsNeverRead) {
  save(4, 4, '1');
  {
    ShardedSafetensorsWriter writer(model_, specs(4), {.max_shard_bytes = 4});
    fill_all(writer, 4, '2');
    // A folder stands in the second shard's place, so its rename fails after the first shard was replaced.
    fs::remove(in_model("model-00002-of-00002.safetensors"));
    make_directories(in_model("model-00002-of-00002.safetensors/x"));
    expect_error(ErrorKind::Storage, {"model-00002-of-00002.safetensors"}, [&] { writer.commit(); });
  }
  expect_refused({"E-MODEL-NO-WEIGHTS"});
}

TEST_F(ShardedWriterTest, MakesTheFolderAndTakesAName) {
  model_ = folder_ / "new/deep";
  ShardedSafetensorsWriter writer(model_, specs(1), {.metadata = {}, .name = "adapter_model"});
  fill_all(writer, 1, '1');
  writer.commit();
  EXPECT_THAT(entries(), ElementsAre("adapter_model.safetensors"));
  EXPECT_TRUE(ModelFiles::open(model_, "adapter_model.safetensors").metadata().empty());
}

TEST_F(ShardedWriterTest, BadDeclarations) {
  expect_error(ErrorKind::Model, {"'a'", "twice"}, [&] {
    ShardedSafetensorsWriter(model_, {specs(1)[0], specs(1)[0]}, {.max_shard_bytes = 2});
  });
  expect_error(ErrorKind::Model, {"overflow"}, [&] {
    ShardedSafetensorsWriter(model_, {{"a", DType::U8, {INT64_MAX}}, {"b", DType::U8, {INT64_MAX}}},
                             {.max_shard_bytes = INT64_MAX});
  });
  EXPECT_TRUE(entries().empty());
  write_file_atomic(folder_ / "file", "");
  expect_error(ErrorKind::Storage, {"E-STORAGE-NOT-A-DIRECTORY"},
               [&] { ShardedSafetensorsWriter(folder_ / "file", specs(1)); });
}

}  // namespace
}  // namespace tessera::io

#include "tessera/checkpoint/stored_tensors.h"

#include <gtest/gtest.h>

#include "tessera/checkpoint/rewrite_folder.h"
#include "tessera/core/error.h"
#include "tessera/core/memory_ledger.h"
#include "tessera/device/cpu_allocator.h"
#include "tessera/io/file.h"
#include "tessera/io/result_folder.h"
#include "tessera/models/common/base_model.h"

#include "tests/checkpoint/random_boxes.h"
#include "tests/testing/temp_folder.h"

namespace tessera::checkpoint {
namespace {

using parallel::Box;
using testing::TempFolder;

std::string code_of(const std::function<void()>& run) {
  try {
    run();
    return "";
  } catch (const Error& error) {
    return error.code();
  }
}

// Returns a tensor of the box's size with random strides; `around` gets the memory around it, whose values
// must stay.
at::Tensor destination_of(const Box& box, at::ScalarType type, testing::RandomBoxes& random,
                          at::Tensor& around) {
  std::vector<int64_t> padded = box.size, order(box.size.size());
  for (size_t d = 0; d < padded.size(); ++d) {
    padded[d] += random.in(0, 2);
    order[d] = static_cast<int64_t>(d);
  }
  std::shuffle(order.begin(), order.end(), random.engine());
  std::vector<int64_t> memory(padded.size());
  for (size_t d = 0; d < padded.size(); ++d) memory[static_cast<size_t>(order[d])] = padded[d];
  around = at::full(memory, 7, type).permute(order);
  return parallel::box_part(around, {std::vector<int64_t>(padded.size(), 0), box.size});
}

TEST(ReadBox, AnyBoxOfAnyTensorIntoAnyStrides) {
  testing::RandomBoxes random;
  const TempFolder folder;
  for (int round = 0; round < 60; ++round) {
    testing::Tensors tensors;
    for (int i = 0; i < 3; ++i) {
      const std::vector<int64_t> shape = random.shape(5, 9);
      const at::Tensor values = at::randn(shape, at::kDouble);
      tensors["f" + std::to_string(i)] =
          values.to(std::vector{at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}[random.in(0, 3)]);
    }
    testing::save_tensors(folder / "model.safetensors", tensors);
    const io::ModelFiles files = io::ModelFiles::open(folder.path());
    for (int cut = 0; cut < 20; ++cut) {
      const auto& [name, stored] = *std::next(tensors.begin(), random.in(0, 2));
      const Box box = random.box(stored.sizes().vec());
      const at::ScalarType type = std::vector{at::kDouble, at::kFloat, at::kBFloat16}[random.in(0, 2)];
      at::Tensor around = at::full(box.size, 7, type), got = around;
      if (random.flip()) got = destination_of(box, type, random, around);
      at::Tensor want = around.clone();
      parallel::box_part(want, whole_box(box.size)).copy_(parallel::box_part(stored, box).to(type));
      read_box(files, name, box, got);
      ASSERT_TRUE(at::equal(around, want))
          << stored.sizes() << " " << at::IntArrayRef(box.offset) << " " << at::IntArrayRef(box.size);
    }
  }
}

// Boxes are read in pieces that fit the staging buffer, also if their slices lie far apart.
TEST(ReadBox, BoxesThatSpanMoreThanTheBufferNeedNoMore) {
  install_cpu_allocator();
  const TempFolder folder;
  const int64_t rows = 3000, columns = 9000;  // 54 MB of bf16
  const at::Tensor stored = at::arange(rows * columns).remainder(251).to(at::kBFloat16).view({rows, columns});
  testing::save_tensors(folder / "model.safetensors", {{"x", stored}});
  const io::ModelFiles files = io::ModelFiles::open(folder.path());
  for (const Box& box : {Box{{0, 0}, {rows, columns}}, Box{{0, 1}, {rows, columns - 1}},
                         Box{{7, 0}, {2500, 20}}, Box{{0, 8000}, {rows, 1000}}, Box{{2, 100}, {2000, 300}}}) {
    for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
      const at::Tensor got = at::zeros(box.size, type), turned = at::zeros({box.size[1], box.size[0]}, type);
      memory_ledger::start();
      read_box(files, "x", box, got);
      read_box(files, "x", box, turned.t());
      memory_ledger::stop();
      EXPECT_LE(memory_ledger::peak().total(), int64_t{17} << 20);  // the peak is known to a mebibyte
      EXPECT_TRUE(at::equal(got, parallel::box_part(stored, box).to(type)));
      EXPECT_TRUE(at::equal(turned.t(), got));
    }
  }
}

TEST(ReadBox, RunsOfTheSameTypeNeedNothingBeside) {
  install_cpu_allocator();
  const TempFolder folder;
  const at::Tensor stored = at::randn({600, 2000});
  testing::save_tensors(folder / "model.safetensors", {{"x", stored}});
  const io::ModelFiles files = io::ModelFiles::open(folder.path());
  for (const Box& box : {Box{{100, 0}, {400, 2000}}, Box{{3, 7}, {1, 1900}}}) {
    const at::Tensor got = at::zeros(box.size);
    memory_ledger::start();
    read_box(files, "x", box, got);
    memory_ledger::stop();
    EXPECT_EQ(memory_ledger::most().total(), 0);
    EXPECT_TRUE(at::equal(got, parallel::box_part(stored, box)));
  }
}

TEST(ReadBox, TypesThatAreNotWeights) {
  const TempFolder folder;
  testing::save_tensors(folder / "model.safetensors", {{"ids", at::arange(3)},
                                                       {"flags", at::ones({2}, at::kBool)},
                                                       {"scalar", at::full({}, 3.5)},
                                                       {"eight", at::zeros({4}).to(at::kFloat8_e4m3fn)}});
  const io::ModelFiles files = io::ModelFiles::open(folder.path());
  const at::Tensor scalar = at::zeros({}, at::kDouble), ids = at::zeros({2}, at::kInt);
  read_box(files, "scalar", {}, scalar);
  EXPECT_EQ(scalar.item<double>(), 3.5);
  read_box(files, "ids", {{1}, {2}}, ids);
  EXPECT_TRUE(at::equal(ids, at::arange(1, 3, at::kInt)));
  const at::Tensor eight = at::ones({4}).to(at::kFloat8_e4m3fn);
  read_box(files, "eight", {{0}, {4}}, eight);
  EXPECT_EQ(eight.to(at::kFloat).abs().sum().item<float>(), 0.0F);
  EXPECT_EQ(code_of([&] { read_box(files, "ids", {{0}, {3}}, at::zeros({3})); }), "E-MODEL-DTYPE");
  EXPECT_EQ(code_of([&] { read_box(files, "eight", {{0}, {4}}, at::zeros({4})); }), "E-MODEL-DTYPE");
  EXPECT_EQ(code_of([&] { read_box(files, "scalar", {}, at::zeros({}, at::kInt)); }), "E-MODEL-DTYPE");
  EXPECT_EQ(code_of([&] {
              read_box(files, "absent", {{0}, {1}}, at::zeros({1}));
            }),
            "E-MODEL-TENSOR-MISSING");
}

TEST(RewriteFolder, EachWeightIsRoundedOnce) {
  const testing::TempFolder folder;
  const std::string source = folder / "source", target = folder / "target";
  io::make_directories(source);
  const at::Tensor values =
      at::tensor({1.0f, 1.00390625f, -3.14159f, 65504.0f, 1e-20f, INFINITY}).view({3, 2});
  const std::vector<int64_t> ids = {5, 6};
  {
    io::SafetensorsWriter writer(
        source + "/model.safetensors",
        {{"w", DType::F32, {3, 2}}, {"ids", DType::I64, {2}}, {"none", DType::F32, {0, 4}}});
    writer.write("w", 0, values.const_data_ptr(), 24);
    writer.write("ids", 0, ids.data(), 16);
    writer.commit();
  }
  io::write_file_atomic(source + "/config.json", R"({"model_type": "any", "torch_dtype": "float32"})");
  io::write_file_atomic(source + "/tokenizer.json", "{}");
  write_side_files({{"additional_chat_templates/tool_use.jinja", "tools"}}, source);
  io::write_file_atomic(source + "/notes.txt", "not a part of the model");
  io::ResultFolder result(target, {});
  EXPECT_EQ(rewrite_folder(*models::folder_tensors(source), DType::BF16, result), 12 + 16);
  const io::ModelFiles files = io::ModelFiles::open(target);
  const at::Tensor read = at::empty({3, 2}, at::kBFloat16);
  files.read("w", 0, 12, read.mutable_data_ptr());
  EXPECT_TRUE(at::equal(read, values.to(at::kBFloat16)));
  EXPECT_EQ(files.find("ids").tensor->dtype, DType::I64);
  EXPECT_EQ(files.find("none").tensor->dtype, DType::BF16);
  EXPECT_NE(io::read_file(target + "/config.json", 1000).find("\"dtype\": \"bfloat16\""), std::string::npos);
  EXPECT_TRUE(io::exists(target + "/tokenizer.json"));
  EXPECT_EQ(io::read_file(target + "/additional_chat_templates/tool_use.jinja", 100), "tools");
  EXPECT_FALSE(io::exists(target + "/notes.txt"));
}

TEST(RewriteFolder, WhatWouldBeWrongIsRefused) {
  const testing::TempFolder folder;
  const std::string source = folder / "source";
  io::make_directories(source);
  const auto refuse = [&](DType stored, float value, DType dtype, const std::string& config,
                          const std::string& part) {
    const at::Tensor tensor = is_weight_dtype(stored) ? at::full({2}, value) : at::zeros({2}, at::kByte);
    io::SafetensorsWriter writer(source + "/model.safetensors", {{"w", stored, {2}}});
    writer.write("w", 0, tensor.const_data_ptr(), static_cast<int64_t>(tensor.nbytes()));
    writer.commit();
    io::write_file_atomic(source + "/config.json", config);
    try {
      io::ResultFolder result(folder / "target", {});
      rewrite_folder(*models::folder_tensors(source), dtype, result);
      ADD_FAILURE() << "no error with '" << part << "'";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    EXPECT_FALSE(io::exists(folder / "target"));
  };
  refuse(DType::F32, 7e4f, DType::F16, "{}", "too large for the type");
  refuse(DType::F32, 1.0f, DType::F16, R"({"quantization_config": {}})", "quant_method");
  refuse(DType::F8E4M3, 1.0f, DType::BF16, "{}", "F8_E4M3");
  refuse(DType::F32, 1.0f, DType::F16, "no json", "config.json");
}

}  // namespace
}  // namespace tessera::checkpoint

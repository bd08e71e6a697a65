#include "tessera/checkpoint/quantized_tensors.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/checkpoint/rewrite_folder.h"
#include "tessera/checkpoint/save_folder.h"
#include "tessera/core/memory_ledger.h"
#include "tessera/device/cpu_allocator.h"
#include "tessera/io/file.h"
#include "tessera/io/result_folder.h"

#include "tests/checkpoint/random_boxes.h"
#include "tests/io/expect_error.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_folder.h"

namespace tessera::checkpoint {
namespace {

using parallel::Box;
using testing::expect_error;
using ::testing::HasSubstr;
using testing::TempFolder;

const std::string kReference = testing::source_folder() + "/tests/reference/data/quantized/";

StateDictAdapter table_of(const std::vector<StoredPart>& tensors) {
  std::vector<StoredParameter> parameters;
  for (const StoredPart& part : tensors) parameters.push_back({part.name, part.in_parameter().size, {part}});
  return StateDictAdapter(std::move(parameters));
}

// The only weight of the reference folders that its model keeps transposed.
const std::vector<StoredPart> kTransposed = {stored_transposed("h.0.mlp.c_fc.weight", {16, 64})};

std::shared_ptr<const StoredTensors> open(const std::string& folder,
                                          const std::vector<StoredPart>& of_model = kTransposed) {
  return model_tensors(std::make_shared<const io::ModelFiles>(io::ModelFiles::open(folder)),
                       [&] { return table_of(of_model); });
}

at::Tensor read(const StoredTensors& tensors, const std::string& name, const Box& box, at::ScalarType type) {
  const at::Tensor values = at::full(box.size, 77, at::TensorOptions(at::kCPU).dtype(type));
  tensors.read(name, box, values);
  return values;
}

at::Tensor read_all(const StoredTensors& tensors, const std::string& name, at::ScalarType type = at::kFloat) {
  return read(tensors, name, whole_box(tensors.find(name)->shape), type);
}

// FNV-1a of 64 bits.
std::string hash_of(const at::Tensor& values) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto* bytes = static_cast<const uint8_t*>(values.const_data_ptr());
  for (size_t i = 0; i < values.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

class QuantizedReference : public ::testing::TestWithParam<const char*> {};

// The values are those of the packages that wrote the folders, or of the formats' formulas, bit for bit.
TEST_P(QuantizedReference, EveryBoxHasTheReferencesValues) {
  const std::string folder = kReference + GetParam();
  const auto expected = nlohmann::json::parse(io::read_file(folder + "/expected.json", 1 << 20));
  const auto tensors = open(folder);
  testing::RandomBoxes random;
  std::vector<std::string> names;
  for (const io::TensorSpec& spec : tensors->tensors()) names.push_back(spec.name);
  std::vector<std::string> wanted;
  for (const auto& [name, unused] : expected["weights"].items()) wanted.push_back(name);
  ASSERT_THAT(names, ::testing::UnorderedElementsAreArray(wanted));
  for (const auto& [name, weight] : expected["weights"].items()) {
    const io::TensorSpec& spec = *tensors->find(name);
    ASSERT_EQ(spec.shape, weight["shape"].get<std::vector<int64_t>>()) << name;
    const std::string plain = expected["plain"];
    EXPECT_EQ(spec.dtype, plain == "f32" ? DType::F32 : plain == "f16" ? DType::F16 : DType::BF16) << name;
    const std::string type = weight.contains("bf16") ? "bf16" : weight.contains("f16") ? "f16" : "f32";
    const at::Tensor whole = read_all(*tensors, name);
    const at::Tensor rounded = type == "bf16"  ? whole.to(at::kBFloat16)
                               : type == "f16" ? whole.to(at::kHalf).to(at::kFloat)
                                               : whole;
    EXPECT_EQ(hash_of(rounded), weight[type].get<std::string>())
        << name << ": " << whole.flatten().narrow(0, 0, 4) << " against " << weight["first"];
    for (int round = 0; round < 30; ++round) {
      const Box box = random.box(spec.shape);
      const at::ScalarType to = std::vector{at::kFloat, at::kBFloat16, at::kDouble}[random.in(0, 2)];
      const at::Tensor want = parallel::box_part(whole, box).to(to);
      ASSERT_TRUE(at::equal(read(*tensors, name, box, to), want)) << name;
      if (box.size.size() != 2) continue;
      const at::Tensor across = at::zeros({box.size[1], box.size[0]}, to);
      tensors->read(name, box, across.t());
      ASSERT_TRUE(at::equal(across.t(), want)) << name;
    }
  }
}

TEST_P(QuantizedReference, BlocksExpandToTheValues) {
  const std::string folder = kReference + GetParam();
  const auto expected = nlohmann::json::parse(io::read_file(folder + "/expected.json", 1 << 20));
  const auto tensors = open(folder);
  const auto plain = stored_tensors(std::make_shared<const io::ModelFiles>(io::ModelFiles::open(folder)));
  const auto without = expected["without_form"].get<std::vector<std::string>>();
  testing::RandomBoxes random;
  for (const io::TensorSpec& spec : tensors->tensors()) {
    const auto form = tensors->form(spec.name);
    const io::TensorSpec* stored = plain->find(spec.name);
    const bool is_plain = stored != nullptr && is_weight_dtype(stored->dtype) && stored->shape == spec.shape;
    EXPECT_EQ(form.has_value(), !is_plain && std::ranges::find(without, spec.name) == without.end())
        << spec.name;
    if (!form) continue;
    at::Tensor whole = read_all(*tensors, spec.name);
    if (whole.dim() == 3) whole = whole.transpose(1, 2).flatten(0, 1);
    ASSERT_EQ(whole.size(1) % form->elements, 0);
    ASSERT_LE(form->elements, 256);
    for (int round = 0; round < 20; ++round) {
      Box box = random.box({whole.size(0), whole.size(1) / form->elements});
      const at::Tensor blocks = at::zeros({box.size[0], box.size[1] * form->bytes}, at::kByte);
      box.offset[1] *= form->elements;
      box.size[1] *= form->elements;
      tensors->read_blocks(spec.name, box, blocks);
      const at::Tensor values = at::zeros(box.size);
      io::expand_blocks(*form, blocks.const_data_ptr(), box.numel() / form->elements,
                        values.mutable_data_ptr<float>());
      ASSERT_TRUE(at::equal(values, parallel::box_part(whole, box))) << spec.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, QuantizedReference,
                         ::testing::Values("bnb_nf4", "bnb_fp4", "bnb_gpt2", "bnb_int8", "gptq", "gptq_v2",
                                           "gptq_2bit", "gptq_3bit", "awq", "ct_packed", "ct_int", "ct_float",
                                           "ct_nvfp4", "ct_mxfp4", "fp8_blocks", "fp8_tensor",
                                           "modelopt_nvfp4", "modelopt_fp8", "llama_nf4", "mxfp4_experts"),
                         [](const auto& info) { return std::string(info.param); });

// Returns the tensors of a folder as they are stored.
testing::Tensors raw_tensors(const std::string& folder) {
  const io::ModelFiles files = io::ModelFiles::open(folder);
  testing::Tensors tensors;
  for (const io::TensorInfo* tensor : files.tensors()) {
    const at::Tensor value =
        at::empty(tensor->shape, at::TensorOptions(at::kCPU).dtype(to_scalar_type(tensor->dtype)));
    files.read(tensor->name, 0, tensor->num_bytes(), value.mutable_data_ptr());
    tensors[tensor->name] = value;
  }
  return tensors;
}

// Writes a folder that differs from a reference folder in some tensors.
void write_changed(const std::string& base, const TempFolder& folder,
                   const std::function<void(testing::Tensors&)>& change) {
  testing::Tensors tensors = raw_tensors(kReference + base);
  change(tensors);
  testing::save_tensors(folder / "model.safetensors", tensors);
  for (const char* name : {"config.json", "quantize_config.json", "hf_quant_config.json"}) {
    const std::string path = kReference + base + "/" + name;
    if (io::exists(path)) folder.write(name, io::read_file(path, 1 << 20));
  }
}

// Reads all weights of a folder.
void read_folder(const std::string& folder) {
  const auto tensors = open(folder);
  for (const io::TensorSpec& spec : tensors->tensors()) (void)read_all(*tensors, spec.name);
}

at::Tensor text_tensor(const std::string& text) {
  return at::tensor(std::vector<uint8_t>(text.begin(), text.end()), at::kByte);
}

std::string text_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), static_cast<size_t>(tensor.numel())};
}

// Replaces a part of the description of a bitsandbytes weight.
void change_state(testing::Tensors& tensors, const std::string& from, const std::string& to) {
  at::Tensor& state = tensors.at("model.a.weight.quant_state.bitsandbytes__nf4");
  std::string text = text_of(state);
  ASSERT_NE(text.find(from), std::string::npos) << text;
  state = text_tensor(text.replace(text.find(from), from.size(), to));
}

struct BadFolder {
  const char* name;
  const char* base;
  std::function<void(testing::Tensors&)> change;
  const char* part;  // of the message
};

class BadFolders : public ::testing::TestWithParam<BadFolder> {};

TEST_P(BadFolders, AreRefusedWithTheTensorsName) {
  const TempFolder folder;
  write_changed(GetParam().base, folder, GetParam().change);
  expect_error(ErrorKind::Model, {GetParam().part, folder.path()}, [&] { read_folder(folder.path()); });
}

// Replaces a tensor by another one.
auto put(const std::string& name, const at::Tensor& value) {
  return [=](testing::Tensors& tensors) { tensors.at(name) = value; };
}
auto drop(const std::string& name) {
  return [=](testing::Tensors& tensors) { ASSERT_EQ(tensors.erase(name), 1U); };
}
// Sets one element of a tensor, by its place in the flat order.
auto poke(const std::string& name, int64_t at, double value) {
  return [=](testing::Tensors& tensors) { tensors.at(name).flatten()[at].fill_(value); };
}
auto state(const std::string& from, const std::string& to) {
  return [=](testing::Tensors& tensors) { change_state(tensors, from, to); };
}
constexpr double kNan = std::numeric_limits<double>::quiet_NaN(),
                 kInf = std::numeric_limits<double>::infinity();

INSTANTIATE_TEST_SUITE_P(
    BitsAndBytes, BadFolders,
    ::testing::Values(
        BadFolder{"no_absmax", "bnb_nf4", drop("model.a.weight.absmax"), "model.a.weight.absmax"},
        BadFolder{"no_state", "bnb_nf4", drop("model.a.weight.quant_state.bitsandbytes__nf4"), "quant_state"},
        BadFolder{"no_codes", "bnb_nf4", drop("model.a.weight"), "lacks its codes"},
        BadFolder{"no_nested_map", "bnb_nf4", drop("model.c.weight.nested_quant_map"), "nested_quant_map"},
        BadFolder{"short_codes", "bnb_nf4", put("model.a.weight", at::zeros({959, 1}, at::kByte)),
                  "each element"},
        BadFolder{"long_absmax", "bnb_nf4", put("model.a.weight.absmax", at::ones({31})), "each block"},
        BadFolder{"type_of_absmax", "bnb_nf4", put("model.a.weight.absmax", at::ones({30}, at::kHalf)),
                  "F16"},
        BadFolder{"negative_absmax", "bnb_nf4", poke("model.a.weight.absmax", 3, -1.0), "negative"},
        BadFolder{"nan_absmax", "bnb_nf4", poke("model.a.weight.absmax", 3, kNan), "no number"},
        BadFolder{"infinite_absmax", "bnb_nf4", poke("model.a.weight.absmax", 3, kInf), "not finite"},
        BadFolder{"nan_nested", "bnb_nf4", poke("model.c.weight.nested_absmax", 1, kNan), "not finite"},
        BadFolder{"nan_nested_map", "bnb_nf4", poke("model.c.weight.nested_quant_map", 7, kNan),
                  "not finite"},
        BadFolder{"other_map", "bnb_nf4", poke("model.a.weight.quant_map", 4, -0.28), "quant_map"},
        BadFolder{"block_of_0", "bnb_nf4", state("\"blocksize\": 64", "\"blocksize\": 0"), "blocksize"},
        BadFolder{"block_of_63", "bnb_nf4", state("\"blocksize\": 64", "\"blocksize\": 63"), "blocksize"},
        BadFolder{"negative_block", "bnb_nf4", state("\"blocksize\": 64", "\"blocksize\": -64"), "blocksize"},
        BadFolder{"huge_block", "bnb_nf4", state("\"blocksize\": 64", "\"blocksize\": 9999999999999"),
                  "blocksize"},
        BadFolder{"huge_shape", "bnb_nf4", state("[24, 80]", "[1099511627775, 1099511627775]"), "no size"},
        BadFolder{"empty_shape", "bnb_nf4", state("[24, 80]", "[0, 80]"), "shape"},
        BadFolder{"other_shape", "bnb_nf4", state("[24, 80]", "[24, 81]"), "each element"},
        BadFolder{"three_dims", "bnb_nf4", state("[24, 80]", "[24, 8, 10]"), "shape"},
        BadFolder{"broken_json", "bnb_nf4", state("{", "["), "quant_state"},
        BadFolder{"other_type", "bnb_nf4", state("\"nf4\"", "\"fp4\""), "quant_type"},
        BadFolder{"no_rows_scales", "bnb_int8", drop("model.a.SCB"), "model.a.weight"},
        BadFolder{"few_rows_scales", "bnb_int8", put("model.a.SCB", at::ones({11})), "each row"},
        BadFolder{"negative_row", "bnb_int8", poke("model.a.SCB", 2, -3.0), "negative"},
        BadFolder{"turing", "bnb_int8", poke("model.a.weight_format", 0, 2), "col_turing"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Words, BadFolders,
    ::testing::
        Values(
            BadFolder{"no_zeros", "gptq", drop("model.a.qzeros"), "model.a.qzeros"},
            BadFolder{"no_scales", "gptq", drop("model.a.scales"), "model.a.scales"},
            BadFolder{"no_codes", "gptq", drop("model.a.qweight"), "model.a.qweight"},
            BadFolder{"group_too_large", "gptq", poke("model.a.g_idx", 5, 2), "does not exist"},
            BadFolder{"group_negative", "gptq", poke("model.a.g_idx", 5, -1), "does not exist"},
            BadFolder{"few_groups", "gptq", put("model.a.g_idx", at::zeros({63}, at::kInt)), "each column"},
            BadFolder{"nan_scale", "gptq", poke("model.a.scales", 9, kNan), "not finite"},
            BadFolder{"infinite_scale", "gptq", poke("model.b.scales", 9, kInf), "not finite"},
            BadFolder{"odd_width", "gptq", put("model.a.qzeros", at::zeros({2, 5}, at::kInt)), "qzeros"},
            BadFolder{"other_width", "gptq", put("model.a.qzeros", at::zeros({2, 6}, at::kInt)), "8 bits"},
            BadFolder{"one_row_less", "gptq", put("model.a.qweight", at::zeros({7, 24}, at::kInt)),
                      "model.a"},
            BadFolder{"other_columns", "gptq", put("model.a.qweight", at::zeros({8, 23}, at::kInt)),
                      "qweight"},
            BadFolder{"codes_of_64_bits", "gptq", put("model.a.qweight", at::zeros({8, 24}, at::kLong)),
                      "I64"},
            BadFolder{"empty", "gptq", put("model.a.qweight", at::zeros({0, 24}, at::kInt)), "qweight"},
            BadFolder{
                "both", "gptq",
                [](testing::Tensors& tensors) {
                  tensors["model.a.weight"] = at::ones({24, 64});
                },
                "both quantised and plain"},
            BadFolder{"awq_zeros", "awq", put("model.a.qzeros", at::zeros({2, 2}, at::kInt)), "qzeros"},
            BadFolder{"awq_codes", "awq", put("model.a.qweight", at::zeros({64, 2}, at::kInt)), "qweight"},
            BadFolder{"awq_groups", "awq", put("model.a.scales", at::ones({3, 24}, at::kHalf)), "groups"},
            BadFolder{"awq_nan", "awq", poke("model.a.scales", 3, kNan), "not finite"},
            BadFolder{"ct_shape", "ct_packed", put("model.a.weight_shape", at::zeros({2}, at::kLong)),
                      "weight_shape"},
            BadFolder{"ct_other_shape", "ct_packed", poke("model.a.weight_shape", 1, 640), "config_groups"},
            BadFolder{"ct_no_shape", "ct_packed", drop("model.a.weight_shape"), "weight_shape"},
            BadFolder{"ct_no_scale", "ct_packed", drop("model.a.weight_scale"), "weight_scale"},
            BadFolder{"ct_scale", "ct_packed", put("model.a.weight_scale", at::ones({24, 3})),
                      "config_groups"},
            BadFolder{"ct_zero", "ct_packed", put("model.b.weight_zero_point", at::zeros({2, 3}, at::kInt)),
                      "zero_point"},
            BadFolder{"ct_negative_index", "ct_packed",
                      [](testing::Tensors&
                             tensors) { tensors["model.a.weight_g_idx"] = at::full({64}, -1, at::kInt); },
                      "does not exist"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Floats, BadFolders,
    ::testing::Values(
        BadFolder{"no_scale", "fp8_blocks", drop("model.a.weight_scale_inv"), "model.a.weight"},
        BadFolder{"no_weight", "fp8_blocks", drop("model.a.weight"), "model.a.weight"},
        BadFolder{"other_scales", "fp8_blocks", put("model.a.weight_scale_inv", at::ones({3, 2})),
                  "scale_inv"},
        BadFolder{"nan_code", "fp8_blocks", poke("model.a.weight", 100, kNan), "no number"},
        BadFolder{"infinite_scale", "fp8_blocks", poke("model.a.weight_scale_inv", 1, kInf), "not finite"},
        BadFolder{"no_exponent", "fp8_blocks", poke("model.c.weight_scale_inv", 0, 255), "not finite"},
        BadFolder{"global_zero", "ct_nvfp4", poke("model.a.weight_global_scale", 0, 0), "positive"},
        BadFolder{"global_nan", "ct_nvfp4", poke("model.a.weight_global_scale", 0, kNan), "positive"},
        BadFolder{"scale_nan", "ct_nvfp4", poke("model.a.weight_scale", 0, kNan), "not finite"},
        BadFolder{"half_rows", "ct_nvfp4", put("model.a.weight_packed", at::zeros({6, 32}, at::kByte)),
                  "weight_scale"},
        BadFolder{"no_second", "modelopt_nvfp4", drop("model.q_proj.weight_scale_2"), "model.q_proj.weight"},
        BadFolder{"smoothed", "modelopt_nvfp4",
                  [](testing::Tensors& tensors) { tensors["model.q_proj.pre_quant_scale"] = at::ones({64}); },
                  "smoothed"}),
    [](const auto& info) { return std::string(info.param.name); });

const std::string kExperts = "model.layers.0.mlp.experts.";
INSTANTIATE_TEST_SUITE_P(
    Mxfp4, BadFolders,
    ::testing::Values(
        BadFolder{"no_scales", "mxfp4_experts", drop(kExperts + "down_proj_scales"), "down_proj_scales"},
        BadFolder{"no_blocks", "mxfp4_experts", drop(kExperts + "down_proj_blocks"), "down_proj_blocks"},
        BadFolder{"half_blocks", "mxfp4_experts",
                  put(kExperts + "down_proj_blocks", at::zeros({3, 7, 1, 8}, at::kByte)), "other shapes"},
        BadFolder{"one_matrix", "mxfp4_experts",
                  put(kExperts + "down_proj_scales", at::zeros({7, 1}, at::kByte)), "other shapes"},
        BadFolder{"plain_blocks", "mxfp4_experts",
                  put(kExperts + "down_proj_blocks", at::zeros({3, 7, 1, 16})), "down_proj_blocks"},
        BadFolder{"nan", "mxfp4_experts", poke(kExperts + "gate_up_proj_scales", 3, 255), "not finite"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(QuantizedTensors, ATruncatedFileIsRefused) {
  const TempFolder folder;
  write_changed("gptq", folder, [](testing::Tensors&) {});
  const std::string text = io::read_file(folder / "model.safetensors", 1 << 20);
  folder.write("model.safetensors", text.substr(0, text.size() - 1));
  expect_error(ErrorKind::Model, {"truncated"}, [&] { read_folder(folder.path()); });
}

TEST(QuantizedTensors, WhatCannotBeReadIsNamed) {
  const TempFolder folder;
  testing::save_tensors(folder / "model.safetensors", {{"model.norm.weight", at::ones({4})}});
  const auto refuse = [&](const std::string& keys, const std::vector<std::string>& parts) {
    folder.write("config.json", R"({"model_type": "llama", "quantization_config": )" + keys + "}");
    expect_error(ErrorKind::Model, parts, [&] { (void)open(folder.path()); });
  };
  for (const std::string method : {"torchao", "aqlm", "eetq", "hqq", "quanto", "bitnet", "spqr", "vptq",
                                   "fp_quant", "higgs", "fbgemm_fp8", "auto-round", "exl2"}) {
    refuse(R"({"quant_method": ")" + method + "\"}", {"E-MODEL-UNSUPPORTED", method, "hint"});
  }
  refuse("{}", {"quant_method"});
  refuse("3", {"quantization_config"});
  refuse(R"({"quant_method": 3})", {"quant_method"});
  for (const std::string format : {"marlin", "gptq_p", "bitblas", "qqq"}) {
    refuse(R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": ")" + format + "\"}",
           {"E-MODEL-UNSUPPORTED", format, "hint"});
  }
  refuse(R"({"quant_method": "gptq", "is_marlin_format": true})", {"Marlin"});
  for (const std::string version : {"gemv", "gemv_fast", "exllama", "marlin"}) {
    refuse(R"({"quant_method": "awq", "bits": 4, "version": ")" + version + "\"}",
           {"E-MODEL-UNSUPPORTED", version, "GEMM"});
  }
  refuse(R"({"quant_method": "awq", "bits": 3})", {"4 bits"});
  refuse(R"({"quant_method": "awq", "backend": "llm-awq"})", {"llm-awq"});
  const std::string packed = R"({"quant_method": "compressed-tensors", )";
  refuse(packed + R"("format": "marlin-24"})", {"marlin-24"});
  refuse(packed + R"("sparsity_config": {"format": "sparse-24-bitmask"}})", {"sparse-24-bitmask"});
  refuse(packed + R"("transform_config": {"u": 1}})", {"transformed"});
  refuse(R"({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"})", {"W4A8_AWQ"});
  refuse(R"({"quant_method": "fp8", "weight_block_size": [128]})", {"weight_block_size"});
  refuse(R"({"quant_method": "fp8", "weight_block_size": [0, 128]})", {"weight_block_size"});
}

// AutoGPTQ writes biases of zeros for layers that have none.
TEST(QuantizedTensors, BiasesThatTheModelHasNotAreLeftOut) {
  const TempFolder folder;
  write_changed("gptq", folder, [](testing::Tensors& tensors) {
    tensors["model.a.bias"] = at::zeros({24}, at::kHalf);
    tensors["model.b.bias"] = at::ones({16}, at::kHalf);
  });
  const StoredPart a = stored_as_is("model.a.weight", {24, 64}), b = stored_as_is("model.b.weight", {16, 64});
  EXPECT_EQ(open(folder.path(), {a, b})->find("model.a.bias"), nullptr);
  EXPECT_NE(open(folder.path(), {a, b})->find("model.b.bias"), nullptr);
  const StoredPart own = stored_as_is("model.a.bias", {24});
  EXPECT_NE(open(folder.path(), {a, own})->find("model.a.bias"), nullptr);
  EXPECT_NE(open(folder.path(), {b})->find("model.a.bias"), nullptr) << "of a layer that is not known";
}

// A folder whose weights are plain in spite of its configuration is read as it is.
TEST(QuantizedTensors, PlainWeightsStayPlain) {
  const TempFolder folder;
  testing::save_tensors(folder / "model.safetensors", {{"model.a.weight", at::ones({4, 4})}});
  folder.write("config.json", R"({"model_type": "llama", "quantization_config": {"load_in_4bit": true}})");
  const auto tensors = open(folder.path());
  EXPECT_FALSE(tensors->form("model.a.weight"));
  EXPECT_EQ(read_all(*tensors, "model.a.weight").sum().item<float>(), 16.0F);
}

TEST(QuantizedTensors, ManyThreadsReadAtOnce) {
  const auto tensors = open(kReference + "bnb_nf4");
  const at::Tensor whole = read_all(*tensors, "model.c.weight");
  std::vector<std::thread> threads;
  std::array<bool, 4> are_equal{};
  for (size_t i = 0; i < are_equal.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        are_equal[i] = at::equal(read_all(*tensors, "model.c.weight"), whole);
        if (!are_equal[i]) return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(are_equal, ::testing::Each(true));
}

TEST(QuantizedTensors, ReadingNeedsLittleMemoryBeside) {
  install_cpu_allocator();
  const TempFolder folder;
  const int64_t rows = 6000, columns = 4096;
  const at::Tensor words = at::randint(-100000, 100000, {columns / 8, rows}, at::kInt);
  testing::save_tensors(folder / "model.safetensors",
                        {{"model.a.qweight", words},
                         {"model.a.qzeros", words.narrow(0, 0, 32).narrow(1, 0, rows / 8).contiguous()},
                         {"model.a.scales", at::rand({columns / 128, rows}).to(at::kHalf)}});
  folder.write("config.json",
               R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}})");
  const auto tensors = open(folder.path());
  const at::Tensor got = at::zeros({rows, columns}, at::kBFloat16);
  memory_ledger::start();
  tensors->read("model.a.weight", whole_box({rows, columns}), got);
  memory_ledger::stop();
  EXPECT_LE(memory_ledger::peak().total(), int64_t{17} << 20);
}

TEST(QuantizedTensors, ResultsArePlainFolders) {
  EXPECT_EQ(plain_config("{\"a\":  1}"), "{\"a\":  1}");
  EXPECT_EQ(plain_config("no json"), "no json");
  EXPECT_EQ(plain_config(R"({"b": 1, "quantization_config": {"x": 2}, "a": 3})"),
            "{\n  \"b\": 1,\n  \"a\": 3\n}\n");
  const TempFolder folder;
  io::ResultFolder result(folder / "out", {});
  rewrite_folder(*open(kReference + "llama_nf4"), DType::F32, result);
  const std::string config = io::read_file(folder / "out/config.json", 1 << 20);
  EXPECT_THAT(config, ::testing::Not(HasSubstr("quantization_config")));
  EXPECT_EQ(read_base_files(kReference + "llama_nf4").config.find("quantization_config"), std::string::npos);
  const auto from = open(kReference + "llama_nf4"), to = open(folder / "out");
  ASSERT_EQ(from->tensors().size(), to->tensors().size());
  for (const io::TensorSpec& spec : to->tensors()) {
    EXPECT_EQ(spec.dtype, DType::F32);
    EXPECT_TRUE(at::equal(read_all(*from, spec.name), read_all(*to, spec.name))) << spec.name;
  }
}

}  // namespace
}  // namespace tessera::checkpoint

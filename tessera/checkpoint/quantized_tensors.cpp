#include "tessera/checkpoint/quantized_tensors.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint/quantized/formats.h"
#include "tessera/checkpoint/quantized/quantization_config.h"
#include "tessera/core/error.h"

namespace tessera::checkpoint {
namespace {

using parallel::Box;
using quantized::CodedWeight;
using quantized::Found;
using quantized::Method;

constexpr const char* kConfigKeys[] = {"quantization_config", "compression_config"};

struct Weight {
  CodedWeight coded;
  bool is_turned = false;  // the model's tensor is the transposed matrix, [in, out]
};
using Weights = std::map<std::string, Weight, std::less<>>;

Box turned(const Box& box) { return {{box.offset[1], box.offset[0]}, {box.size[1], box.size[0]}}; }

class QuantizedTensors : public StoredTensors {
 public:
  QuantizedTensors(std::shared_ptr<const io::ModelFiles> files, std::vector<io::TensorSpec> specs,
                   Weights weights)
      : StoredTensors(files->folder(), std::move(specs)),
        files_(files),
        plain_(stored_tensors(std::move(files))),
        weights_(std::move(weights)) {}

  void read(const std::string& name, const Box& box, const at::Tensor& destination) const override {
    const auto found = weights_.find(name);
    if (found == weights_.end()) return plain_->read(name, box, destination);
    const Weight& weight = found->second;
    if (weight.coded.matrices > 0) return read_stack(weight.coded, box, destination);
    TESSERA_ASSERT(box.size.size() == 2 && destination.sizes() == at::IntArrayRef(box.size) &&
                       destination.is_floating_point() &&
                       parallel::intersect(box, whole_box(find(name)->shape)) == box,
                   "a destination of the box's size");
    if (weight.is_turned) {
      quantized::read_values(*files_, weight.coded, turned(box), destination.t());
    } else {
      quantized::read_values(*files_, weight.coded, box, destination);
    }
  }

  std::optional<io::BlockForm> form(const std::string& name) const override {
    const auto found = weights_.find(name);
    if (found == weights_.end() || found->second.is_turned || !found->second.coded.saves_memory()) {
      return std::nullopt;
    }
    return found->second.coded.form;
  }

  void read_blocks(const std::string& name, const Box& box, const at::Tensor& destination) const override {
    TESSERA_ASSERT(form(name).has_value(), "a tensor that has a form");
    quantized::read_blocks(*files_, weights_.at(name).coded, box, destination);
  }

  void add_sample(ContentHash& hash) const override { plain_->add_sample(hash); }

 private:
  // Reads a box of [matrices, in, out].
  void read_stack(const CodedWeight& weight, const Box& box, const at::Tensor& destination) const {
    TESSERA_ASSERT(box.size.size() == 3 && destination.sizes() == at::IntArrayRef(box.size),
                   "a destination of the box's size");
    const int64_t rows = weight.rows() / weight.matrices;
    for (int64_t i = 0; i < box.size[0]; ++i) {
      const Box one{{(box.offset[0] + i) * rows + box.offset[2], box.offset[1]}, {box.size[2], box.size[1]}};
      quantized::read_values(*files_, weight, one, destination.select(0, i).t());
    }
  }

  const std::shared_ptr<const io::ModelFiles> files_;
  const std::shared_ptr<const StoredTensors> plain_;
  const Weights weights_;
};

Found find_weights(const quantized::Folder& folder, Method method) {
  switch (method) {
    case Method::BitsAndBytes: return quantized::find_bitsandbytes(folder);
    case Method::Gptq: return quantized::find_gptq(folder);
    case Method::Awq: return quantized::find_awq(folder);
    case Method::CompressedTensors: return quantized::find_compressed_tensors(folder);
    case Method::Fp8: return quantized::find_fp8(folder);
    case Method::ModelOpt: return quantized::find_modelopt(folder);
    case Method::Mxfp4: return quantized::find_mxfp4(folder);
  }
  throw_internal(__FILE__, __LINE__, "a known method", "method");
}

// Tells of each tensor of the table, by all its names, whether it is a matrix that is stored transposed.
using Turned = std::unordered_map<std::string, bool>;

Turned turned_tensors(const StateDictAdapter& table) {
  Turned turned;
  for (const StoredParameter& parameter : table.parameters()) {
    for (const StoredPart& part : parameter.parts) {
      const bool turns = part.is_transposed && part.leading_dims() == 0;
      turned[part.name] = turns;
      for (const std::string& alias : part.aliases) turned[alias] = turns;
    }
  }
  return turned;
}

// Refuses tensors that only a quantised weight has, where the configuration knows of none.
void check_rest(const io::ModelFiles& files, const io::TensorInfo& tensor) {
  constexpr const char* kEnds[] = {".qweight", ".qzeros",        ".weight_packed",    ".weight_scale",
                                   ".SCB",     ".weight.absmax", ".weight_scale_inv", ".quant_map",
                                   "_blocks",  "_scales"};
  const bool is_code = tensor.name.ends_with(".weight") && !is_weight_dtype(tensor.dtype);
  if (!is_code && std::ranges::none_of(kEnds, [&](const char* end) { return tensor.name.ends_with(end); }))
    return;
  throw quantized::broken(files, tensor.name,
                          "this part of a quantised weight belongs to no weight that is there")
      .got(std::string(dtype_name(tensor.dtype)))
      .hint("the folder is incomplete, or its configuration names another format");
}

DType most_common_dtype(const std::vector<const io::TensorInfo*>& plain) {
  std::map<DType, int64_t> elements;
  for (const io::TensorInfo* tensor : plain) {
    if (is_weight_dtype(tensor->dtype)) elements[tensor->dtype] += tensor->numel();
  }
  const auto most = std::ranges::max_element(elements, {}, [](const auto& entry) { return entry.second; });
  return most == elements.end() ? DType::BF16 : most->first;
}

std::shared_ptr<const StoredTensors> make_view(std::shared_ptr<const io::ModelFiles> files, Found found,
                                               const Turned& turned) {
  const std::unordered_set<std::string> used(found.used.begin(), found.used.end());
  std::vector<const io::TensorInfo*> plain;
  for (const io::TensorInfo* tensor : files->tensors()) {
    if (!used.contains(tensor->name)) plain.push_back(tensor);
  }
  const DType dtype = most_common_dtype(plain);
  for (const io::TensorInfo* tensor : plain) check_rest(*files, *tensor);
  Weights weights;
  std::unordered_map<std::string, io::TensorSpec> by_codes;
  for (CodedWeight& weight : found.weights) {
    weight.spec.dtype = dtype;
    const std::string name = weight.spec.name;
    if (files->find(name) && !used.contains(name)) {
      throw quantized::broken(*files, name, "the weight is there both quantised and plain");
    }
    io::TensorSpec spec = weight.spec;
    const bool turns = turned.contains(name) && turned.at(name);
    if (turns) std::swap(spec.shape[0], spec.shape[1]);
    if (weight.matrices > 0)
      spec.shape = {weight.matrices, weight.columns(), weight.rows() / weight.matrices};
    by_codes[weight.codes_in] = std::move(spec);
    weights[name] = {std::move(weight), turns};
  }
  // A weight takes the place of its codes.
  std::vector<io::TensorSpec> specs;
  for (const io::TensorInfo* tensor : files->tensors()) {
    const auto coded = by_codes.find(tensor->name);
    if (coded != by_codes.end()) {
      specs.push_back(coded->second);
    } else if (!used.contains(tensor->name)) {
      specs.push_back({tensor->name, tensor->dtype, tensor->shape});
    }
  }
  return std::make_shared<QuantizedTensors>(std::move(files), std::move(specs), std::move(weights));
}

// Leaves out biases of zeros of layers that have none in the model: AutoGPTQ writes one for each layer.
void leave_out_biases(const io::ModelFiles& files, const Turned& of_model, Found& found) {
  for (const CodedWeight& weight : found.weights) {
    const std::string name = weight.spec.name.substr(0, weight.spec.name.rfind('.')) + ".bias";
    if (!of_model.contains(weight.spec.name) || of_model.contains(name)) continue;
    const io::ModelFiles::Location bias = files.find(name);
    if (!bias || !is_weight_dtype(bias.tensor->dtype) || bias.tensor->numel() != weight.rows()) continue;
    const std::vector<float> values = quantized::read_floats(files, *bias.tensor);
    if (std::ranges::all_of(values, [](float x) { return x == 0.0f; })) found.used.push_back(name);
  }
}

}  // namespace

std::shared_ptr<const StoredTensors> model_tensors(std::shared_ptr<const io::ModelFiles> files,
                                                   const std::function<StateDictAdapter()>& make_table) {
  const auto config = quantized::read_quantization_config(files->folder());
  if (!config) return stored_tensors(std::move(files));
  Found found = find_weights({files, config->keys, config->group_names}, config->method);
  if (found.used.empty()) {
    for (const io::TensorInfo* tensor : files->tensors()) check_rest(*files, *tensor);
    return stored_tensors(std::move(files));
  }
  const Turned turned = turned_tensors(make_table());
  if (config->method == Method::Gptq) leave_out_biases(*files, turned, found);
  return make_view(std::move(files), std::move(found), turned);
}

std::string plain_config(const std::string& config_json) {
  auto config = nlohmann::ordered_json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  const auto has = [&](const char* key) { return config.contains(key); };
  if (!config.is_object() || std::ranges::none_of(kConfigKeys, has)) return config_json;
  for (const char* key : kConfigKeys) config.erase(key);
  return config.dump(2) + "\n";
}

}  // namespace tessera::checkpoint

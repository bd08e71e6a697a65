#include "tessera/checkpoint/gguf_model.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint/gguf_config.h"
#include "tessera/checkpoint/gguf_rope.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"

namespace tessera::checkpoint {
namespace {

struct Found {
  const GgufName* name = nullptr;
  std::string hugging_face;
};

// Returns the table's entry of a tensor, and its Hugging Face name with the number of the layer; nullopt if
// no model of the architecture with so many layers has the tensor.
std::optional<Found> find_name(const GgufArchitecture& architecture, const std::string& gguf,
                               int64_t num_layers) {
  for (const GgufName& name : architecture.outer_names) {
    if (gguf == name.gguf) return Found{&name, name.hugging_face};
  }
  if (gguf.rfind("blk.", 0) != 0) return std::nullopt;
  const size_t dot = gguf.find('.', 4);
  if (dot == std::string::npos) return std::nullopt;
  const std::string layer = gguf.substr(4, dot - 4), rest = gguf.substr(dot + 1);
  int64_t index = -1;
  const auto parsed = std::from_chars(layer.data(), layer.data() + layer.size(), index);
  if (parsed.ec != std::errc() || std::to_string(index) != layer || index < 0 || index >= num_layers) {
    return std::nullopt;
  }
  for (const GgufName& name : architecture.layer_names) {
    if (rest == name.gguf) return Found{&name, architecture.layers + layer + "." + name.hugging_face};
  }
  return std::nullopt;
}

void require_tensor(const io::GgufFile& file, const std::string& name) {
  if (file.find(name) != nullptr) return;
  throw Error(ErrorKind::Model, "TENSORS", "a tensor is missing").in(file.path() + ": tensor '" + name + "'");
}

void require_tensors(const io::GgufFile& file, std::span<const GgufName> names, const std::string& prefix) {
  for (const GgufName& name : names) {
    if (name.is_required) require_tensor(file, prefix + name.gguf);
  }
}

const GgufArchitecture& architecture_of(const io::GgufFile& file,
                                        const std::vector<GgufArchitecture>& known) {
  const std::string& name = file.get_string("general.architecture");
  std::vector<std::string> names;
  for (const GgufArchitecture& architecture : known) {
    if (name == architecture.name) return architecture;
    names.push_back(architecture.name);
  }
  throw Error(ErrorKind::Model, "ARCHITECTURE", "no model of this architecture")
      .in(file.path() + ": key 'general.architecture'")
      .got(name)
      .need(join(names, ", "));
}

// Returns the row of the GGUF tensor that holds row `row` of Hugging Face's.
int64_t interleaved_row(int64_t row, int64_t head_dim) {
  const int64_t half = head_dim / 2, head = row / head_dim, in_head = row % head_dim;
  return head * head_dim + in_head % half * 2 + in_head / half;
}

// Calls f(stored, count, row) for each run of rows that lie one after the other in the file: rows [stored,
// stored + count) of the file's tensor are the rows of the weight from first_row + row on.
template <class F>
void each_run(const GgufWeight& weight, int64_t first_row, int64_t num_rows, const F& f) {
  if (weight.head_dim == 0) return f(first_row, num_rows, 0);
  for (int64_t row = 0; row < num_rows; ++row) f(interleaved_row(first_row + row, weight.head_dim), 1, row);
}

void check_tensor(const io::GgufFile& file, const io::GgufTensor& tensor) {
  if (!tensor.shape.empty() && tensor.shape.size() <= 2) return;
  throw Error(ErrorKind::Model, "TENSORS", "neither a vector nor a matrix")
      .in(file.place_of(tensor))
      .got(std::to_string(tensor.shape.size()) + " dims");
}

void check_heads(const io::GgufFile& file, const io::GgufTensor& tensor, int64_t head_dim) {
  if (tensor.shape[0] % head_dim == 0 && head_dim % 2 == 0) return;
  throw Error(ErrorKind::Model, "TENSORS", "rows do not divide into heads")
      .in(file.place_of(tensor))
      .got(std::to_string(tensor.shape[0]) + " rows")
      .need("a multiple of head_dim " + std::to_string(head_dim) + ", which must be even");
}

}  // namespace

GgufModel::GgufModel(io::GgufFile file, const std::vector<GgufArchitecture>& known) : file_(std::move(file)) {
  const GgufArchitecture& architecture = architecture_of(file_, known);
  model_type_ = architecture.model_type;
  const GgufShape shape = gguf_shape(file_, architecture);
  config_ = gguf_config(file_, architecture, shape);
  require_tensors(file_, architecture.outer_names, "");
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    require_tensors(file_, architecture.layer_names, "blk." + std::to_string(layer) + ".");
  }
  for (const io::GgufTensor& tensor : file_.tensors()) {
    if (tensor.name == kGgufRopeFactors) continue;  // they stand in config.json
    const auto found = find_name(architecture, tensor.name, shape.layers);
    if (!found) {
      throw Error(ErrorKind::Model, "TENSORS", "a tensor that no model of this architecture has")
          .in(file_.place_of(tensor));
    }
    check_tensor(file_, tensor);
    const bool is_interleaved = architecture.interleaves_rope && found->name->is_rotated;
    if (is_interleaved) check_heads(file_, tensor, shape.head_dim);
    const bool is_bf16 = tensor.type == io::GgmlType::BF16 && tensor.shape.size() > 1;
    weights_.push_back({{found->hugging_face, is_bf16 ? DType::BF16 : DType::F32, tensor.shape},
                        &tensor,
                        is_interleaved ? shape.head_dim : 0});
    (void)weights_.back().spec.num_bytes();  // throws for one that is too large
  }
}

std::string GgufModel::config(DType dtype) const {
  nlohmann::ordered_json config = config_;
  const char* type = dtype == DType::F32 ? "float32" : dtype == DType::BF16 ? "bfloat16" : "float16";
  config["torch_dtype"] = config["dtype"] = type;
  return config.dump(2) + "\n";
}

std::string GgufModel::generation_config() const {
  nlohmann::ordered_json generation;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (config_.contains(key)) generation[key] = config_[key];
  }
  return generation.empty() ? "" : generation.dump(2) + "\n";
}

void GgufModel::read_rows(const GgufWeight& weight, int64_t first_row, int64_t num_rows,
                          float* destination) const {
  const io::GgufTensor& tensor = *weight.tensor;
  const int64_t row_elements = tensor.row_elements();
  if (weight.head_dim != 0 && tensor.shape.size() == 1) {  // a bias, whose elements are permuted as rows are
    std::vector<float> stored(static_cast<size_t>(num_rows * row_elements));
    file_.read_f32(tensor, first_row, num_rows, stored.data());
    for (size_t i = 0; i < stored.size(); ++i) {
      destination[i] = stored[static_cast<size_t>(interleaved_row(static_cast<int64_t>(i), weight.head_dim))];
    }
    return;
  }
  each_run(weight, first_row, num_rows, [&](int64_t stored, int64_t count, int64_t row) {
    file_.read_f32(tensor, stored, count, destination + row * row_elements);
  });
}

void GgufModel::read_blocks(const GgufWeight& weight, int64_t first_row, int64_t num_rows,
                            char* destination) const {
  const io::GgufTensor& tensor = *weight.tensor;
  TESSERA_ASSERT(tensor.shape.size() == 2, "blocks of a matrix");
  each_run(weight, first_row, num_rows, [&](int64_t stored, int64_t count, int64_t row) {
    file_.read_blocks(tensor, stored, count, destination + row * io::GgufFile::row_bytes(tensor));
  });
}

}  // namespace tessera::checkpoint

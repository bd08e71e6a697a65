// Loads the tiny models of tests/reference/data/models, with Transformers' numbers for them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/device/torch_dtype.h"
#include "tessera/models/common/base_model.h"
#include "tessera/models/common/load.h"
#include "tessera/models/registry.h"

#include "tests/testing/paths.h"

namespace tessera::models {

inline std::string reference_folder(const std::string& family) {
  return testing::source_folder() + "/tests/reference/data/models/" + family;
}

inline std::shared_ptr<const checkpoint::StoredTensors> reference_tensors(const std::string& family) {
  return folder_tensors(reference_folder(family));
}

inline std::shared_ptr<CausalLM> load_reference_model(const std::string& family, at::ScalarType dtype) {
  const BaseModel base = BaseModel::open(reference_folder(family));
  const auto model = build_model(base.config(), dtype);
  load_weights(*model, base.tensors());
  return model;
}

// The tensors of one file, in their stored types.
class TensorFile {
 public:
  explicit TensorFile(const std::string& path) : file_(io::SafetensorsFile::open(path)) {}

  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  at::Tensor get(const std::string& name) const {
    const io::TensorInfo* info = file_.find(name);
    if (info == nullptr) throw std::runtime_error("no tensor " + name + " in " + file_.path());
    const at::Tensor value = at::empty(info->shape, at::TensorOptions().dtype(to_scalar_type(info->dtype)));
    if (value.numel() > 0) file_.read(*info, 0, info->num_bytes(), value.data_ptr());
    return value;
  }

 private:
  io::SafetensorsFile file_;
};

struct Document {
  at::Tensor ids, labels;  // labels are not shifted
};

inline std::vector<Document> reference_documents(const TensorFile& file) {
  return {{file.get("ids.0"), file.get("labels.0")}, {file.get("ids.1"), file.get("labels.1")}};
}

// Lays documents end to end, and shifts their labels.
inline nn::TokenBatch pack(const std::vector<Document>& documents) {
  nn::TokenBatch batch;
  std::vector<at::Tensor> ids, labels, positions;
  batch.document_starts = {0};
  for (const Document& document : documents) {
    const int64_t size = document.ids.size(0);
    ids.push_back(document.ids);
    const at::Tensor shifted = at::full({size}, -100, at::kLong);
    shifted.narrow(0, 0, size - 1).copy_(document.labels.narrow(0, 1, size - 1));
    labels.push_back(shifted);
    positions.push_back(at::arange(size, at::kLong));
    batch.document_starts.push_back(batch.document_starts.back() + size);
  }
  batch.input_ids = at::cat(ids);
  batch.labels = at::cat(labels);
  batch.position_ids = at::cat(positions);
  return batch;
}

inline nn::TokenBatch pack_ids(const at::Tensor& ids) { return pack({{ids, at::full_like(ids, -100)}}); }

inline double max_difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) throw std::runtime_error("shapes differ");
  return (a.detach().to(at::kDouble) - b.detach().to(at::kDouble)).abs().max().item<double>();
}

}  // namespace tessera::models

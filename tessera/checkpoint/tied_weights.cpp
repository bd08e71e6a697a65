#include "tessera/checkpoint/tied_weights.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "tessera/device/host_memory.h"
#include "tessera/device/torch_dtype.h"

namespace tessera::checkpoint {

bool equal_values(const StoredTensors& files, const std::string& a, const std::string& b) {
  const DType dtype = files.find(a)->dtype;
  const std::vector<int64_t>& shape = files.find(a)->shape;
  if (files.find(b)->shape != shape) return false;
  const bool are_alike = files.find(b)->dtype == dtype && is_weight_dtype(dtype);
  const at::ScalarType type = are_alike ? to_scalar_type(dtype) : at::kDouble;
  bool are_equal = true;
  for_each_rows(shape, 8, [&](int64_t first, int64_t count) {
    if (!are_equal) return;
    const parallel::Box box = row_box(shape, first, count);
    const at::Tensor of_a = at::empty(box.size, on_host(type)), of_b = at::empty_like(of_a);
    files.read(a, box, of_a);
    files.read(b, box, of_b);
    are_equal = at::equal(of_a, of_b);
  });
  return are_equal;
}

std::string find_embedding(const StoredTensors& files) {
  constexpr const char* kNames[] = {"embed_tokens.weight", "wte.weight", "word_embeddings.weight",
                                    "embed_in.weight"};
  // The stacks of an encoder-decoder may repeat it under their own names.
  if (files.find("shared.weight") != nullptr) return "shared.weight";
  std::string found;
  for (const io::TensorSpec& tensor : files.tensors()) {
    const bool is_one = std::ranges::any_of(kNames, [&](const char* name) {
      return tensor.name == name || tensor.name.ends_with(std::string(".") + name);
    });
    if (!is_one) continue;
    if (!found.empty()) return "";
    found = tensor.name;
  }
  return found;
}

std::string untied_config(const std::string& text) {
  auto config = nlohmann::ordered_json::parse(text);
  // The configuration class of T5 reads from tie_word_embeddings whether logits are scaled, unless the file
  // says that, too.
  if (config.value("model_type", "") == "t5" && !config.contains("scale_decoder_outputs"))
    config["scale_decoder_outputs"] = true;
  config["tie_word_embeddings"] = false;
  return config.dump(2) + "\n";
}

}  // namespace tessera::checkpoint

// Reads folders of quantised weights. An input is a line of JSON, which holds the texts of the folder's small
// files by their names, and behind it the bytes of model.safetensors. It needs LibTorch, so it runs on its
// corpus and on changed copies of it (replay.cpp), without the sanitizers.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "tessera/checkpoint/quantized_tensors.h"
#include "tessera/device/device.h"
#include "tessera/io/file.h"
#include "tessera/io/model_files.h"

#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/temp_folder.h"

namespace {

constexpr const char* kNames[] = {"config.json", "quantize_config.json", "quant_config.json",
                                  "hf_quant_config.json"};
constexpr int64_t kMostElements = 1 << 16;  // of what is read of a tensor

// Reads the first rows of each tensor, and of one in blocks their bytes too.
void read_all(const tessera::checkpoint::StoredTensors& tensors) {
  using namespace tessera;
  for (const io::TensorSpec& tensor : tensors.tensors()) {
    if (!checkpoint::is_weight_dtype(tensor.dtype)) continue;
    const int64_t rows = tensor.shape.empty() ? 1 : std::min<int64_t>(tensor.shape.front(), 2);
    const parallel::Box box = checkpoint::row_box(tensor.shape, 0, rows);
    if (box.numel() == 0 || box.numel() > kMostElements) continue;
    tensors.read(tensor.name, box, at::empty(box.size, on_host(at::kFloat)));
    const auto form = tensors.form(tensor.name);
    if (!form || tensor.shape.size() != 2) continue;
    const at::Tensor bytes = at::empty({rows, form->row_bytes(tensor.shape[1])}, on_host(at::kByte));
    tensors.read_blocks(tensor.name, box, bytes);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const std::string_view input = fuzz::text_of(data, size);
  const size_t line = std::min(input.find('\n'), input.size());
  const auto texts = nlohmann::json::parse(input.substr(0, line), nullptr, /*allow_exceptions=*/false);
  static const testing::TempFolder folder;
  for (const char* name : kNames) {
    std::filesystem::remove(folder / name);
    if (texts.is_object() && texts.contains(name) && texts[name].is_string())
      folder.write(name, texts[name].get<std::string>());
  }
  folder.write("model.safetensors", line < input.size() ? input.substr(line + 1) : "");
  fuzz::take_or_refuse("quantized", [&] {
    const auto files = std::make_shared<const io::ModelFiles>(io::ModelFiles::open(folder.path()));
    const auto make_table = [] {
      const checkpoint::StoredPart part = checkpoint::stored_transposed("h.0.mlp.c_fc.weight", {16, 64});
      return checkpoint::StateDictAdapter({{part.name, {16, 64}, {part}}});
    };
    read_all(*checkpoint::model_tensors(files, make_table));
  });
  return 0;
}

#include <vector>

#include "tessera/io/gguf.h"
#include "tessera/text/tokenizer/tokenizer.h"

#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::take_or_refuse("gguf", [&] {
    const auto gguf = io::GgufFile::open(file.path());
    for (const io::GgufTensor& tensor : gguf.tensors()) {
      if (tensor.numel() == 0 || tensor.row_elements() > 4096) continue;
      std::vector<float> row(static_cast<size_t>(tensor.row_elements()));
      gguf.read_f32(tensor, tensor.num_rows() - 1, 1, row.data());
    }
    text::Tokenizer::from_gguf(gguf).encode("The number 12 is\n even.");
  });
  return 0;
}

#include <algorithm>
#include <vector>

#include "tessera/io/safetensors.h"

#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::take_or_refuse("safetensors", [&] {
    const auto tensors = io::SafetensorsFile::open(file.path());
    for (const io::TensorInfo& tensor : tensors.tensors()) {
      std::vector<char> bytes(static_cast<size_t>(std::min<int64_t>(tensor.num_bytes(), 4096)));
      tensors.read(tensor, 0, static_cast<int64_t>(bytes.size()), bytes.data());
    }
  });
  return 0;
}

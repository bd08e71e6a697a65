#include "tessera/text/tokenizer/tokenizer.h"

#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::take_or_refuse("tokenizer.json", [&] {
    const auto tokenizer = text::Tokenizer::from_file(file.path());
    const auto ids = tokenizer.encode("The number 12 is\n even, <|im_start|> \xC3\xA9\xFF.");
    tokenizer.decode(ids);
    tokenizer.encode_pair("a\xC3\xA9\r\n12", "The \xE4\xB8\xAD");
  });
  return 0;
}

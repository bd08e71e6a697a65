#include "tessera/text/tokenizer/byte_tokens.h"

#include <cstdio>

namespace tessera::text {

std::array<int32_t, 256> byte_token_ids(const Vocabulary& vocabulary) {
  std::array<int32_t, 256> ids;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    char token[8];
    std::snprintf(token, sizeof token, "<0x%02X>", byte);
    ids[byte] = vocabulary.find(token).value_or(-1);
  }
  return ids;
}

}  // namespace tessera::text

#include "tessera/text/tokenizer/word_model.h"

#include <string>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"

namespace tessera::text {

int32_t WordModel::need_unk_id(std::string_view word) const {
  if (unk_id_) return *unk_id_;
  throw Error(ErrorKind::Model, "TOKENIZER-UNKNOWN",
              "the text has a word without a token, and the tokenizer has no token for unknown words")
      .got("'" + repair_utf8(word.substr(0, 80)) + "'")
      .need("an unknown token (unk_token or unk_id) in $.model of tokenizer.json");
}

}  // namespace tessera::text

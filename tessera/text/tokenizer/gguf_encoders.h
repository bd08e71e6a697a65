// The kinds of tokenizers in GGUF files that encoders have: "bert" (WordPiece) and "t5" (unigram).
#pragma once

#include "tessera/text/tokenizer/document_text.h"

namespace tessera::io {
class GgufFile;
}

namespace tessera::text {

// Both return the same tokenizer as a tokenizer.json, and throw Error(Model) for a file whose parts do not
// fit together. The map of characters of "t5" is then applied as `tokenizers` does it (charsmap.h).
ConvertedTokenizer convert_gguf_bert(const io::GgufFile& file);
ConvertedTokenizer convert_gguf_t5(const io::GgufFile& file);

}  // namespace tessera::text

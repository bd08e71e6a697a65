// The kinds of tokenizers that GGUF files hold, for reading and writing them.
#pragma once

#include <cstdint>

#include "tessera/text/tokenizer/patterns.h"

namespace tessera::text {

// Values of tokenizer.ggml.token_type.
enum GgufTokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// The pre-tokenizer that a value of tokenizer.ggml.pre stands for. Of several names for one, the first is
// written.
struct GgufFamily {
  const char* name;
  KnownPattern pattern;
  bool individual_digits = false;
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;  // default if the file does not say
};

inline constexpr GgufFamily kGgufFamilies[] = {
    {.name = "gpt-2", .pattern = KnownPattern::Gpt2},
    {.name = "gpt2", .pattern = KnownPattern::Gpt2},
    {.name = "default", .pattern = KnownPattern::Gpt2},
    {.name = "phi-2", .pattern = KnownPattern::Gpt2},
    {.name = "mpt", .pattern = KnownPattern::Gpt2},
    {.name = "olmo", .pattern = KnownPattern::Gpt2},
    {.name = "smollm", .pattern = KnownPattern::Gpt2, .individual_digits = true},
    {.name = "starcoder", .pattern = KnownPattern::Gpt2, .individual_digits = true},
    {.name = "refact", .pattern = KnownPattern::Gpt2, .individual_digits = true},
    {.name = "codeshell", .pattern = KnownPattern::Gpt2, .individual_digits = true},
    {.name = "llama-bpe", .pattern = KnownPattern::Llama3, .ignore_merges = true, .add_bos = true},
    {.name = "llama3", .pattern = KnownPattern::Llama3, .ignore_merges = true, .add_bos = true},
    {.name = "llama-v3", .pattern = KnownPattern::Llama3, .ignore_merges = true, .add_bos = true},
    {.name = "smaug-bpe", .pattern = KnownPattern::Llama3},
    {.name = "dbrx", .pattern = KnownPattern::Llama3},
    {.name = "qwen2", .pattern = KnownPattern::Qwen2, .nfc = true},
    {.name = "deepseek-r1-qwen", .pattern = KnownPattern::Qwen2, .nfc = true},
};

// The kind "llama" (SentencePiece), whose `pattern` is not used.
inline constexpr GgufFamily kGgufSentencePiece = {
    .name = "llama", .pattern = KnownPattern::Gpt2, .add_bos = true};
// Stands for a space in the pieces of SentencePiece.
inline constexpr const char* kSpaceSign = "\u2581";

}  // namespace tessera::text

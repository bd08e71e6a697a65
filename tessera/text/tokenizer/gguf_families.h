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

// Further expressions of pre-tokenizers, applied one behind the other.
inline constexpr const char* kDeepSeekLlm[] = {
    "[\r\n]",
    "\\s?[A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}"
    "\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}"
    "\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}"
    "\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}"
    "\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}"
    "\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}"
    "\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}"
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}"
    "\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}"
    "\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}"
    "\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}"
    "\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}"
    "\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}"
    "\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}"
    "\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}"
    "\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}]+",
    "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
    "\\s+$",
    "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+",
    "\\p{N}+",
    nullptr};
inline constexpr const char* kDeepSeekCoder[] = {
    "[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+",
    "\\p{N}", nullptr};
inline constexpr const char* kDeepSeekV3[] = {
    "\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    nullptr};
inline constexpr const char* kFalconSplits[] = {
    R"([\p{P}\$\+<=>\^~\|`]+)", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
    "[0-9][0-9][0-9]", nullptr};
inline constexpr const char* kBloomSplits[] = {
    " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+", nullptr};
inline constexpr const char* kVikingSplits[] = {
    " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+", R"(\p{N})", nullptr};
inline constexpr const char* kTekkenSplits[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    nullptr};
inline constexpr const char* kGpt4oSplits[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    nullptr};
inline constexpr const char* kSuperBpeSplits[] = {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))", nullptr};
inline constexpr const char* kBailingSplits[] = {
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
    nullptr};
inline constexpr const char* kSeedCoderSplits[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)",
    nullptr};

// The pre-tokenizer that a value of tokenizer.ggml.pre stands for. Of several names for one, the first is
// written.
struct GgufFamily {
  const char* name;
  KnownPattern pattern;
  bool individual_digits = false;
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;  // default if the file does not say
  // Expressions in place of the pattern and the digits, closed by null; null if there are none.
  const char* const* splits = nullptr;
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
    {.name = "jais", .pattern = KnownPattern::Gpt2},
    {.name = "exaone4", .pattern = KnownPattern::Gpt2},
    {.name = "trillion", .pattern = KnownPattern::Gpt2},
    {.name = "modern-bert", .pattern = KnownPattern::Gpt2},
    {.name = "jina-es", .pattern = KnownPattern::Gpt2},
    {.name = "jina-de", .pattern = KnownPattern::Gpt2},
    {.name = "jina-v1-en", .pattern = KnownPattern::Gpt2},
    {.name = "jina-v2-es", .pattern = KnownPattern::Gpt2},
    {.name = "jina-v2-de", .pattern = KnownPattern::Gpt2},
    {.name = "jina-v2-code", .pattern = KnownPattern::Gpt2},
    {.name = "mellum", .pattern = KnownPattern::Gpt2},
    {.name = "gigachat", .pattern = KnownPattern::Gpt2},
    {.name = "a.x-4.0", .pattern = KnownPattern::Gpt2},
    {.name = "command-r", .pattern = KnownPattern::Gpt2, .individual_digits = true},
    {.name = "exaone", .pattern = KnownPattern::Gpt2, .individual_digits = true},
    {.name = "minerva-7b", .pattern = KnownPattern::Gpt2, .individual_digits = true},
    {.name = "falcon3", .pattern = KnownPattern::Llama3, .ignore_merges = true, .add_bos = true},
    {.name = "falcon-h1", .pattern = KnownPattern::Llama3, .ignore_merges = true, .add_bos = true},
    {.name = "pixtral", .pattern = KnownPattern::Llama3, .ignore_merges = true, .add_bos = true},
    {.name = "midm-2.0", .pattern = KnownPattern::Llama3, .ignore_merges = true, .add_bos = true},
    {.name = "lfm2", .pattern = KnownPattern::Llama3, .ignore_merges = true, .add_bos = true},
    {.name = "glm4", .pattern = KnownPattern::Llama3},
    {.name = "chatglm-bpe", .pattern = KnownPattern::Llama3},
    {.name = "stablelm2", .pattern = KnownPattern::Qwen2},
    {.name = "hunyuan", .pattern = KnownPattern::Qwen2},
    {.name = "megrez", .pattern = KnownPattern::Qwen2},
    {.name = "solar-open", .pattern = KnownPattern::Qwen2},
    {.name = "grok-2", .pattern = KnownPattern::Qwen2},
    {.name = "deepseek-llm", .pattern = KnownPattern::Gpt2, .splits = kDeepSeekLlm},
    {.name = "deepseek-coder", .pattern = KnownPattern::Gpt2, .splits = kDeepSeekCoder},
    {.name = "deepseek-v3", .pattern = KnownPattern::Gpt2, .splits = kDeepSeekV3},
    {.name = "hunyuan-dense", .pattern = KnownPattern::Gpt2, .splits = kDeepSeekV3},
    {.name = "falcon", .pattern = KnownPattern::Gpt2, .splits = kFalconSplits},
    {.name = "bloom", .pattern = KnownPattern::Gpt2, .splits = kBloomSplits},
    {.name = "poro-chat", .pattern = KnownPattern::Gpt2, .splits = kBloomSplits},
    {.name = "gpt3-finnish", .pattern = KnownPattern::Gpt2, .splits = kBloomSplits},
    {.name = "viking", .pattern = KnownPattern::Gpt2, .splits = kVikingSplits},
    {.name = "tekken",
     .pattern = KnownPattern::Gpt2,
     .ignore_merges = true,
     .add_bos = true,
     .splits = kTekkenSplits},
    {.name = "gpt-4o", .pattern = KnownPattern::Gpt2, .splits = kGpt4oSplits},
    {.name = "llama4", .pattern = KnownPattern::Gpt2, .splits = kGpt4oSplits},
    {.name = "superbpe", .pattern = KnownPattern::Gpt2, .splits = kSuperBpeSplits},
    {.name = "bailingmoe", .pattern = KnownPattern::Gpt2, .splits = kBailingSplits},
    {.name = "llada-moe", .pattern = KnownPattern::Gpt2, .splits = kBailingSplits},
    {.name = "seed-coder", .pattern = KnownPattern::Gpt2, .splits = kSeedCoderSplits},
};

// The kind "llama" (SentencePiece), whose `pattern` is not used.
inline constexpr GgufFamily kGgufSentencePiece = {
    .name = "llama", .pattern = KnownPattern::Gpt2, .add_bos = true};
// Stands for a space in the pieces of SentencePiece.
inline constexpr const char* kSpaceSign = "\u2581";

}  // namespace tessera::text

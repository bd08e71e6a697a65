// The readers of the families that a Decoder, an Encoder or an EncoderDecoder describes. Each reads and
// checks a config.json as Transformers' configuration class does. They throw Error(Model, "CONFIG") naming
// file and key for a missing or bad value, and Error(Model, "UNSUPPORTED") for a feature that is not
// implemented and without which results would be wrong.
#pragma once

#include "tessera/io/json_reader.h"
#include "tessera/models/decoder/decoder.h"
#include "tessera/models/encoder/encoder.h"
#include "tessera/models/encoder_decoder/encoder_decoder.h"

namespace tessera::models {

DecoderConfig read_apertus(const io::JsonReader& reader);
DecoderConfig read_arcee(const io::JsonReader& reader);
EncoderConfig read_bert(const io::JsonReader& reader);
DecoderConfig read_bloom(const io::JsonReader& reader);
DecoderConfig read_cohere(const io::JsonReader& reader);
DecoderConfig read_cohere2(const io::JsonReader& reader);
DecoderConfig read_deepseek_v2(const io::JsonReader& reader);
DecoderConfig read_deepseek_v3(const io::JsonReader& reader);
EncoderConfig read_distilbert(const io::JsonReader& reader);
DecoderConfig read_exaone4(const io::JsonReader& reader);
DecoderConfig read_falcon(const io::JsonReader& reader);
DecoderConfig read_gemma(const io::JsonReader& reader);
DecoderConfig read_gemma2(const io::JsonReader& reader);
DecoderConfig read_gemma3(const io::JsonReader& reader);
DecoderConfig read_gemma4(const io::JsonReader& reader);
DecoderConfig read_glm(const io::JsonReader& reader);
DecoderConfig read_glm4(const io::JsonReader& reader);
DecoderConfig read_glm4_moe(const io::JsonReader& reader);
DecoderConfig read_glm4_moe_lite(const io::JsonReader& reader);
DecoderConfig read_gpt_neox(const io::JsonReader& reader);
DecoderConfig read_gpt_oss(const io::JsonReader& reader);
DecoderConfig read_gptj(const io::JsonReader& reader);
DecoderConfig read_granite(const io::JsonReader& reader);
DecoderConfig read_granite_moe(const io::JsonReader& reader);
DecoderConfig read_helium(const io::JsonReader& reader);
DecoderConfig read_hunyuan(const io::JsonReader& reader);
DecoderConfig read_lfm2(const io::JsonReader& reader);
DecoderConfig read_lfm2_moe(const io::JsonReader& reader);
DecoderConfig read_llama4(const io::JsonReader& reader);
DecoderConfig read_ministral(const io::JsonReader& reader);
DecoderConfig read_ministral3(const io::JsonReader& reader);
DecoderConfig read_mistral4(const io::JsonReader& reader);
EncoderConfig read_modernbert(const io::JsonReader& reader);
DecoderConfig read_mpt(const io::JsonReader& reader);
EncoderDecoderConfig read_mt5(const io::JsonReader& reader);
DecoderConfig read_nemotron(const io::JsonReader& reader);
DecoderConfig read_olmo(const io::JsonReader& reader);
DecoderConfig read_olmo2(const io::JsonReader& reader);
DecoderConfig read_olmo3(const io::JsonReader& reader);
DecoderConfig read_olmoe(const io::JsonReader& reader);
DecoderConfig read_opt(const io::JsonReader& reader);
DecoderConfig read_phi(const io::JsonReader& reader);
DecoderConfig read_phi3(const io::JsonReader& reader);
DecoderConfig read_qwen2_moe(const io::JsonReader& reader);
DecoderConfig read_qwen3_5(const io::JsonReader& reader);
DecoderConfig read_qwen3_5_moe(const io::JsonReader& reader);
DecoderConfig read_qwen3_next(const io::JsonReader& reader);
EncoderConfig read_roberta(const io::JsonReader& reader);
DecoderConfig read_seed_oss(const io::JsonReader& reader);
DecoderConfig read_smollm3(const io::JsonReader& reader);
DecoderConfig read_stablelm(const io::JsonReader& reader);
DecoderConfig read_starcoder2(const io::JsonReader& reader);
EncoderDecoderConfig read_t5(const io::JsonReader& reader);
EncoderDecoderConfig read_umt5(const io::JsonReader& reader);

}  // namespace tessera::models

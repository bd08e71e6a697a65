// The readers of each family of quantised formats: they find the quantised weights of a folder.
#pragma once

#include "tessera/checkpoint/quantized/parts.h"
#include "tessera/io/json_reader.h"

namespace tessera::checkpoint::quantized {

// A folder, as readers see it. A reader throws Error(Model, "QUANTIZED") for tensors that do not fit, and
// Error(Model, "UNSUPPORTED") for a format of its family that cannot be read.
struct Folder {
  Files files;
  io::JsonReader config;                 // the keys about the quantisation
  std::vector<std::string> group_names;  // the keys of its config_groups
};

// bitsandbytes: NF4 and FP4 with or without double quantisation (Dettmers et al., arXiv 2305.14314), and
// LLM.int8 (arXiv 2208.07339).
Found find_bitsandbytes(const Folder& folder);
// GPTQ (Frantar et al., arXiv 2210.17323) as AutoGPTQ and GPTQModel write it.
Found find_gptq(const Folder& folder);
// AWQ (Lin et al., arXiv 2306.00978) as AutoAWQ's GEMM version writes it.
Found find_awq(const Folder& folder);
// The formats of the compressed-tensors package.
Found find_compressed_tensors(const Folder& folder);
// e4m3 with a scale for each block of a matrix (DeepSeek-V3, arXiv 2412.19437), row, or tensor.
Found find_fp8(const Folder& folder);
// FP8 and NVFP4 as NVIDIA's ModelOpt writes them.
Found find_modelopt(const Folder& folder);
// MXFP4 experts as gpt-oss has them (OpenAI, arXiv 2508.10925): the matrices of all experts in one tensor.
Found find_mxfp4(const Folder& folder);

// Throws the Error(Model, "UNSUPPORTED") about a key of the configuration.
[[noreturn]] void refuse(const io::JsonReader& config, const std::string& key, const std::string& what,
                         const std::string& hint);

}  // namespace tessera::checkpoint::quantized

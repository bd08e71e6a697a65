// Writes the tensors of a Hugging Face folder in another type.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/core/dtype.h"
#include "tessera/io/model_files.h"
#include "tessera/io/result_folder.h"

namespace tessera::checkpoint {

// The names of a folder's files beside the weights.
inline constexpr const char* kModelFileNames[] = {"config.json", "generation_config.json"};
// The files that say how a multimodal model reads images and sounds.
inline constexpr const char* kProcessorFileNames[] = {"preprocessor_config.json", "processor_config.json",
                                                      "video_preprocessor_config.json"};
inline constexpr const char* kTokenizerFileNames[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
};

using SideFiles = std::map<std::string, std::string>;  // contents by name
// Reads those of the files that the folder has.
SideFiles read_side_files(const std::string& folder, std::span<const char* const> names);
// Reads those of the tokenizer's files, and the model's named chat templates with them.
SideFiles read_tokenizer_files(const std::string& folder,
                               std::span<const char* const> names = kTokenizerFileNames);
// Writes such files into a folder, which is there.
void write_side_files(const SideFiles& files, const std::string& folder);

// Returns the type in which a tensor is written: `wanted` for a weight (is_weight_dtype()), else its own.
// Throws Error(Model, "DTYPE") for a weight in a type of 8 bits, whose scales stand in another tensor.
DType written_dtype(const StoredTensors& files, const io::TensorSpec& tensor, std::optional<DType> wanted);

// Writes a tensor as one of type `dtype`, a few MiB at a time: copies it if it has this type already. Throws
// Error(Numerics, "WEIGHT") for a finite value that is too large for the type.
void copy_tensor(const StoredTensors& files, const io::TensorSpec& tensor, DType dtype,
                 io::ShardedSafetensorsWriter& writer);

// Writes the model of a folder, whose tensors are `files`, with weights of type `dtype` into `result`, which
// has not begun. The tokenizer and the other small files go with it; config.json says the type. Quantised
// weights become plain ones. Returns the bytes of the tensors. Throws what copy_tensor() and io::ResultFolder
// throw.
int64_t rewrite_folder(const StoredTensors& files, DType dtype, io::ResultFolder& result);

}  // namespace tessera::checkpoint

// The head with which Transformers makes a classifier of a decoder.
#pragma once

#include <memory>
#include <string>

#include <torch/nn/module.h>

#include "tessera/models/common/model_config.h"
#include "tessera/nn/norm.h"
#include "tessera/nn/task_head.h"

namespace tessera::models {

// Registers a layer below `model` and returns the head that it makes behind the final norm: the layer `score`
// of a classifier of texts, without a bias, or the layer `of_tokens` of one of tokens, which has a bias
// unless the config says otherwise (has_head_bias). `config` is a classifier's.
std::shared_ptr<nn::TaskHead> make_score_head(torch::nn::Module& model, const ModelConfig& config,
                                              const std::shared_ptr<nn::Norm>& norm,
                                              const std::string& of_tokens, at::ScalarType dtype);

// Why adapters leave out the last product of a classifier, for nn::Linear::refuse_adapter().
inline constexpr const char* kClassifierIsWhole =
    "is trained whole beside an adapter, as PEFT does for classifiers (lora_modules_to_save)";

}  // namespace tessera::models

// Makes the config.json of a model with the head of another task.
#pragma once

#include <map>
#include <string>

#include "tessera/core/classification.h"
#include "tessera/models/common/model_config.h"

namespace tessera::models {

// Returns the values of keys, a JSON text for each, that make config.json, whose text is `file`, that of
// Transformers' *ForSequenceClassification, or *ForTokenClassification, over the same body: the class, the
// names of the labels and the problem. A decoder without a padding token takes its end of text as one,
// without which Transformers refuses batches. Throws Error(Model, "CLASSIFIER") for a family that has no such
// class, and for the text part of a multimodal model.
std::map<std::string, std::string> classifier_config(const ModelConfig& config, const std::string& file,
                                                     const Classification& classification);

// Does the same for Transformers' *ForMaskedLM, of which only the class is another. Throws Error(Model,
// "MASKED-LM") for a model that is no encoder.
std::map<std::string, std::string> masked_lm_config(const ModelConfig& config, const std::string& file);

// Returns the model's part of an architecture's name, without the name of its head: "Bert" for
// BertForMaskedLM. Returns "" for an unknown form.
std::string architecture_family(const std::string& architecture);

}  // namespace tessera::models

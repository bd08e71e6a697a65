// A model that a server offers, as requests need it: the engine's model as it is, or with one of its
// adapters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/serving/engine.h"
#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/constraint/constraint.h"
#include "tessera/text/tokenizer/tokenizer.h"
#include "tessera/text/tool_calls/tool_format.h"

namespace tessera::serving {

struct ServedModel {
  std::string name;
  int64_t adapter = 0;                                      // its number in the engine; 0 = none
  const text::Tokenizer& tokenizer;                         // outlives the server
  std::shared_ptr<const text::ChatTemplate> chat_template;  // null if there is none
  std::string no_template;                                  // why, if there is none
  const text::ToolFormat* tool_format = nullptr;            // how it writes calls; null = unknown
  std::vector<int64_t> stop_ids;                            // ids that end an answer
  Sampling defaults = {};                                   // for fields that a request leaves out
  int64_t max_answer_tokens = 0;                            // for a chat that asks for no length
  int64_t created = 0;                                      // seconds since 1970
  std::shared_ptr<text::ConstraintMaker> constraints = {};  // of its vocabulary; the service makes it
};

// Sets the defaults for sampling that the generation_config.json of a folder gives; leaves them where it
// gives none, or there is no such file. Throws Error(Model) for a file that is not valid.
void read_generation_config(const std::string& folder, Sampling& defaults);

}  // namespace tessera::serving

// Makes the steps of a tokenizer out of SentencePiece's own file.
#pragma once

#include <map>
#include <string>

#include "tessera/text/tokenizer/folder_hints.h"
#include "tessera/text/tokenizer/sentencepiece_model.h"
#include "tessera/text/tokenizer/tokenizer_json.h"

namespace tessera::text {

struct SentencePiecePipeline {
  TokenizerPipeline pipeline;
  std::map<std::string, std::string>
      roles;  // token of each role (kRoleNames), unless the folder says otherwise
};

// Builds the steps by SentencePiece's rules, so that ids equal those of its library. The class of the
// tokenizer decides about ids that the file does not have: T5 appends <extra_id_..>, XLM-RoBERTa orders the
// first ones anew. Throws Error(Model) for a class with other rules of its own. `file` names the file.
SentencePiecePipeline build_sentencepiece_pipeline(SentencePieceModel model, const FolderHints& hints,
                                                   const std::string& file);

}  // namespace tessera::text

// Takes each word as one token.
#pragma once

#include "tessera/text/tokenizer/word_model.h"

namespace tessera::text {

class WordLevel final : public WordModel {
 public:
  WordLevel(Vocabulary vocabulary, std::optional<int32_t> unk_id)
      : WordModel(std::move(vocabulary), unk_id) {}

 private:
  void encode_new(std::string_view word, ModelScratch& scratch) const override {
    const auto id = vocabulary().find(word);
    scratch.tokens.push_back({id ? *id : need_unk_id(word), static_cast<uint32_t>(word.size())});
  }
};

}  // namespace tessera::text

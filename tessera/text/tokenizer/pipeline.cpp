#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/text/tokenizer/json_field.h"
#include "tessera/text/tokenizer/pipeline_steps.h"
#include "tessera/text/tokenizer/read_model.h"
#include "tessera/text/tokenizer/tokenizer_json.h"

namespace tessera::text {

std::optional<int32_t> TokenizerPipeline::token_to_id(std::string_view token) const {
  if (const AddedToken* found = added.find(token)) return found->id;
  return model->vocabulary().find(token);
}

const std::string* TokenizerPipeline::token_text(int32_t id) const {
  if (const AddedToken* token = added.find(id)) return &token->content;
  return model->vocabulary().text(id);
}

const std::string* TokenizerPipeline::decoder_text(int32_t id) const {
  if (const AddedToken* token = added.find(id)) return &added.decoder_text(*token);
  return model->vocabulary().text(id);
}

int64_t TokenizerPipeline::id_limit() const {
  return std::max(model->vocabulary().id_limit(), added.id_limit());
}

namespace {

AddedToken read_added_token(const JsonField& field) {
  field.allow_fields({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  const auto id = static_cast<int32_t>(field.at("id").as_int(kMaxTokenId));
  AddedToken token = read_token_flags(field);
  token.id = id;
  if (token.content.empty()) throw field.at("content").error("TOKENIZER-ADDED", "an added token is empty");
  return token;
}

// Adds a token to the pipeline. A token that the vocabulary has keeps its id there; the others follow the
// vocabulary without a gap, whatever the file says, as in `tokenizers`. Throws if two tokens claim one id.
// `claimed` holds the ids that the file has given so far, and the token of each.
void add_token(TokenizerPipeline& pipeline, AddedToken token, std::map<int32_t, std::string>& claimed,
               const std::string& place) {
  const auto fail = [&](const std::string& what) {
    return Error(ErrorKind::Model, "TOKENIZER-ADDED", what)
        .in(place)
        .got("'" + token.content + "' with id " + std::to_string(token.id));
  };
  const Vocabulary& vocabulary = pipeline.model->vocabulary();
  if (pipeline.added.find(token.content) != nullptr) throw fail("an added token is given twice");
  const auto [claim, is_new] = claimed.emplace(token.id, token.content);
  if (!is_new)
    throw fail("two added tokens have one id")
        .need("an id that differs from that of '" + claim->second + "'");
  const auto known = vocabulary.find(token.content);
  if (known && *known != token.id)
    throw fail("an added token has another id in the vocabulary").need("id " + std::to_string(*known));
  if (!known) {
    if (const std::string* other = vocabulary.text(token.id))
      throw fail("the id of an added token is taken")
          .need("an id that differs from that of '" + *other + "'");
    const auto next = static_cast<int32_t>(std::max(vocabulary.size(), pipeline.added.id_limit()));
    if (token.id != next) {
      if (next >= kMaxTokenId || vocabulary.text(next) != nullptr || pipeline.added.find(next) != nullptr)
        throw fail("ids of added tokens do not follow one another").need("id " + std::to_string(next));
      log::warn(place + ": the added token '" + token.content + "' has id " + std::to_string(next) +
                ", not " + std::to_string(token.id) +
                ": added tokens follow the vocabulary without a gap, in Transformers too");
      token.id = next;
    }
  }
  pipeline.added.add(std::move(token), pipeline.normalizer.get());
}

constexpr const char* kConfigFile = "tokenizer_config.json";

int64_t count_steps(const nlohmann::json& value) {
  int64_t count = value.is_object() && value.contains("type") ? 1 : 0;
  if (value.is_structured()) {
    for (const nlohmann::json& item : value) count += count_steps(item);
  }
  return count;
}

// Limits the number of steps, since every step reads the whole text and pre-tokenizers run one inside the
// other.
void check_step_count(const JsonField& field) {
  constexpr int64_t kMaxSteps = 64;
  const int64_t count = count_steps(field.value());
  if (count <= kMaxSteps) return;
  throw field.error("TOKENIZER-LIMIT", "too many steps in a sequence")
      .got(std::to_string(count))
      .need("at most " + std::to_string(kMaxSteps));
}

}  // namespace

TokenizerPipeline build_pipeline(TokenizerDocument document, const std::string& file,
                                 std::vector<AddedToken> extra) {
  const JsonField root(*document.root, file);
  if (!root.is_object()) throw root.error("TOKENIZER-JSON", "not a tokenizer file").need("an object");
  root.allow_fields({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                     "post_processor", "decoder", "model"});
  const JsonField version = root.at("version");
  if (!version.is_null() && version.as_string() != "1.0")
    throw version.error("TOKENIZER-VERSION", "unknown version")
        .got("'" + version.as_string() + "'")
        .need("'1.0'");

  for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    check_step_count(root.at(part));
  }
  TokenizerPipeline pipeline;
  pipeline.normalizer = read_normalizer(root.at("normalizer"));
  pipeline.pre_tokenizer =
      read_pre_tokenizer(root.at("pre_tokenizer"), model_takes_bytes(document, root.at("model")));
  pipeline.decoder = read_decoder(root.at("decoder"));
  pipeline.model = read_model(document, root.at("model"), pipeline.pre_tokenizer.byte_level);

  std::map<int32_t, std::string> claimed;
  if (!root.at("added_tokens").is_null()) {
    for (const JsonField& item : root.at("added_tokens").items()) {
      AddedToken token = read_added_token(item);
      const auto correction = std::ranges::find_if(
          extra, [&](const AddedToken& other) { return other.content == token.content; });
      const int32_t id = token.id;
      if (correction != extra.end()) token = *correction;
      token.id = id;
      add_token(pipeline, std::move(token), claimed, item.place());
    }
  }
  for (AddedToken& token : extra)
    if (pipeline.added.find(token.content) == nullptr)
      add_token(pipeline, std::move(token), claimed, kConfigFile);

  pipeline.post_processor = read_post_processor(
      root.at("post_processor"), [&](const JsonField& place, int32_t id, const std::string& token) {
        const std::string* text = pipeline.token_text(id);
        if (text == nullptr || *text != token)
          throw place.error("TOKENIZER-SPECIAL", "the post-processor's id is not that of its token")
              .got(std::to_string(id) + " for '" + token + "'");
      });
  return pipeline;
}

void add_extra_tokens(TokenizerPipeline& pipeline, std::vector<AddedToken> extra) {
  std::map<int32_t, std::string> claimed;
  for (AddedToken& token : extra)
    if (pipeline.added.find(token.content) == nullptr)
      add_token(pipeline, std::move(token), claimed, kConfigFile);
}

bool add_whole_token(TokenizerPipeline& pipeline, const std::string& content, bool is_special,
                     const std::string& place) {
  if (const AddedToken* found = pipeline.added.find(content)) {
    if (found->special || !is_special) return false;
    pipeline.added.make_special(content);
    return true;
  }
  AddedToken token;
  token.content = content;
  token.special = is_special;
  token.normalized = false;
  const auto known = pipeline.model->vocabulary().find(content);
  token.id = known ? *known : static_cast<int32_t>(pipeline.id_limit());
  if (token.id >= kMaxTokenId) throw Error(ErrorKind::Model, "TOKENIZER-LIMIT", "too many tokens").in(place);
  pipeline.added.add(std::move(token), nullptr);
  return true;
}

}  // namespace tessera::text

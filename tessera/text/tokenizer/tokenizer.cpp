#include "tessera/text/tokenizer/tokenizer.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/text/tokenizer/tokenizer_impl.h"

namespace tessera::text {

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  return impl_->encode(text, options, false).ids;
}

Encoding Tokenizer::encode_with_spans(std::string_view text, const EncodeOptions& options) const {
  return impl_->encode(text, options, true);
}

PairEncoding Tokenizer::encode_pair(std::string_view first, std::optional<std::string_view> second,
                                    const EncodeOptions& options) const {
  return impl_->encode_pair(first, second, options);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  TextStream stream(*this, skip_special_tokens);
  std::string text;
  for (const int32_t id : ids) text += stream.add(id);
  return text += stream.finish();
}

std::string Tokenizer::token_bytes(int32_t id) const {
  const TokenizerPipeline& pipeline = impl_->pipeline;
  const std::string* text = pipeline.decoder_text(id);
  return text != nullptr ? pipeline.decoder.token_bytes(*text) : std::string();
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  return impl_->pipeline.token_to_id(token);
}

std::string Tokenizer::id_to_token(int32_t id) const {
  const std::string* text = impl_->pipeline.token_text(id);
  return text != nullptr ? *text : std::string();
}

bool Tokenizer::is_added(int32_t id) const { return impl_->pipeline.added.find(id) != nullptr; }

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* added = impl_->pipeline.added.find(id);
  return added != nullptr && added->special;
}

int64_t Tokenizer::vocab_size() const { return impl_->pipeline.id_limit(); }

std::optional<int32_t> Tokenizer::bos_id() const { return impl_->role(SpecialRole::Bos); }
std::optional<int32_t> Tokenizer::eos_id() const { return impl_->role(SpecialRole::Eos); }
std::optional<int32_t> Tokenizer::pad_id() const { return impl_->role(SpecialRole::Pad); }
std::optional<int32_t> Tokenizer::unk_id() const { return impl_->role(SpecialRole::Unk); }
std::optional<int32_t> Tokenizer::cls_id() const { return impl_->role(SpecialRole::Cls); }
std::optional<int32_t> Tokenizer::sep_id() const { return impl_->role(SpecialRole::Sep); }
std::optional<int32_t> Tokenizer::mask_id() const { return impl_->role(SpecialRole::Mask); }

std::vector<int32_t> Tokenizer::stop_ids() const {
  std::vector<int32_t> ids;
  if (eos_id()) ids.push_back(*eos_id());
  for (const int32_t id : impl_->more_stop_ids)
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  return ids;
}

void Tokenizer::set_special_token(std::string_view role, std::string_view token) {
  for (size_t i = 0; i < kRoleNames.size(); ++i) {
    if (role != kRoleNames[i]) continue;
    const auto id = token_to_id(token);
    if (!id)
      throw Error(ErrorKind::Model, "TOKENIZER-SPECIAL", std::string(role) + " is not in the vocabulary")
          .in(impl_->place)
          .got("'" + std::string(token) + "'")
          .need("a token that the tokenizer has");
    impl_->roles[i] = *id;
    impl_->role_changed[i] = true;
    return;
  }
  throw Error(ErrorKind::Model, "TOKENIZER-SPECIAL", "unknown role of a special token")
      .got("'" + std::string(role) + "'")
      .need(join({kRoleNames.begin(), kRoleNames.end()}, ", "));
}

const std::map<std::string, std::string>& Tokenizer::chat_templates() const { return impl_->chat_templates; }

const std::string& Tokenizer::chat_template() const {
  static const std::string kNone;
  const auto found = impl_->chat_templates.find(kDefaultTemplate);
  return found != impl_->chat_templates.end() ? found->second : kNone;
}

void Tokenizer::set_chat_template(std::string source) {
  if (source == chat_template()) return;
  impl_->template_changed = true;
  impl_->chat_templates.erase(kToolTemplate);
  impl_->chat_templates.erase(kDefaultTemplate);
  if (!source.empty()) impl_->chat_templates[kDefaultTemplate] = std::move(source);
}

TextStream::TextStream(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer.impl_.get()),
      skip_special_tokens_(skip_special_tokens),
      decoder_(std::make_unique<DecoderStream>(tokenizer_->pipeline.decoder)) {}
TextStream::TextStream(TextStream&&) noexcept = default;
TextStream& TextStream::operator=(TextStream&&) noexcept = default;
TextStream::~TextStream() = default;

std::string TextStream::add(int32_t id) {
  const TokenizerPipeline& pipeline = tokenizer_->pipeline;
  const std::string* token = pipeline.decoder_text(id);
  std::string text;
  if (token != nullptr && !(skip_special_tokens_ && pipeline.added.is_special(*token)))
    decoder_->add(*token, text);
  return text;
}

std::string TextStream::finish() {
  std::string text;
  decoder_->finish(text);
  return text;
}

}  // namespace tessera::text

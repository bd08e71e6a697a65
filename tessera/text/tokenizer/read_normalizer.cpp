#include "tessera/core/base64.h"
#include "tessera/text/tokenizer/pipeline_steps.h"
#include "tessera/text/tokenizer/step_fields.h"

namespace tessera::text {
namespace {

std::unique_ptr<Normalizer> read_normalizer_step(const JsonField& field) {
  const std::string& type = field.at("type").as_string();
  if (type == "Sequence") {
    field.allow_fields({"type", "normalizers"});
    std::vector<std::unique_ptr<Normalizer>> steps;
    for (const JsonField& item : field.at("normalizers").items()) steps.push_back(read_normalizer_step(item));
    return make_normalizer_sequence(std::move(steps));
  }
  if (type == "Prepend") {
    field.allow_fields({"type", "prepend"});
    return make_prepend_normalizer(read_literal(field.at("prepend")));
  }
  if (type == "Strip") {
    field.allow_fields({"type", "strip_left", "strip_right"});
    return make_strip_normalizer(field.at("strip_left").as_bool(), field.at("strip_right").as_bool());
  }
  if (type == "Replace") {
    field.allow_fields({"type", "pattern", "content"});
    const StepPattern pattern = read_pattern(field.at("pattern"));
    return make_replace_normalizer(pattern.text, pattern.is_regex, read_literal(field.at("content")),
                                   pattern.place);
  }
  if (type == "BertNormalizer") {
    field.allow_fields({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
    BertNormalizerOptions options;
    options.clean_text = field.at("clean_text").as_bool();
    options.handle_chinese_chars = field.at("handle_chinese_chars").as_bool();
    options.lowercase = field.at("lowercase").as_bool();
    options.strip_accents = field.at("strip_accents").as_bool(options.lowercase);
    return make_bert_normalizer(options);
  }
  if (type == "Precompiled") {
    field.allow_fields({"type", "precompiled_charsmap"});
    const JsonField map = field.at("precompiled_charsmap");
    if (map.is_null()) return make_precompiled_normalizer("", map.place());
    auto bytes = from_base64(map.as_string());
    if (!bytes) throw map.error("TOKENIZER-CHARSMAP", "the map of characters is not base64");
    return make_precompiled_normalizer(std::move(*bytes), map.place());
  }
  std::unique_ptr<Normalizer> plain;
  if (type == "NFC") plain = make_unicode_normalizer(NormalForm::Nfc);
  if (type == "NFD") plain = make_unicode_normalizer(NormalForm::Nfd);
  if (type == "NFKC") plain = make_unicode_normalizer(NormalForm::Nfkc);
  if (type == "NFKD") plain = make_unicode_normalizer(NormalForm::Nfkd);
  if (type == "Lowercase") plain = make_lowercase_normalizer();
  if (type == "StripAccents") plain = make_accent_normalizer();
  if (type == "Nmt") plain = make_nmt_normalizer();
  if (type == "ByteLevel") plain = make_byte_level_normalizer();
  if (plain == nullptr) field.at("type").unsupported("this normalizer", type);
  field.allow_fields({"type"});
  return plain;
}

}  // namespace

std::unique_ptr<Normalizer> read_normalizer(const JsonField& field) {
  return field.is_null() ? nullptr : read_normalizer_step(field);
}

}  // namespace tessera::text

#include "tessera/text/tokenizer/pipeline_steps.h"
#include "tessera/text/tokenizer/step_fields.h"
#include "tessera/text/tokenizer/vocabulary.h"

namespace tessera::text {
namespace {

void add_decoder_step(const JsonField& field, TokenDecoder& out) {
  const std::string& type = field.at("type").as_string();
  if (type == "Sequence") {
    field.allow_fields({"type", "decoders"});
    for (const JsonField& item : field.at("decoders").items()) add_decoder_step(item, out);
  } else if (type == "ByteLevel") {
    field.allow_fields({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    out.steps.push_back(make_byte_level_decoder());
  } else if (type == "Metaspace") {
    const MetaspaceFields fields = read_metaspace(field);
    out.steps.push_back(make_metaspace_decoder(fields.replacement, fields.scheme != PrependScheme::Never));
  } else if (type == "ByteFallback") {
    field.allow_fields({"type"});
    out.steps.push_back(make_byte_fallback_decoder());
  } else if (type == "Fuse") {
    field.allow_fields({"type"});
    out.steps.push_back(make_fuse_decoder());
  } else if (type == "Strip") {
    field.allow_fields({"type", "content", "start", "stop"});
    const std::string& content = field.at("content").as_string();
    if (content.empty())
      throw field.at("content").error("TOKENIZER-FIELD", "wrong value").need("one character");
    out.steps.push_back(make_strip_decoder(content, field.at("start").as_int(kMaxTokenId),
                                           field.at("stop").as_int(kMaxTokenId)));
  } else if (type == "Replace") {
    field.allow_fields({"type", "pattern", "content"});
    const StepPattern pattern = read_pattern(field.at("pattern"));
    const std::string& content = read_literal(field.at("content"));
    out.steps.push_back(pattern.is_regex ? make_regex_decoder(Regex(pattern.text, pattern.place), content)
                                         : make_replace_decoder(pattern.text, content));
  } else if (type == "WordPiece") {
    field.allow_fields({"type", "prefix", "cleanup"});
    out.steps.push_back(
        make_word_piece_decoder(read_literal(field.at("prefix")), field.at("cleanup").as_bool()));
  } else if (type == "BPEDecoder") {
    field.allow_fields({"type", "suffix"});
    out.steps.push_back(make_suffix_decoder(read_literal(field.at("suffix"))));
  } else if (type == "CTC") {
    field.allow_fields({"type", "pad_token", "word_delimiter_token", "cleanup"});
    out.steps.push_back(make_ctc_decoder(read_literal(field.at("pad_token")),
                                         read_literal(field.at("word_delimiter_token")),
                                         field.at("cleanup").as_bool()));
  } else {
    field.at("type").unsupported("this decoder", type);
  }
}

}  // namespace

TokenDecoder read_decoder(const JsonField& field) {
  TokenDecoder out;
  if (field.is_null()) return out;
  out.present = true;
  add_decoder_step(field, out);
  return out;
}

}  // namespace tessera::text

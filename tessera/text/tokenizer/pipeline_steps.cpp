#include "tessera/text/tokenizer/pipeline_steps.h"

#include "tessera/core/utf8.h"
#include "tessera/text/tokenizer/vocabulary.h"

namespace tessera::text {
namespace {

// The pattern of a Split or Replace: {"String": "..."} or {"Regex": "..."}.
struct Pattern {
  std::string text;
  bool is_regex = false;
  std::string place;
};

// Limits of the texts in steps: a search takes as long as its pattern, and a replacement is put in often.
constexpr size_t kMaxLiteral = 1 << 10, kMaxRegex = 64 << 10;

const std::string& read_literal(const JsonField& field, size_t max_bytes = kMaxLiteral) {
  const std::string& text = field.as_string();
  if (text.size() <= max_bytes) return text;
  throw field.error("TOKENIZER-LIMIT", "the text is too long")
      .got(std::to_string(text.size()) + " bytes")
      .need("at most " + std::to_string(max_bytes));
}

Pattern read_pattern(const JsonField& field) {
  if (field.is_string()) return {read_literal(field), false, field.place()};
  field.allow_fields({"String", "Regex"});
  const bool is_regex = field.contains("Regex");
  const JsonField text = field.at(is_regex ? "Regex" : "String");
  return {read_literal(text, is_regex ? kMaxRegex : kMaxLiteral), is_regex, text.place()};
}

SplitBehavior read_behavior(const JsonField& field) {
  const std::string& name = field.as_string();
  if (name == "Removed") return SplitBehavior::Removed;
  if (name == "Isolated") return SplitBehavior::Isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::MergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::MergedWithNext;
  if (name == "Contiguous") return SplitBehavior::Contiguous;
  field.unsupported("this behavior", name);
}

struct MetaspaceFields {
  std::string replacement;
  PrependScheme scheme = PrependScheme::Always;
  bool split = true;
};

// Reads a Metaspace of the pre-tokenizer or the decoder. Older files have `add_prefix_space` and `str_rep`.
MetaspaceFields read_metaspace(const JsonField& field) {
  field.allow_fields({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  MetaspaceFields out;
  const JsonField replacement = field.at("replacement");
  out.replacement = replacement.as_string();
  if (out.replacement.empty() || decode_char(out.replacement.data(), 0).size != out.replacement.size())
    throw replacement.error("TOKENIZER-FIELD", "wrong value")
        .got("'" + out.replacement + "'")
        .need("one character");
  if (field.contains("prepend_scheme")) {
    const std::string& name = field.at("prepend_scheme").as_string();
    if (name == "always") {
      out.scheme = PrependScheme::Always;
    } else if (name == "first") {
      out.scheme = PrependScheme::First;
    } else if (name == "never") {
      out.scheme = PrependScheme::Never;
    } else {
      throw field.at("prepend_scheme")
          .error("TOKENIZER-FIELD", "wrong value")
          .got("'" + name + "'")
          .need("always, first or never");
    }
  }
  if (!field.at("add_prefix_space").as_bool(true) && out.scheme != PrependScheme::Never)
    throw field.at("add_prefix_space")
        .error("TOKENIZER-FIELD", "add_prefix_space is false, but prepend_scheme contradicts it")
        .need("\"prepend_scheme\": \"never\" together with it");
  out.split = field.at("split").as_bool(true);
  return out;
}

void add_pre_tokenizer_step(const JsonField& field, PreTokenizer& out) {
  const std::string& type = field.at("type").as_string();
  if (type == "Sequence") {
    field.allow_fields({"type", "pretokenizers"});
    for (const JsonField& item : field.at("pretokenizers").items()) add_pre_tokenizer_step(item, out);
    return;
  }
  if (out.byte_level)
    throw field.error("TOKENIZER-UNSUPPORTED", "a pre-tokenizer after ByteLevel is not supported");
  auto& splitters = out.stages.back().splitters;
  if (type == "ByteLevel") {
    field.allow_fields({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    out.byte_level = true;
    out.add_prefix_space = field.at("add_prefix_space").as_bool();
    out.use_gpt2_pattern = field.at("use_regex").as_bool(true);
  } else if (type == "Metaspace") {
    const MetaspaceFields fields = read_metaspace(field);
    PreTokenizer::Stage stage{Metaspace(fields.replacement, fields.scheme), {}};
    if (fields.split)
      stage.splitters.push_back(
          make_split(fields.replacement, false, SplitBehavior::MergedWithNext, false, field.place()));
    out.stages.push_back(std::move(stage));
  } else if (type == "Split") {
    field.allow_fields({"type", "pattern", "behavior", "invert"});
    const Pattern pattern = read_pattern(field.at("pattern"));
    splitters.push_back(make_split(pattern.text, pattern.is_regex, read_behavior(field.at("behavior")),
                                   field.at("invert").as_bool(), pattern.place));
  } else if (type == "Digits") {
    field.allow_fields({"type", "individual_digits"});
    splitters.push_back(make_digits(field.at("individual_digits").as_bool()));
  } else if (type == "Whitespace") {
    field.allow_fields({"type"});
    splitters.push_back(make_whitespace());
  } else if (type == "WhitespaceSplit") {
    field.allow_fields({"type"});
    splitters.push_back(make_whitespace_split());
  } else {
    field.at("type").unsupported("this pre-tokenizer", type);
  }
}

using TokenCheck = FunctionRef<void(const JsonField&, int32_t, const std::string&)>;

// Reads a pair such as ["</s>", 2].
int32_t read_token_pair(const JsonField& field, TokenCheck check) {
  const auto items = field.items();
  if (items.size() != 2) throw field.error("TOKENIZER-FIELD", "wrong value").need("a token and its id");
  const auto id = static_cast<int32_t>(items[1].as_int(kMaxTokenId));
  check(field, id, items[0].as_string());
  return id;
}

void read_template(const JsonField& field, PostProcessor& out, TokenCheck check) {
  field.allow_fields({"type", "single", "pair", "special_tokens"});
  const JsonField tokens = field.at("special_tokens");
  PostProcessor added;
  bool text_seen = false;
  for (const JsonField& piece : field.at("single").items()) {
    piece.allow_fields({"Sequence", "SpecialToken"});
    if (piece.contains("Sequence")) {
      const JsonField id = piece.at("Sequence").at("id");
      if (id.as_string() != "A" || text_seen)
        throw id.error("TOKENIZER-UNSUPPORTED", "the template of one text must hold that text once");
      text_seen = true;
      continue;
    }
    const std::string& name = piece.at("SpecialToken").at("id").as_string();
    if (!tokens.contains(name))
      throw piece.error("TOKENIZER-SPECIAL", "special token '" + name + "' is missing in " + tokens.path());
    const JsonField token = tokens.at(name);
    const auto ids = token.at("ids").items();
    const auto texts = token.at("tokens").items();
    if (ids.size() != texts.size())
      throw token.error("TOKENIZER-FIELD", "'ids' and 'tokens' differ in length");
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto id = static_cast<int32_t>(ids[i].as_int(kMaxTokenId));
      check(ids[i], id, texts[i].as_string());
      (text_seen ? added.suffix : added.prefix).push_back(id);
    }
  }
  if (!text_seen) throw field.at("single").error("TOKENIZER-UNSUPPORTED", "the template leaves the text out");
  out.prefix.insert(out.prefix.begin(), added.prefix.begin(), added.prefix.end());
  out.suffix.insert(out.suffix.end(), added.suffix.begin(), added.suffix.end());
}

void add_post_processor(const JsonField& field, PostProcessor& out, TokenCheck check) {
  const std::string& type = field.at("type").as_string();
  if (type == "Sequence") {
    field.allow_fields({"type", "processors"});
    for (const JsonField& item : field.at("processors").items()) add_post_processor(item, out, check);
  } else if (type == "ByteLevel") {
    // It only trims offsets, which spans do not do.
    field.allow_fields({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  } else if (type == "TemplateProcessing") {
    read_template(field, out, check);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    field.allow_fields({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
    out.prefix.insert(out.prefix.begin(), read_token_pair(field.at("cls"), check));
    out.suffix.push_back(read_token_pair(field.at("sep"), check));
  } else {
    field.at("type").unsupported("this post-processor", type);
  }
}

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
    const Pattern pattern = read_pattern(field.at("pattern"));
    if (pattern.is_regex)
      field.at("pattern").unsupported("a decoder with a regular expression", pattern.text);
    out.steps.push_back(make_replace_decoder(pattern.text, read_literal(field.at("content"))));
  } else {
    field.at("type").unsupported("this decoder", type);
  }
}

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
    const Pattern pattern = read_pattern(field.at("pattern"));
    return make_replace_normalizer(pattern.text, pattern.is_regex, read_literal(field.at("content")),
                                   pattern.place);
  }
  std::unique_ptr<Normalizer> plain;
  if (type == "NFC") plain = make_unicode_normalizer(NormalForm::Nfc);
  if (type == "NFD") plain = make_unicode_normalizer(NormalForm::Nfd);
  if (type == "NFKC") plain = make_unicode_normalizer(NormalForm::Nfkc);
  if (type == "NFKD") plain = make_unicode_normalizer(NormalForm::Nfkd);
  if (type == "Lowercase") plain = make_lowercase_normalizer();
  if (plain == nullptr) field.at("type").unsupported("this normalizer", type);
  field.allow_fields({"type"});
  return plain;
}

}  // namespace

std::unique_ptr<Normalizer> read_normalizer(const JsonField& field) {
  return field.is_null() ? nullptr : read_normalizer_step(field);
}

PreTokenizer read_pre_tokenizer(const JsonField& field) {
  PreTokenizer out;
  if (!field.is_null()) add_pre_tokenizer_step(field, out);
  return out;
}

PostProcessor read_post_processor(const JsonField& field, TokenCheck check) {
  PostProcessor out;
  if (!field.is_null()) add_post_processor(field, out, check);
  return out;
}

TokenDecoder read_decoder(const JsonField& field) {
  TokenDecoder out;
  if (field.is_null()) return out;
  out.present = true;
  add_decoder_step(field, out);
  return out;
}

AddedToken read_token_flags(const JsonField& field) {
  AddedToken token;
  token.content = field.at("content").as_string();
  token.special = field.at("special").as_bool(false);
  token.normalized = field.at("normalized").as_bool(!token.special);
  token.single_word = field.at("single_word").as_bool(false);
  token.lstrip = field.at("lstrip").as_bool(false);
  token.rstrip = field.at("rstrip").as_bool(false);
  return token;
}

}  // namespace tessera::text

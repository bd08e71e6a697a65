#include "tessera/text/tokenizer/step_fields.h"

#include "tessera/core/utf8.h"
#include "tessera/text/tokenizer/pipeline_steps.h"

namespace tessera::text {
namespace {

constexpr size_t kMaxLiteral = 1 << 10, kMaxRegex = 64 << 10;

const std::string& read_text(const JsonField& field, size_t max_bytes) {
  const std::string& text = field.as_string();
  if (text.size() <= max_bytes) return text;
  throw field.error("TOKENIZER-LIMIT", "the text is too long")
      .got(std::to_string(text.size()) + " bytes")
      .need("at most " + std::to_string(max_bytes));
}

}  // namespace

const std::string& read_literal(const JsonField& field) { return read_text(field, kMaxLiteral); }

const std::string& read_character(const JsonField& field) {
  const std::string& text = field.as_string();
  if (text.empty() || decode_char(text.data(), 0).size != text.size())
    throw field.error("TOKENIZER-FIELD", "wrong value").got("'" + text + "'").need("one character");
  return text;
}

StepPattern read_pattern(const JsonField& field) {
  if (field.is_string()) return {read_literal(field), false, field.place()};
  field.allow_fields({"String", "Regex"});
  const bool is_regex = field.contains("Regex");
  const JsonField text = field.at(is_regex ? "Regex" : "String");
  return {read_text(text, is_regex ? kMaxRegex : kMaxLiteral), is_regex, text.place()};
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

MetaspaceFields read_metaspace(const JsonField& field) {
  field.allow_fields({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  MetaspaceFields out;
  out.replacement = read_character(field.at("replacement"));
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

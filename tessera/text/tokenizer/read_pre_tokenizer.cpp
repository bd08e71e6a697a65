#include "tessera/text/tokenizer/pipeline_steps.h"
#include "tessera/text/tokenizer/step_fields.h"
#include "tessera/text/tokenizer/vocabulary.h"

namespace tessera::text {
namespace {

// Appends the steps of sequences in order.
void flatten(const JsonField& field, std::vector<JsonField>& steps) {
  if (field.at("type").as_string() != "Sequence") return steps.push_back(field);
  field.allow_fields({"type", "pretokenizers"});
  for (const JsonField& item : field.at("pretokenizers").items()) flatten(item, steps);
}

void add_respelling(PreTokenizer& out, std::unique_ptr<Respelling> respelling) {
  out.stages.push_back({std::move(respelling), {}});
}

// Reads a ByteLevel step, which may leave its work to the model if it is the last one.
void add_byte_level(const JsonField& field, bool leaves_bytes, PreTokenizer& out) {
  field.allow_fields({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  const bool adds_space = field.at("add_prefix_space").as_bool();
  const bool cuts = field.at("use_regex").as_bool(true);
  if (leaves_bytes) {
    out.byte_level = true;
    out.add_prefix_space = adds_space;
    out.use_gpt2_pattern = cuts;
    return;
  }
  if (adds_space) add_respelling(out, make_space_prefix());
  if (cuts)
    out.stages.back().splitters.push_back(make_split(known_pattern_regex(KnownPattern::Gpt2), true,
                                                     SplitBehavior::Isolated, false, field.place()));
  add_respelling(out, make_byte_spelling());
}

void add_metaspace(const JsonField& field, PreTokenizer& out) {
  const MetaspaceFields fields = read_metaspace(field);
  add_respelling(out, make_metaspace(fields.replacement, fields.scheme));
  if (fields.split)
    out.stages.back().splitters.push_back(
        make_split(fields.replacement, false, SplitBehavior::MergedWithNext, false, field.place()));
}

std::unique_ptr<Splitter> read_splitter(const JsonField& field, const std::string& type) {
  if (type == "Split") {
    field.allow_fields({"type", "pattern", "behavior", "invert"});
    const StepPattern pattern = read_pattern(field.at("pattern"));
    return make_split(pattern.text, pattern.is_regex, read_behavior(field.at("behavior")),
                      field.at("invert").as_bool(), pattern.place);
  }
  if (type == "Digits") {
    field.allow_fields({"type", "individual_digits"});
    return make_digits(field.at("individual_digits").as_bool());
  }
  if (type == "Punctuation") {
    field.allow_fields({"type", "behavior"});
    const JsonField behavior = field.at("behavior");
    return make_punctuation(behavior.is_null() ? SplitBehavior::Isolated : read_behavior(behavior));
  }
  if (type == "CharDelimiterSplit") {
    field.allow_fields({"type", "delimiter"});
    return make_split(read_character(field.at("delimiter")), false, SplitBehavior::Removed, false,
                      field.place());
  }
  if (type == "FixedLength") {
    field.allow_fields({"type", "length"});
    const JsonField length = field.at("length");
    const int64_t chars = length.is_null() ? 5 : length.as_int(kMaxTokenId);
    if (chars == 0) throw length.error("TOKENIZER-FIELD", "wrong value").got("0").need("at least 1");
    return make_fixed_length(static_cast<size_t>(chars));
  }
  std::unique_ptr<Splitter> plain;
  if (type == "Whitespace") plain = make_whitespace();
  if (type == "WhitespaceSplit") plain = make_whitespace_split();
  if (type == "BertPreTokenizer") plain = make_bert_split();
  if (type == "UnicodeScripts") plain = make_script_split();
  if (plain == nullptr) field.at("type").unsupported("this pre-tokenizer", type);
  field.allow_fields({"type"});
  return plain;
}

}  // namespace

PreTokenizer read_pre_tokenizer(const JsonField& field, bool model_takes_bytes) {
  PreTokenizer out;
  if (field.is_null()) return out;
  std::vector<JsonField> steps;
  flatten(field, steps);
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string& type = steps[i].at("type").as_string();
    if (type == "ByteLevel") {
      add_byte_level(steps[i], model_takes_bytes && i + 1 == steps.size(), out);
    } else if (type == "Metaspace") {
      add_metaspace(steps[i], out);
    } else {
      out.stages.back().splitters.push_back(read_splitter(steps[i], type));
    }
  }
  return out;
}

}  // namespace tessera::text

#include <algorithm>

#include "tessera/text/tokenizer/pipeline_steps.h"
#include "tessera/text/tokenizer/vocabulary.h"

namespace tessera::text {
namespace {

using TokenCheck = FunctionRef<void(const JsonField&, int32_t, const std::string&)>;
using Pieces = std::vector<PostPiece>;

constexpr int64_t kMaxTypeId = 1 << 20;

// Reads a pair such as ["</s>", 2].
int32_t read_token_pair(const JsonField& field, TokenCheck check) {
  const auto items = field.items();
  if (items.size() != 2) throw field.error("TOKENIZER-FIELD", "wrong value").need("a token and its id");
  const auto id = static_cast<int32_t>(items[1].as_int(kMaxTokenId));
  check(field, id, items[0].as_string());
  return id;
}

int32_t read_type_id(const JsonField& piece) {
  const JsonField field = piece.at("type_id");
  return field.is_null() ? 0 : static_cast<int32_t>(field.as_int(kMaxTypeId));
}

void add_special(const JsonField& piece, const JsonField& tokens, TokenCheck check, Pieces& out) {
  const std::string& name = piece.at("id").as_string();
  if (!tokens.contains(name))
    throw piece.error("TOKENIZER-SPECIAL", "special token '" + name + "' is missing in " + tokens.path());
  const JsonField token = tokens.at(name);
  const auto ids = token.at("ids").items();
  const auto texts = token.at("tokens").items();
  if (ids.size() != texts.size()) throw token.error("TOKENIZER-FIELD", "'ids' and 'tokens' differ in length");
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<int32_t>(ids[i].as_int(kMaxTokenId));
    check(ids[i], id, texts[i].as_string());
    out.push_back({.id = id, .type_id = read_type_id(piece)});
  }
}

Pieces read_pieces(const JsonField& field, const JsonField& tokens, TokenCheck check) {
  Pieces out;
  for (const JsonField& piece : field.items()) {
    piece.allow_fields({"Sequence", "SpecialToken"});
    if (!piece.contains("Sequence")) {
      add_special(piece.at("SpecialToken"), tokens, check, out);
      continue;
    }
    const JsonField sequence = piece.at("Sequence");
    const std::string& name = sequence.at("id").as_string();
    const int32_t text = name == "A" ? 0 : 1;
    const bool is_again = std::ranges::any_of(out, [&](const PostPiece& p) { return p.text == text; });
    if ((name != "A" && name != "B") || is_again)
      throw sequence.at("id").error("TOKENIZER-UNSUPPORTED", "the template must hold each text once");
    out.push_back({.text = text, .type_id = read_type_id(sequence)});
  }
  return out;
}

int64_t num_texts(const Pieces& pieces) {
  return std::ranges::count_if(pieces, [](const PostPiece& p) { return p.text != PostPiece::kNoText; });
}

// Replaces the first text of `outer` by the pieces of the earlier processors, `inner`.
Pieces around(const Pieces& outer, const Pieces& inner) {
  Pieces out;
  for (const PostPiece& piece : outer) {
    if (piece.text == PostPiece::kNoText) {
      out.push_back(piece);
    } else {
      out.insert(out.end(), inner.begin(), inner.end());
      if (inner.size() == 1) out.back().type_id = piece.type_id;
    }
  }
  return out;
}

// Adds a processor behind others. Two that add tokens to pairs do not go together.
void add_processor(Pieces single, Pieces pair, bool& is_first, PostProcessor& out) {
  out.single = around(single, out.single);
  out.pair = is_first ? std::move(pair) : Pieces();
  is_first = false;
}

void read_template(const JsonField& field, bool& is_first, PostProcessor& out, TokenCheck check) {
  field.allow_fields({"type", "single", "pair", "special_tokens"});
  const JsonField tokens = field.at("special_tokens");
  Pieces single = read_pieces(field.at("single"), tokens, check), pair;
  if (!field.at("pair").is_null()) pair = read_pieces(field.at("pair"), tokens, check);
  const bool has_second = std::ranges::any_of(single, [](const PostPiece& p) { return p.text == 1; });
  if (num_texts(single) != 1 || has_second)
    throw field.at("single").error(
        "TOKENIZER-UNSUPPORTED",
        has_second ? "the template of one text names a second one" : "the template leaves the text out");
  if (num_texts(pair) != 2) pair.clear();
  add_processor(std::move(single), std::move(pair), is_first, out);
}

void add_post_processor(const JsonField& field, bool& is_first, PostProcessor& out, TokenCheck check) {
  const std::string& type = field.at("type").as_string();
  if (type == "Sequence") {
    field.allow_fields({"type", "processors"});
    for (const JsonField& item : field.at("processors").items())
      add_post_processor(item, is_first, out, check);
  } else if (type == "ByteLevel") {
    // It only trims offsets, which spans do not do.
    field.allow_fields({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  } else if (type == "TemplateProcessing") {
    read_template(field, is_first, out, check);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    field.allow_fields({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
    const PostPiece cls = {.id = read_token_pair(field.at("cls"), check)};
    const PostPiece sep = {.id = read_token_pair(field.at("sep"), check)};
    const PostPiece first = {.text = 0}, second = {.text = 1};
    // RoBERTa has no type ids, and two separators.
    Pieces pair = {cls, first, sep, sep, second, sep};
    if (type == "BertProcessing")
      pair = {cls, first, sep, {.text = 1, .type_id = 1}, {.id = sep.id, .type_id = 1}};
    add_processor({cls, first, sep}, std::move(pair), is_first, out);
  } else {
    field.at("type").unsupported("this post-processor", type);
  }
}

}  // namespace

PostProcessor read_post_processor(const JsonField& field, TokenCheck check) {
  PostProcessor out;
  bool is_first = true;
  if (!field.is_null()) add_post_processor(field, is_first, out, check);
  return out;
}

}  // namespace tessera::text

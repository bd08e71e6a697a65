#include "tessera/text/tokenizer/sentencepiece_pipeline.h"

#include <algorithm>
#include <cfloat>

#include "tessera/core/error.h"
#include "tessera/text/tokenizer/bpe.h"
#include "tessera/text/tokenizer/gguf_families.h"
#include "tessera/text/tokenizer/sentencepiece_merges.h"
#include "tessera/text/tokenizer/sentencepiece_normalizer.h"
#include "tessera/text/tokenizer/unigram.h"
#include "tessera/text/tokenizer/word_level.h"

namespace tessera::text {
namespace {

using Proto = SentencePieceModel;

constexpr double kUnkDistance = 10.0;

// Classes of Transformers that change the ids or the text by rules that the file does not hold.
constexpr const char* kOtherRules[] = {"AlbertTokenizer",    "BarthezTokenizer",     "BigBirdTokenizer",
                                       "CamembertTokenizer", "DebertaV2Tokenizer",   "FNetTokenizer",
                                       "M2M100Tokenizer",    "MBartTokenizer",       "MBart50Tokenizer",
                                       "NllbTokenizer",      "PegasusTokenizer",     "ReformerTokenizer",
                                       "RemBertTokenizer",   "Speech2TextTokenizer", "XLNetTokenizer",
                                       "MarianTokenizer",    "SeamlessM4TTokenizer", "XGLMTokenizer"};

bool in_text(const Proto::Piece& piece) {
  return piece.type == Proto::kNormal || piece.type == Proto::kUserDefined;
}

void append_control(Proto& model, const std::string& text) {
  const bool is_known =
      std::ranges::any_of(model.pieces, [&](const auto& piece) { return piece.text == text; });
  if (!is_known) model.pieces.push_back({text, 0.0f, Proto::kControl});
}

// T5 appends 100 pieces that mask spans, the last one first.
void append_extra_ids(Proto& model, const FolderHints& hints) {
  const JsonField field = hints.config.at("extra_ids");
  const int64_t count = field.is_null() ? 100 : field.as_int(1 << 16);
  for (int64_t i = count - 1; i >= 0; --i) append_control(model, "<extra_id_" + std::to_string(i) + ">");
}

// XLM-RoBERTa's ids are those of fairseq: <s> <pad> </s> <unk>, the pieces behind the first three, and
// <mask>.
void order_like_fairseq(Proto& model, const std::string& file) {
  const auto is_at = [&](size_t id, const char* text) {
    return id < model.pieces.size() && model.pieces[id].text == text;
  };
  if (!is_at(0, "<unk>") || !is_at(1, "<s>") || !is_at(2, "</s>"))
    throw Error(ErrorKind::Model, "TOKENIZER-SENTENCEPIECE", "the pieces are not those of XLM-RoBERTa")
        .in(file)
        .need("<unk>, <s> and </s> as the first ones");
  std::vector<Proto::Piece> pieces = {{"<s>", 0.0f, Proto::kControl},
                                      {"<pad>", 0.0f, Proto::kControl},
                                      {"</s>", 0.0f, Proto::kControl},
                                      {"<unk>", 0.0f, Proto::kUnknown}};
  pieces.insert(pieces.end(), model.pieces.begin() + 3, model.pieces.end());
  model.pieces = std::move(pieces);
  append_control(model, "<mask>");
  model.bos_id = 0;
  model.pad_id = 1;
  model.eos_id = 2;
  model.unk_id = 3;
}

Vocabulary vocabulary_of(const Proto& model, const std::string& file) {
  Vocabulary vocabulary;
  for (size_t id = 0; id < model.pieces.size(); ++id)
    if (!vocabulary.add(model.pieces[id].text, static_cast<int32_t>(id)))
      throw Error(ErrorKind::Model, "TOKENIZER-SENTENCEPIECE", "a piece is given twice")
          .in(file)
          .got("'" + model.pieces[id].text + "'");
  return vocabulary;
}

// [google/sentencepiece unigram_model.cc] User-defined pieces score so high that they nearly always win.
std::unique_ptr<WordModel> make_unigram(const Proto& model, const std::string& file) {
  float lowest = FLT_MAX, highest = FLT_MIN;
  for (const Proto::Piece& piece : model.pieces) {
    if (piece.type != Proto::kNormal) continue;
    lowest = std::min(lowest, piece.score);
    highest = std::max(highest, piece.score);
  }
  std::vector<UnigramPiece> pieces;
  for (const Proto::Piece& piece : model.pieces) {
    double score = piece.score;
    if (piece.type == Proto::kUserDefined)
      score = static_cast<double>(static_cast<float>(piece.text.size()) * highest) - 0.1;
    pieces.push_back({piece.text, score, in_text(piece)});
  }
  UnigramOptions options;
  options.unk_id = model.unk_id;
  options.byte_fallback = model.byte_fallback;
  options.unk_score = static_cast<double>(lowest) - kUnkDistance;
  options.single_precision = true;
  return std::make_unique<Unigram>(vocabulary_of(model, file), pieces, options);
}

// A merge ranks by the score of what it makes; among equal ones the leftmost comes first.
std::unique_ptr<WordModel> make_bpe(const Proto& model, const std::string& file) {
  std::vector<SentencePiece> pieces;
  for (const Proto::Piece& piece : model.pieces) {
    if (piece.type == Proto::kUnused)
      throw Error(ErrorKind::Model, "TOKENIZER-SENTENCEPIECE",
                  "unused pieces in a BPE model are not supported, since their parts depend on the text")
          .in(file)
          .got("'" + piece.text + "'");
    pieces.push_back({piece.text, piece.score, in_text(piece)});
  }
  BpeOptions options;
  options.byte_level = false;
  options.unk_id = model.unk_id;
  options.fuse_unk = true;
  options.byte_fallback = model.byte_fallback;
  auto bpe = std::make_unique<Bpe>(vocabulary_of(model, file), std::move(options));
  if (model.type == Proto::Type::Char) return bpe;
  uint32_t rank = 0;
  float score = 0.0f;
  bool is_first = true;
  for (const auto& [left, right] : sentencepiece_merges(pieces)) {
    const float next = model.pieces[static_cast<size_t>(*bpe->vocabulary().find(left + right))].score;
    if (!is_first && next != score) ++rank;
    score = next;
    is_first = false;
    bpe->add_merge(left, right, rank);
  }
  return bpe;
}

SentencePieceNormalizerOptions normalizer_options(Proto& model, const FolderHints& hints) {
  SentencePieceNormalizerOptions options;
  options.charsmap = std::move(model.charsmap);
  options.add_dummy_prefix = model.add_dummy_prefix;
  options.remove_extra_whitespaces = model.remove_extra_whitespaces;
  options.escape_whitespaces = model.escape_whitespaces;
  options.space_is_suffix = model.space_is_suffix;
  options.prefix_at_start_only = !hints.flag("legacy").value_or(true);
  for (const Proto::Piece& piece : model.pieces)
    if (piece.type == Proto::kUserDefined) options.keeps.push_back(piece.text);
  return options;
}

// Control pieces are cut out of the text as special tokens. So are user-defined ones where the model does not
// choose them by their scores.
void add_tokens(const Proto& model, AddedTokens& added) {
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Proto::Piece& piece = model.pieces[id];
    const bool is_special = piece.type == Proto::kControl || piece.type == Proto::kUnknown;
    const bool is_cut = piece.type == Proto::kUserDefined && model.type != Proto::Type::Unigram;
    if (!is_special && !is_cut) continue;
    AddedToken token;
    token.id = static_cast<int32_t>(id);
    token.content = piece.text;
    token.special = is_special;
    token.normalized = is_cut;
    added.add(std::move(token), nullptr);
  }
}

TokenDecoder make_decoder(const Proto& model) {
  TokenDecoder decoder;
  decoder.present = true;
  decoder.steps.push_back(make_replace_decoder(kSpaceSign, " "));
  decoder.steps.push_back(make_byte_fallback_decoder(true));
  decoder.steps.push_back(make_fuse_decoder());
  const bool strips = (model.add_dummy_prefix && !model.space_is_suffix) || model.remove_extra_whitespaces;
  if (strips)
    decoder.steps.push_back(make_strip_decoder(" ", model.remove_extra_whitespaces ? kMaxTokenId : 1, 0));
  return decoder;
}

// Returns the ids around a text: those that the configuration asks for, else those of the class.
PostProcessor make_post_processor(const Proto& model, const FolderHints& hints, bool is_t5, bool is_xlm) {
  const auto special = [](int32_t id) { return PostPiece{.id = id}; };
  const PostPiece first = {.text = 0}, second = {.text = 1};
  PostProcessor out;
  if (is_xlm) {
    const PostPiece bos = special(model.bos_id), eos = special(model.eos_id);
    out.single = {bos, first, eos};
    out.pair = {bos, first, eos, eos, second, eos};
    return out;
  }
  const bool has_bos = model.bos_id >= 0, has_eos = model.eos_id >= 0;
  const bool adds_bos = has_bos && hints.flag("add_bos_token").value_or(!is_t5);
  const bool adds_eos = has_eos && hints.flag("add_eos_token").value_or(is_t5);
  out.single = {first};
  out.pair = {first};
  if (adds_eos) out.single.push_back(special(model.eos_id)), out.pair.push_back(special(model.eos_id));
  if (adds_bos) {
    out.single.insert(out.single.begin(), special(model.bos_id));
    out.pair.insert(out.pair.begin(), special(model.bos_id));
    out.pair.push_back({.id = model.bos_id, .type_id = 1});
  }
  const int32_t type_id = is_t5 ? 0 : 1;
  out.pair.push_back({.text = 1, .type_id = type_id});
  if (adds_eos) out.pair.push_back({.id = model.eos_id, .type_id = type_id});
  return out;
}

}  // namespace

SentencePiecePipeline build_sentencepiece_pipeline(SentencePieceModel model, const FolderHints& hints,
                                                   const std::string& file) {
  for (const char* name : kOtherRules) {
    if (!hints.is_class(name)) continue;
    throw Error(ErrorKind::Model, "TOKENIZER-SENTENCEPIECE",
                "this tokenizer changes the ids or the text by rules that its file does not hold")
        .in(file)
        .got(hints.tokenizer_class)
        .need("a tokenizer.json")
        .hint(
            "save the tokenizer with Transformers (AutoTokenizer.from_pretrained(...).save_pretrained(...)), "
            "and use that folder");
  }
  if (model.has_denormalizer)
    throw Error(ErrorKind::Model, "TOKENIZER-SENTENCEPIECE", "a denormalizer is not supported").in(file);
  if (model.type == Proto::Type::Word)
    throw Error(ErrorKind::Model, "TOKENIZER-SENTENCEPIECE", "a model of whole words is not supported")
        .in(file)
        .need("a unigram, BPE or character model");
  const bool is_t5 = hints.is_class("T5Tokenizer");
  const bool is_xlm = hints.is_class("XLMRobertaTokenizer");
  if (is_t5) append_extra_ids(model, hints);
  if (is_xlm) order_like_fairseq(model, file);

  SentencePiecePipeline out;
  TokenizerPipeline& pipeline = out.pipeline;
  pipeline.model = model.type == Proto::Type::Unigram ? make_unigram(model, file) : make_bpe(model, file);
  add_tokens(model, pipeline.added);
  pipeline.decoder = make_decoder(model);
  const auto size = static_cast<int32_t>(model.pieces.size());
  for (int32_t* id : {&model.bos_id, &model.eos_id, &model.pad_id})
    if (*id >= size) *id = -1;
  pipeline.post_processor = make_post_processor(model, hints, is_t5, is_xlm);
  const std::pair<const char*, int32_t> roles[] = {{"bos_token", is_t5 ? -1 : model.bos_id},
                                                   {"eos_token", model.eos_id},
                                                   {"unk_token", model.unk_id},
                                                   {"pad_token", model.pad_id}};
  for (const auto& [role, id] : roles)
    if (id >= 0) out.roles[role] = model.pieces[static_cast<size_t>(id)].text;
  if (is_xlm) {
    out.roles["cls_token"] = "<s>";
    out.roles["sep_token"] = "</s>";
    out.roles["mask_token"] = "<mask>";
  }
  pipeline.normalizer = make_sentencepiece_normalizer(normalizer_options(model, hints), file);
  return out;
}

}  // namespace tessera::text

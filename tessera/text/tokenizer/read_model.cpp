#include "tessera/text/tokenizer/read_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>

#include "tessera/core/error.h"
#include "tessera/text/tokenizer/bpe.h"
#include "tessera/text/tokenizer/unigram.h"
#include "tessera/text/tokenizer/word_level.h"
#include "tessera/text/tokenizer/word_piece.h"

namespace tessera::text {
namespace {

// Below the best score of a piece, for a character that is none [huggingface/tokenizers models/unigram].
constexpr double kUnkPenalty = 10.0;
constexpr double kMaxScore = 1e30;

// Returns the name of the model. Older files leave it out, and are told apart by their fields.
std::string type_of(const TokenizerDocument& document, const JsonField& field) {
  if (field.is_null()) throw field.error("TOKENIZER-FIELD", "missing field").need("a model");
  if (!field.at("type").is_null()) return field.at("type").as_string();
  if (document.has_scores) return "Unigram";
  if (document.has_merges) return "BPE";
  if (field.contains("max_input_chars_per_word")) return "WordPiece";
  return field.contains("unk_token") && !field.contains("dropout") ? "WordLevel" : "BPE";
}

Vocabulary read_vocabulary(TokenizerDocument& document, const JsonField& field) {
  if (!document.has_vocab)
    throw field.error("TOKENIZER-FIELD", document.has_scores ? "wrong value" : "missing field")
        .need("an object of ids");
  Vocabulary vocabulary;
  for (auto& [token, id] : document.vocab) {
    const auto other = vocabulary.find(token);
    if (other)
      throw field.error("TOKENIZER-VOCAB", "token '" + token + "' is given twice")
          .got("ids " + std::to_string(*other) + " and " + std::to_string(id));
    const std::string* taken = vocabulary.text(static_cast<int32_t>(id));
    if (taken != nullptr)
      throw field.error("TOKENIZER-VOCAB", "id " + std::to_string(id) + " is given twice")
          .got("tokens '" + *taken + "' and '" + token + "'");
    vocabulary.add(std::move(token), static_cast<int32_t>(id));
  }
  return vocabulary;
}

std::string optional_text(const JsonField& field) { return field.is_null() ? "" : field.as_string(); }

std::unique_ptr<WordModel> read_bpe(TokenizerDocument& document, const JsonField& field, bool byte_level) {
  field.allow_fields({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                      "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (!document.has_merges)
    throw field.at("merges").error("TOKENIZER-FIELD", "missing field").need("an array");
  const JsonField dropout = field.at("dropout");
  if (!dropout.is_null() && dropout.as_number() != 0.0)
    throw dropout
        .error("TOKENIZER-UNSUPPORTED", "dropout of merges is not supported, since it makes ids random")
        .got(std::to_string(dropout.as_number()))
        .need("null or 0")
        .hint("set it to null; the ids are then those that the model sees after training");
  BpeOptions options;
  options.byte_level = byte_level;
  options.fuse_unk = field.at("fuse_unk").as_bool(false);
  options.byte_fallback = field.at("byte_fallback").as_bool(false);
  options.ignore_merges = field.at("ignore_merges").as_bool(false);
  options.continuing_prefix = optional_text(field.at("continuing_subword_prefix"));
  options.word_suffix = optional_text(field.at("end_of_word_suffix"));

  Vocabulary vocabulary = read_vocabulary(document, field.at("vocab"));
  const JsonField unk = field.at("unk_token");
  if (!unk.is_null()) {
    options.unk_id = vocabulary.find(unk.as_string());
    if (!options.unk_id)
      throw unk.error("TOKENIZER-SPECIAL", "the unknown token is not in the vocabulary")
          .got("'" + unk.as_string() + "'");
  }
  auto model = std::make_unique<Bpe>(std::move(vocabulary), std::move(options));
  uint32_t index = 0;
  for (const auto& [left, right] : document.merges) {
    const std::string missing = model->add_merge(left, right, index);
    if (!missing.empty() || left.empty() || right.empty())
      throw Error(ErrorKind::Model, "TOKENIZER-MERGES", "a merge names a token that is not in the vocabulary")
          .in(field.place() + ".merges[" + std::to_string(index) + "]")
          .got("'" + missing + "' in ['" + left + "', '" + right + "']");
    ++index;
  }
  return model;
}

std::unique_ptr<WordModel> read_unigram(TokenizerDocument& document, const JsonField& field) {
  field.allow_fields({"type", "unk_id", "vocab", "byte_fallback", "alpha", "nbest_size"});
  for (const char* sampling : {"alpha", "nbest_size"}) {
    if (field.at(sampling).is_null()) continue;
    throw field.at(sampling)
        .error("TOKENIZER-UNSUPPORTED", "sampling of pieces is not supported, since it makes ids random")
        .need("null");
  }
  const JsonField place = field.at("vocab");
  if (!document.has_scores)
    throw place.error("TOKENIZER-FIELD", document.has_vocab ? "wrong value" : "missing field")
        .need("an array of tokens with their scores");
  Vocabulary vocabulary;
  std::vector<UnigramPiece> pieces;
  double lowest = std::numeric_limits<double>::infinity();
  for (auto& [text, score] : document.scored) {
    const std::string number = std::to_string(pieces.size());
    if (!(std::abs(score) <= kMaxScore))
      throw place.error("TOKENIZER-VOCAB", "the score of token " + number + " is out of range")
          .got(std::to_string(score))
          .need("a finite number of at most 1e30");
    if (!vocabulary.add(text, static_cast<int32_t>(pieces.size())))
      throw place.error("TOKENIZER-VOCAB", "token '" + text + "' is given twice")
          .got("ids " + std::to_string(*vocabulary.find(text)) + " and " + number);
    lowest = std::min(lowest, score);
    pieces.push_back({std::move(text), score});
  }
  UnigramOptions options;
  options.byte_fallback = field.at("byte_fallback").as_bool(false);
  options.unk_score = lowest - kUnkPenalty;
  if (!field.at("unk_id").is_null())
    options.unk_id =
        static_cast<int32_t>(field.at("unk_id").as_int(std::max<int64_t>(1, std::ssize(pieces))));
  if (pieces.empty()) throw place.error("TOKENIZER-VOCAB", "the vocabulary is empty");
  return std::make_unique<Unigram>(std::move(vocabulary), pieces, options);
}

// Returns the id of "unk_token", which the vocabulary may lack: only a text that needs it is then refused.
std::optional<int32_t> read_unk_id(const Vocabulary& vocabulary, const JsonField& field) {
  return field.is_null() ? std::nullopt : vocabulary.find(field.as_string());
}

std::unique_ptr<WordModel> read_word_piece(TokenizerDocument& document, const JsonField& field) {
  field.allow_fields({"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  Vocabulary vocabulary = read_vocabulary(document, field.at("vocab"));
  WordPieceOptions options;
  options.unk_id = read_unk_id(vocabulary, field.at("unk_token"));
  options.continuing_prefix = field.at("continuing_subword_prefix").as_string();
  options.max_chars = static_cast<size_t>(field.at("max_input_chars_per_word").as_int(int64_t{1} << 31));
  return std::make_unique<WordPiece>(std::move(vocabulary), options);
}

std::unique_ptr<WordModel> read_word_level(TokenizerDocument& document, const JsonField& field) {
  field.allow_fields({"type", "unk_token", "vocab"});
  Vocabulary vocabulary = read_vocabulary(document, field.at("vocab"));
  const auto unk_id = read_unk_id(vocabulary, field.at("unk_token"));
  return std::make_unique<WordLevel>(std::move(vocabulary), unk_id);
}

}  // namespace

std::unique_ptr<WordModel> read_model(TokenizerDocument& document, const JsonField& field, bool byte_level) {
  const std::string type = type_of(document, field);
  if (type == "BPE") return read_bpe(document, field, byte_level);
  if (type == "Unigram") return read_unigram(document, field);
  if (type == "WordPiece") return read_word_piece(document, field);
  if (type == "WordLevel") return read_word_level(document, field);
  field.at("type").unsupported("this model", type);
}

bool model_takes_bytes(const TokenizerDocument& document, const JsonField& field) {
  return type_of(document, field) == "BPE" && !field.at("byte_fallback").as_bool(false);
}

}  // namespace tessera::text

#include "tessera/text/tokenizer/sentencepiece_model.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"
#include "tessera/text/tokenizer/vocabulary.h"

namespace tessera::text {
namespace {

// Far above the longest piece of honest models: the ways to cut a piece, and so the work, grow with the
// square of its length.
constexpr size_t kMaxPieceBytes = 1 << 10;

// One message of Protocol Buffers, read field by field.
class Message {
 public:
  struct Field {
    uint64_t number = 0;
    uint64_t value = 0;      // of an integer, or the bits of a float
    std::string_view bytes;  // of a text or an inner message
  };

  Message(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  // Returns the next field, or nothing at the end.
  std::optional<Field> next() {
    if (at_ == bytes_.size()) return std::nullopt;
    const uint64_t key = varint();
    Field field;
    field.number = key >> 3;
    switch (key & 7) {
      case 0: field.value = varint(); break;
      case 1: fixed(8); break;
      case 2: {
        const uint64_t size = varint();
        if (size > bytes_.size() - at_) cut_off();
        field.bytes = fixed(size);
        break;
      }
      case 5: {
        uint32_t bits = 0;
        std::memcpy(&bits, fixed(4).data(), 4);
        field.value = bits;
        break;
      }
      default: fail("it is no message of Protocol Buffers");
    }
    return field;
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) cut_off();
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail("a number is too long");
  }
  std::string_view fixed(size_t size) {
    if (size > bytes_.size() - at_) cut_off();
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  [[noreturn]] void cut_off() const { fail("it is cut off"); }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::Model, "TOKENIZER-SENTENCEPIECE", "not a SentencePiece model: " + what)
        .in(file_)
        .hint("download the file again");
  }

  std::string_view bytes_;
  const std::string& file_;
  size_t at_ = 0;
};

SentencePieceModel::Piece read_piece(std::string_view bytes, const std::string& file) {
  SentencePieceModel::Piece piece;
  Message message(bytes, file);
  while (const auto field = message.next()) {
    if (field->number == 1) piece.text = field->bytes;
    if (field->number == 2) {
      const auto bits = static_cast<uint32_t>(field->value);
      std::memcpy(&piece.score, &bits, 4);
    }
    if (field->number == 3) piece.type = static_cast<int32_t>(field->value);
  }
  return piece;
}

void read_trainer(std::string_view bytes, const std::string& file, SentencePieceModel& model) {
  Message message(bytes, file);
  while (const auto field = message.next()) {
    const auto number = static_cast<int32_t>(field->value);
    switch (field->number) {
      case 3: model.type = static_cast<SentencePieceModel::Type>(number); break;
      case 24: model.space_is_suffix = number != 0; break;
      case 35: model.byte_fallback = number != 0; break;
      case 40: model.unk_id = number; break;
      case 41: model.bos_id = number; break;
      case 42: model.eos_id = number; break;
      case 43: model.pad_id = number; break;
      default: break;
    }
  }
}

void read_normalizer(std::string_view bytes, const std::string& file, SentencePieceModel& model) {
  Message message(bytes, file);
  while (const auto field = message.next()) {
    switch (field->number) {
      case 2: model.charsmap = field->bytes; break;
      case 3: model.add_dummy_prefix = field->value != 0; break;
      case 4: model.remove_extra_whitespaces = field->value != 0; break;
      case 5: model.escape_whitespaces = field->value != 0; break;
      default: break;
    }
  }
}

void check(const SentencePieceModel& model, const std::string& file) {
  const auto fail = [&](const std::string& what) {
    return Error(ErrorKind::Model, "TOKENIZER-SENTENCEPIECE", "malformed SentencePiece model: " + what)
        .in(file);
  };
  if (static_cast<int64_t>(model.pieces.size()) > kMaxTokenId) throw fail("too many pieces");
  std::unordered_set<std::string_view> texts;
  int64_t num_unknown = 0, num_bytes = 0;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const SentencePieceModel::Piece& piece = model.pieces[i];
    const std::string name = "piece " + std::to_string(i);
    if (piece.text.empty()) throw fail(name + " is empty");
    if (piece.text.size() > kMaxPieceBytes) throw fail(name + " is longer than 1 KiB");
    if (valid_utf8_prefix(piece.text) != piece.text.size()) throw fail(name + " is not valid UTF-8");
    if (!(std::abs(piece.score) <= 1e30f)) throw fail("the score of " + name + " is out of range");
    if (piece.type < SentencePieceModel::kNormal || piece.type > SentencePieceModel::kByte)
      throw fail("the type of " + name + " is unknown").got(std::to_string(piece.type));
    if (!texts.insert(piece.text).second) throw fail("piece '" + piece.text + "' is given twice");
    num_unknown += piece.type == SentencePieceModel::kUnknown;
    num_bytes += piece.type == SentencePieceModel::kByte;
  }
  if (num_unknown != 1) throw fail("it has " + std::to_string(num_unknown) + " unknown pieces").need("one");
  if (model.byte_fallback && num_bytes != 256)
    throw fail("it has " + std::to_string(num_bytes) + " pieces of bytes").need("256");
  const auto type = static_cast<int32_t>(model.type);
  if (type < 1 || type > 4) throw fail("its kind is unknown").got(std::to_string(type));
}

}  // namespace

bool is_sentencepiece_model(std::string_view bytes) { return bytes.starts_with('\n'); }

SentencePieceModel read_sentencepiece_model(std::string_view bytes, const std::string& file) {
  SentencePieceModel model;
  Message message(bytes, file);
  while (const auto field = message.next()) {
    if (field->number == 1) model.pieces.push_back(read_piece(field->bytes, file));
    if (field->number == 2) read_trainer(field->bytes, file, model);
    if (field->number == 3) read_normalizer(field->bytes, file, model);
    if (field->number == 5) model.has_denormalizer = model.has_denormalizer || field->bytes.size() > 64;
  }
  check(model, file);
  for (size_t i = 0; i < model.pieces.size(); ++i)
    if (model.pieces[i].type == SentencePieceModel::kUnknown) model.unk_id = static_cast<int32_t>(i);
  return model;
}

}  // namespace tessera::text

// Turns text into token ids and back, with the behaviour of Hugging Face's `tokenizers`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::io {
class GgufFile;
class GgufMetadata;
}  // namespace tessera::io

namespace tessera::text {

class DecoderStream;

// Names of chat templates: the one for chats, and the one for chats with tools.
inline constexpr const char* kDefaultTemplate = "default";
inline constexpr const char* kToolTemplate = "tool_use";
// The folder in which a model keeps a file NAME.jinja for each template that is not the default.
inline constexpr const char* kTemplateFolder = "additional_chat_templates";

// Half-open byte range of the input text.
struct ByteSpan {
  int64_t begin = 0;
  int64_t end = 0;
};

struct EncodeOptions {
  // Recognises special tokens (such as "<|im_start|>") inside the text. It is off for user content, which
  // then cannot make one. Added tokens that are not special are recognised either way.
  bool parse_special = true;
  // Bytes of the text that must not make a special token or a part of one, though the others may. The ranges
  // must be in order and apart, and the text valid UTF-8.
  std::span<const ByteSpan> plain;
  // Bytes of the text that no token may reach over, in order. Only added tokens still may.
  std::span<const int64_t> cuts;
  // Applies the post-processor (which may prepend BOS, for example). The truncation and padding blocks of
  // tokenizer.json are never applied.
  bool add_special_tokens = false;
};

struct Encoding {
  std::vector<int32_t> ids;
  // Bytes of the input that each id stands for, in order; [0, 0) for ids of the post-processor. If a
  // normalizer has rewritten a character, all ids of its new form span the bytes of the old one.
  std::vector<ByteSpan> spans;
};

// One text or a pair, with the ids of the post-processor around them.
struct PairEncoding {
  std::vector<int32_t> ids;
  // The kind of each id ("token type"), as the post-processor says: 0 for the first text and 1 for the second
  // in BERT.
  std::vector<int32_t> type_ids;
  // The number of the text, 0 or 1, that each id stands for, and the bytes there; -1 and [0, 0) for ids of
  // the post-processor.
  std::vector<int32_t> texts;
  std::vector<ByteSpan> spans;
};

// A token that is looked for in the text before it is cut into words, and is found whole there.
struct NewToken {
  std::string content;
  // A control token, which encode() can ignore in the text, and decode() can leave out.
  bool is_special = false;
  // tokenizer_config.json then lists it among the special tokens that have no role of their own.
  bool is_listed = false;
};

// Immutable after construction but for add_tokens() and the setters; all const methods are thread-safe.
class Tokenizer {
 public:
  struct Impl;  // tokenizer_impl.h, for the files that implement this class

  // Reads tokenizer.json, or else the first that is there: tekken.json, a file of SentencePiece
  // (tokenizer.model, spiece.model, sentencepiece.bpe.model) or of tiktoken, vocab.json with merges.txt,
  // vocab.txt. Reads the roles (bos, eos, pad, unk, cls, sep, mask), further special tokens and the chat
  // templates from tokenizer_config.json of Transformers 4 and 5, special_tokens_map.json,
  // generation_config.json, chat_template.jinja and additional_chat_templates/ where present. As in
  // Transformers, template files stand in place of all templates of tokenizer_config.json. Throws
  // Error(Model).
  static Tokenizer from_folder(const std::string& folder);
  // Returns whether the folder has a file that from_folder() takes.
  static bool is_in_folder(const std::string& folder);
  // Reads one tokenizer.json. Throws Error(Model).
  static Tokenizer from_file(const std::string& path);
  // Reads the `tokenizer.*` metadata of a GGUF file. Throws Error(Model).
  static Tokenizer from_gguf(const io::GgufFile& file);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Encodes a text. A malformed UTF-8 sequence is read as U+FFFD. Throws Error(Data) for a text above 1 GiB,
  // and Error(Model) if a regular expression of the tokenizer runs away on it.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  Encoding encode_with_spans(std::string_view text, const EncodeOptions& options = {}) const;
  // Encodes one text, or a pair of texts if there is a second one, as the post-processor says. With
  // options.plain and options.cuts, the ranges are those of the first text. Throws what encode() throws, and
  // Error(Model) if the tokenizer has no rule for pairs.
  PairEncoding encode_pair(std::string_view first, std::optional<std::string_view> second,
                           const EncodeOptions& options = {.add_special_tokens = true}) const;
  // Returns the text of the ids. Bytes that are not UTF-8 come out as U+FFFD, as in `tokenizers`.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = false) const;
  // Returns the raw bytes of one token, for display; empty for an unknown id.
  std::string token_bytes(int32_t id) const;

  std::optional<int32_t> token_to_id(std::string_view token) const;
  // Returns the token's text as in the vocabulary file; empty for an unused id.
  std::string id_to_token(int32_t id) const;
  bool is_special(int32_t id) const;
  // Returns whether the token is looked for in the text before it is cut into words, as special tokens are.
  bool is_added(int32_t id) const;
  // Returns one more than the largest id, added tokens included.
  int64_t vocab_size() const;

  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> pad_id() const;
  std::optional<int32_t> unk_id() const;
  std::optional<int32_t> cls_id() const;
  std::optional<int32_t> sep_id() const;
  std::optional<int32_t> mask_id() const;
  // Returns the ids that end a generated text: eos and those of generation_config.json.
  std::vector<int32_t> stop_ids() const;
  // Overrides one of bos_token, eos_token, pad_token, unk_token, cls_token, sep_token, mask_token. Throws
  // Error(Model) if the token is unknown.
  void set_special_token(std::string_view role, std::string_view token);
  // Adds tokens, whose ids follow the vocabulary in order. A token that the vocabulary has as an ordinary
  // word keeps its id and is found whole from now on; one that was added before becomes special if the new
  // one is. save() writes them into the files. Throws Error(Model) for an empty token and for text that is
  // not UTF-8.
  void add_tokens(std::span<const NewToken> tokens);
  // Returns the tokenizer with other names for added tokens, by id: they are found and printed under these,
  // and save() writes them. Roles follow their tokens. Throws Error(Model) for an id that is not an added
  // token's, a name that is empty or another token's, and a tokenizer without tokenizer.json;
  // Error(Storage) without a folder for temporary files.
  Tokenizer with_renamed_tokens(const std::map<int32_t, std::string>& names) const;
  // Tells whether add_tokens() has given out new ids.
  bool has_new_tokens() const;
  // Returns the sources of the model's own chat templates by name. The one that a model with a single
  // template has is called kDefaultTemplate.
  const std::map<std::string, std::string>& chat_templates() const;
  // Returns the source of the default template; empty when there is none.
  const std::string& chat_template() const;
  // Gives the tokenizer another default template, which save() then writes. The template for tools goes, as
  // it would otherwise win over the new one; templates of other names stay. An empty source takes the default
  // away.
  void set_chat_template(std::string source);

  // Writes the tokenizer's files, tokenizer_config.json and special_tokens_map.json, which load in
  // Transformers with the same ids. A file that was read is copied byte for byte if nothing in it was
  // changed; a tokenizer of another format gets a tokenizer.json too, unless that format is SentencePiece's,
  // whose rules such a file cannot hold. Makes the folder. Throws Error(Storage).
  void save(const std::string& folder) const;
  // Returns the contents of the files that save() writes, by file name.
  std::map<std::string, std::string> saved_files() const;
  // Returns the number of bytes that save() writes.
  int64_t saved_bytes() const;
  // Adds the `tokenizer.*` metadata of a GGUF file whose model has num_tokens embeddings; those without a
  // token are marked as unused. Throws Error(Model, "TOKENIZER-GGUF") for a tokenizer that such a file cannot
  // hold.
  void add_gguf_metadata(int64_t num_tokens, io::GgufMetadata& metadata) const;

 private:
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  friend class TextStream;
  std::unique_ptr<Impl> impl_;
};

// Gives the text of ids that come one by one: the results of add() and finish(), joined, are decode() of all
// ids. Text that later ids may still change is held back. The tokenizer must outlive it.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer, bool skip_special_tokens = false);
  TextStream(TextStream&&) noexcept;
  TextStream& operator=(TextStream&&) noexcept;
  ~TextStream();

  std::string add(int32_t id);
  std::string finish();

 private:
  const Tokenizer::Impl* tokenizer_;
  bool skip_special_tokens_;
  std::unique_ptr<DecoderStream> decoder_;
};

}  // namespace tessera::text

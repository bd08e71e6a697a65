// The state of a Tokenizer, shared by the files that implement it.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tessera/text/tokenizer/tokenizer.h"
#include "tessera/text/tokenizer/tokenizer_json.h"

namespace tessera::text {

enum class SpecialRole { Bos, Eos, Pad, Unk, Cls, Sep, Mask };
inline constexpr size_t kNumRoles = 7;
inline constexpr std::array<const char*, kNumRoles> kRoleNames = {
    "bos_token", "eos_token", "pad_token", "unk_token", "cls_token", "sep_token", "mask_token"};

// Buffers that a thread needs while it encodes; one is lent to each call.
struct EncodeScratch {
  ModelScratch model;
  std::vector<AddedSplit> raw_splits, splits;
  std::vector<WordToken> tokens;
};

struct Tokenizer::Impl {
  TokenizerPipeline pipeline;
  std::string place;  // the file or folder, for messages
  std::array<std::optional<int32_t>, kNumRoles> roles;
  // End-of-text ids of generation_config.json beside eos.
  std::vector<int32_t> more_stop_ids;
  std::map<std::string, std::string> chat_templates;  // sources by name

  // Contents of the files as they were read, by their names below the folder, for saving. It holds a
  // tokenizer.json unless the tokenizer is one of SentencePiece's own files.
  std::map<std::string, std::string> files;
  // The class for a tokenizer_config.json that is made anew.
  std::string class_name = "PreTrainedTokenizerFast";
  // Roles that set_special_token() has changed since.
  std::array<bool, kNumRoles> role_changed{};
  bool template_changed = false;
  bool has_new_tokens = false;

  std::optional<int32_t>& role(SpecialRole which) { return roles[static_cast<size_t>(which)]; }
  const std::optional<int32_t>& role(SpecialRole which) const { return roles[static_cast<size_t>(which)]; }

  // Parses `files["tokenizer.json"]` into the pipeline.
  void build(const std::string& file, std::vector<AddedToken> extra);
  Encoding encode(std::string_view text, const EncodeOptions& options, bool with_spans) const;
  PairEncoding encode_pair(std::string_view first, std::optional<std::string_view> second,
                           const EncodeOptions& options) const;

 private:
  Encoding encode_bare(std::string_view text, const EncodeOptions& options, bool with_spans) const;
  std::unique_ptr<EncodeScratch> borrow_scratch() const;
  void give_back(std::unique_ptr<EncodeScratch> scratch) const;
  void encode_piece(std::string_view piece, int64_t offset, const EncodeOptions& options, bool with_spans,
                    EncodeScratch& scratch, Encoding& out) const;

  // Buffers that no call uses at the moment. A call takes one for its time, or makes one, so that threads
  // never wait for each other.
  mutable std::mutex scratch_mutex_;
  mutable std::vector<std::unique_ptr<EncodeScratch>> scratches_;
};

}  // namespace tessera::text

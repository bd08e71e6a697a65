// From token texts back to bytes.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tessera::data {

// One step of decoding: rewrites the list of token texts. Thread-safe.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
  // The bytes that one token stands for in the middle of a text, before they are repaired to UTF-8.
  virtual std::string token_bytes(std::string token) const = 0;
};

std::unique_ptr<DecoderStep> make_byte_level_decoder();
// "<0x..>" tokens become the byte; runs of them that are not UTF-8 become U+FFFD each.
std::unique_ptr<DecoderStep> make_byte_fallback_decoder();
std::unique_ptr<DecoderStep> make_fuse_decoder();
// Takes up to `start` and `stop` times `content` (one character) off the ends of each token.
std::unique_ptr<DecoderStep> make_strip_decoder(std::string content, int64_t start, int64_t stop);
std::unique_ptr<DecoderStep> make_replace_decoder(std::string pattern, std::string content);

// The steps in order; without any, tokens are joined by spaces.
struct Decoder {
  std::vector<std::unique_ptr<DecoderStep>> steps;
  bool present = false;

  std::string decode(std::vector<std::string> tokens) const;
  std::string token_bytes(const std::string& token) const;
};

}  // namespace tessera::data

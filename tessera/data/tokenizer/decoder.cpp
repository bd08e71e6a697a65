#include "tessera/data/tokenizer/decoder.h"

#include "tessera/core/strings.h"
#include "tessera/data/tokenizer/byte_level.h"
#include "tessera/data/tokenizer/unicode.h"

namespace tessera::data {
namespace {

class ByteLevelDecoder : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) bytes += spelling_to_bytes(token);
    tokens.assign(1, repair_utf8(bytes));
  }
  std::string token_bytes(std::string token) const override { return spelling_to_bytes(token); }
};

// The byte of "<0x..>", or -1.
int fallback_byte(const std::string& token) {
  if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') return -1;
  int value = 0;
  for (const char c : {token[3], token[4]}) {
    const bool digit = c >= '0' && c <= '9', upper = c >= 'A' && c <= 'F', lower = c >= 'a' && c <= 'f';
    if (!digit && !upper && !lower) return -1;
    value = value * 16 + (digit ? c - '0' : upper ? c - 'A' + 10 : c - 'a' + 10);
  }
  return value;
}

class ByteFallbackDecoder : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    std::string run;
    const auto flush = [&] {
      if (run.empty()) return;
      if (valid_utf8_prefix(run) == run.size()) {
        out.push_back(run);
      } else {
        out.insert(out.end(), run.size(), "\xef\xbf\xbd");
      }
      run.clear();
    };
    for (std::string& token : tokens) {
      const int byte = fallback_byte(token);
      if (byte >= 0) {
        run += static_cast<char>(byte);
      } else {
        flush();
        out.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(out);
  }
  std::string token_bytes(std::string token) const override {
    const int byte = fallback_byte(token);
    return byte >= 0 ? std::string(1, static_cast<char>(byte)) : token;
  }
};

class FuseDecoder : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens) const override { tokens.assign(1, join(tokens, "")); }
  std::string token_bytes(std::string token) const override { return token; }
};

class StripDecoder : public DecoderStep {
 public:
  StripDecoder(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}

  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      size_t begin = 0, end = token.size();
      for (int64_t i = 0; i < start_ && token.compare(begin, content_.size(), content_) == 0 && begin < end;
           ++i)
        begin += content_.size();
      for (int64_t i = 0; i < stop_ && end >= begin + content_.size() &&
                          token.compare(end - content_.size(), content_.size(), content_) == 0;
           ++i)
        end -= content_.size();
      token = token.substr(begin, end - begin);
    }
  }
  // Ends of the text are not known here.
  std::string token_bytes(std::string token) const override { return token; }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class ReplaceDecoder : public DecoderStep {
 public:
  ReplaceDecoder(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) token = token_bytes(std::move(token));
  }
  std::string token_bytes(std::string token) const override {
    if (pattern_.empty() || token.find(pattern_) == std::string::npos) return token;
    std::string out;
    size_t done = 0;
    for (size_t at = token.find(pattern_); at != std::string::npos; at = token.find(pattern_, done)) {
      out.append(token, done, at - done).append(content_);
      done = at + pattern_.size();
    }
    return out.append(token, done);
  }

 private:
  std::string pattern_, content_;
};

}  // namespace

std::string Decoder::decode(std::vector<std::string> tokens) const {
  if (!present) return join(tokens, " ");
  for (const auto& step : steps) step->apply(tokens);
  return join(tokens, "");
}

std::string Decoder::token_bytes(const std::string& token) const {
  std::string bytes = token;
  for (const auto& step : steps) bytes = step->token_bytes(std::move(bytes));
  return bytes;
}

std::unique_ptr<DecoderStep> make_byte_level_decoder() { return std::make_unique<ByteLevelDecoder>(); }
std::unique_ptr<DecoderStep> make_byte_fallback_decoder() { return std::make_unique<ByteFallbackDecoder>(); }
std::unique_ptr<DecoderStep> make_fuse_decoder() { return std::make_unique<FuseDecoder>(); }
std::unique_ptr<DecoderStep> make_strip_decoder(std::string content, int64_t start, int64_t stop) {
  return std::make_unique<StripDecoder>(std::move(content), start, stop);
}
std::unique_ptr<DecoderStep> make_replace_decoder(std::string pattern, std::string content) {
  return std::make_unique<ReplaceDecoder>(std::move(pattern), std::move(content));
}

}  // namespace tessera::data

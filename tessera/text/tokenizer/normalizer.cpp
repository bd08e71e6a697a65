#include "tessera/text/tokenizer/normalizer.h"

#include <algorithm>
#include <optional>

#include <unicode/bytestream.h>
#include <unicode/edits.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/unistr.h>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"
#include "tessera/text/tokenizer/regex.h"
#include "tessera/text/tokenizer/rewriter.h"
#include "tessera/text/tokenizer/unicode.h"
#include "tessera/text/tokenizer/unicode_additions.h"

namespace tessera::text {

namespace {

constexpr size_t kSmall = 4 << 10, kLarge = 64 << 20;

}  // namespace

AlignedText::AlignedText(std::string_view piece, int64_t offset, bool tracked)
    : text(piece),
      tracked(tracked),
      starts_text(offset == 0),
      max_bytes(4 * piece.size() + std::min(12 * piece.size() + kSmall, kLarge)) {
  if (!tracked) return;
  origins.reserve(piece.size());
  for (size_t i = 0; i < piece.size(); ++i) {
    const int64_t at = offset + static_cast<int64_t>(i);
    origins.push_back({at, at + 1});
  }
}

namespace {

void check_icu(UErrorCode status) {
  TESSERA_ASSERT(U_SUCCESS(status), std::string("ICU: ") + u_errorName(status));
}

class UnicodeNormalizer : public Normalizer {
 public:
  explicit UnicodeNormalizer(NormalForm form) {
    UErrorCode status = U_ZERO_ERROR;
    switch (form) {
      case NormalForm::Nfc: normalizer_ = icu::Normalizer2::getNFCInstance(status); break;
      case NormalForm::Nfd: normalizer_ = icu::Normalizer2::getNFDInstance(status); break;
      case NormalForm::Nfkc: normalizer_ = icu::Normalizer2::getNFKCInstance(status); break;
      case NormalForm::Nfkd: normalizer_ = icu::Normalizer2::getNFKDInstance(status); break;
    }
    check_icu(status);
    known_.applyPattern(UNICODE_STRING_SIMPLE("[:age=9.0:]"), status);
    check_icu(status);
    known_.freeze();
    filtered_ = std::make_unique<icu::FilteredNormalizer2>(*normalizer_, known_);
  }

  bool changes(std::string_view text) const override {
    if (ascii_prefix(text) == text.size()) return false;
    UErrorCode status = U_ZERO_ERROR;
    const bool normal =
        normalizer_->isNormalizedUTF8({text.data(), static_cast<int32_t>(text.size())}, status);
    check_icu(status);
    return !normal;
  }

  void apply(AlignedText& text) const override {
    UErrorCode status = U_ZERO_ERROR;
    std::string out;
    icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.text.size()));
    icu::Edits edits;
    filtered_->normalizeUTF8(0, {text.text.data(), static_cast<int32_t>(text.text.size())}, sink,
                             text.tracked ? &edits : nullptr, status);
    check_icu(status);
    check_growth(text, out.size());
    if (!text.tracked) {
      text.text = std::move(out);
      return;
    }
    Rewriter rewriter(text);
    auto edit = edits.getFineIterator();
    while (edit.next(status)) {
      const auto begin = static_cast<size_t>(edit.sourceIndex());
      const auto end = begin + static_cast<size_t>(edit.oldLength());
      if (edit.hasChange()) {
        rewriter.replace(begin, end,
                         std::string_view(out).substr(static_cast<size_t>(edit.destinationIndex()),
                                                      static_cast<size_t>(edit.newLength())));
      } else {
        rewriter.keep(begin, end);
      }
    }
    check_icu(status);
    rewriter.finish();
  }

 private:
  const icu::Normalizer2* normalizer_ = nullptr;
  // The characters of Unicode 9, by whose tables `tokenizers` normalises. Later ones pass through here as
  // they do there, so that ids do not depend on the age of the ICU at hand.
  icu::UnicodeSet known_;
  std::unique_ptr<icu::FilteredNormalizer2> filtered_;
};

class LowercaseNormalizer : public Normalizer {
 public:
  bool changes(std::string_view text) const override {
    for (const char c : text)
      if ((c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80) return true;
    return false;
  }

  void apply(AlignedText& text) const override {
    Rewriter rewriter(text);
    for (size_t i = 0; i < text.text.size();) {
      const DecodedChar c = decode_char(text.text.data(), i);
      const size_t end = i + c.size;
      if (c.code_point < 0x80) {
        const char lower =
            static_cast<char>(c.code_point >= 'A' && c.code_point <= 'Z' ? c.code_point + 32 : c.code_point);
        rewriter.replace(i, end, {&lower, 1});
      } else {
        std::string utf8;
        // One capital becomes two characters (Unicode's SpecialCasing.txt).
        if (c.code_point == 0x130) {
          utf8 = "i\u0307";
        } else {
          append_utf8(utf8,
                      static_cast<uint32_t>(u_tolower(static_cast<UChar32>(new_lowercase(c.code_point)))));
        }
        if (text.text.compare(i, c.size, utf8) == 0) {
          rewriter.keep(i, end);
        } else {
          rewriter.replace(i, end, utf8);
        }
      }
      i = end;
    }
    rewriter.finish();
  }
};

class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}

  bool changes(std::string_view text) const override { return !text.empty() && !prefix_.empty(); }

  void apply(AlignedText& text) const override {
    if (text.text.empty()) return;
    Rewriter rewriter(text);
    rewriter.replace(0, 0, prefix_);
    rewriter.keep(0, text.text.size());
    rewriter.finish();
  }

 private:
  std::string prefix_;
};

class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}

  bool changes(std::string_view text) const override {
    const auto [begin, end] = kept(text);
    return begin != 0 || end != text.size();
  }

  void apply(AlignedText& text) const override {
    const auto [begin, end] = kept(text.text);
    Rewriter rewriter(text);
    rewriter.keep(begin, end);
    rewriter.finish();
  }

 private:
  std::pair<size_t, size_t> kept(std::string_view text) const {
    const CharTable& table = CharTable::instance();
    size_t begin = 0, end = text.size();
    while (left_ && begin < end) {
      const DecodedChar c = decode_char(text.data(), begin);
      if (!(table.flags(c.code_point) & kSpace)) break;
      begin += c.size;
    }
    while (right_ && end > begin) {
      const size_t last = previous_char(text.data(), end);
      if (!(table.flags(decode_char(text.data(), last).code_point) & kSpace)) break;
      end = last;
    }
    return {begin, end};
  }

  bool left_, right_;
};

class ReplaceNormalizer : public Normalizer {
 public:
  ReplaceNormalizer(std::string pattern, bool is_regex, std::string content, std::string place)
      : pattern_(std::move(pattern)), content_(std::move(content)) {
    if (is_regex) regex_.emplace(pattern_, std::move(place));
  }

  bool changes(std::string_view text) const override {
    // T5's expression for two spaces and more needs no search where there are none.
    if (regex_ && pattern_ == " {2,}") return text.find("  ") != std::string_view::npos;
    if (regex_) return !text.empty();
    return !pattern_.empty() && text.find(pattern_) != std::string_view::npos;
  }

  void apply(AlignedText& text) const override {
    Rewriter rewriter(text);
    size_t done = 0;
    const auto replace = [&](size_t begin, size_t end) {
      rewriter.keep(done, begin);
      rewriter.replace(begin, end, content_);
      done = end;
    };
    if (regex_) {
      regex_->for_each_match(text.text, replace);
    } else if (!pattern_.empty()) {
      for (size_t at = text.text.find(pattern_); at != std::string::npos; at = text.text.find(pattern_, done))
        replace(at, at + pattern_.size());
    }
    rewriter.keep(done, text.text.size());
    rewriter.finish();
  }

 private:
  std::string pattern_, content_;
  std::optional<Regex> regex_;
};

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}

  bool changes(std::string_view text) const override {
    for (const auto& step : steps_)
      if (step->changes(text)) return true;
    return false;
  }

  void apply(AlignedText& text) const override {
    for (const auto& step : steps_)
      if (step->changes(text.text)) step->apply(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

}  // namespace

std::unique_ptr<Normalizer> make_unicode_normalizer(NormalForm form) {
  return std::make_unique<UnicodeNormalizer>(form);
}
std::unique_ptr<Normalizer> make_lowercase_normalizer() { return std::make_unique<LowercaseNormalizer>(); }
std::unique_ptr<Normalizer> make_prepend_normalizer(std::string prefix) {
  return std::make_unique<PrependNormalizer>(std::move(prefix));
}
std::unique_ptr<Normalizer> make_strip_normalizer(bool left, bool right) {
  return std::make_unique<StripNormalizer>(left, right);
}
std::unique_ptr<Normalizer> make_replace_normalizer(std::string pattern, bool is_regex, std::string content,
                                                    std::string place) {
  return std::make_unique<ReplaceNormalizer>(std::move(pattern), is_regex, std::move(content),
                                             std::move(place));
}
std::unique_ptr<Normalizer> make_normalizer_sequence(std::vector<std::unique_ptr<Normalizer>> steps) {
  return std::make_unique<NormalizerSequence>(std::move(steps));
}

}  // namespace tessera::text

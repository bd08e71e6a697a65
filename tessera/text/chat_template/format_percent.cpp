#include <algorithm>
#include <cstdio>

#include "tessera/text/chat_template/operators.h"

namespace tessera::text::jinja {

namespace {

// Returns whether Python treats the value as a mapping here, not all of whose entries need to be used.
bool takes_items(const Value& value) {
  return value.is(Kind::Dict) || value.is(Kind::List) || value.is(Kind::Range) || value.is_undefined();
}

// Applies the conversions of one format string.
class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Text& format, const Value& values)
      : runtime_(runtime), format_(format), values_(values), is_tuple_(values.is(Kind::Tuple)) {}

  Text run() {
    const std::string& bytes = format_.bytes;
    while (true) {
      const size_t percent = bytes.find('%', at_);
      if (percent == std::string::npos) break;
      out_.append(format_, at_, percent);
      at_ = percent + 1;
      runtime_.charge();
      conversion();
    }
    out_.append(format_, at_, bytes.size());
    const bool all_used =
        is_tuple_ ? used_ == values_.items().items.size() : used_ > 0 || takes_items(values_);
    if (!all_used) runtime_.fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  char peek() const { return at_ < format_.size() ? format_.bytes[at_] : '\0'; }

  int64_t number() {
    int64_t value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (format_.bytes[at_++] - '0');
      if (value > 4096) runtime_.fail_limit("a width of more than 4096 in a format");
    }
    return value;
  }

  Value next_value() {
    if (is_tuple_) {
      if (used_ >= values_.items().items.size()) runtime_.fail("not enough arguments for format string");
      return values_.items().items[used_++];
    }
    if (used_++ > 0) runtime_.fail("not enough arguments for format string");
    return values_;
  }

  Value named_value() {
    const size_t close = format_.bytes.find(')', at_);
    if (close == std::string::npos) runtime_.fail("incomplete format key");
    const std::string key = format_.bytes.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    if (!values_.is(Kind::Dict)) runtime_.fail("format requires a mapping");
    const Value* found = find_key(runtime_, values_.dict(), Value::string(runtime_, key));
    if (found == nullptr) runtime_.fail("the mapping has no key '" + excerpt(key) + "'");
    return *found;
  }

  void conversion() {
    bool left = false, zero = false, plus = false, space = false;
    std::optional<Value> named;
    if (peek() == '(') named = named_value();
    for (;; ++at_) {
      if (peek() == '-')
        left = true;
      else if (peek() == '0')
        zero = true;
      else if (peek() == '+')
        plus = true;
      else if (peek() == ' ')
        space = true;
      else if (peek() != '#')
        break;
      if (peek() == '#') runtime_.fail("unsupported format flag '#'");
    }
    const int64_t width = number();
    int64_t precision = -1;
    if (peek() == '.') {
      ++at_;
      precision = number();
    }
    const char kind = peek();
    ++at_;
    if (kind == '%') return out_.append("%");
    const Value value = named ? *named : next_value();
    Text text;
    bool numeric = true;
    if (kind == 's' || kind == 'r') {
      text = kind == 's' ? to_text(runtime_, value) : repr(runtime_, value);
      if (precision >= 0) text = slice_of(text, 0, 1, std::min(precision, length_of(text.bytes)));
      numeric = false;
    } else if (kind == 'd' || kind == 'i' || kind == 'u' || kind == 'x' || kind == 'X' || kind == 'o') {
      text = Text(whole(value, kind, precision));
    } else if (kind == 'f' || kind == 'F' || kind == 'e' || kind == 'E' || kind == 'g' || kind == 'G') {
      runtime_.charge_bytes(8192);
      text = Text(floating(value, kind, precision));
    } else {
      runtime_.fail("unsupported format character");
    }
    if (numeric && text.bytes[0] != '-' && (plus || space)) text = Text((plus ? "+" : " ") + text.bytes);
    pad(text, width, left, zero && numeric);
  }

  void pad(const Text& text, int64_t width, bool left, bool zero) {
    const int64_t missing = width - length_of(text.bytes);
    const std::string fill(static_cast<size_t>(std::max<int64_t>(missing, 0)), zero && !left ? '0' : ' ');
    if (left) {
      out_.append(text);
      out_.append(fill);
    } else if (zero && (text.bytes[0] == '-' || text.bytes[0] == '+' || text.bytes[0] == ' ')) {
      out_.append(text.bytes.substr(0, 1) + fill + text.bytes.substr(1));
    } else {
      out_.append(fill);
      out_.append(text);
    }
  }

  [[noreturn]] void fail_number(char kind, const Value& value) {
    if (value.is_undefined()) runtime_.fail(value.undefined_reason());
    runtime_.fail(std::string("%") + kind + " format: a number is required, not " +
                  std::string(type_name(value)));
  }

  std::string whole(const Value& value, char kind, int64_t precision) {
    const bool decimal = kind == 'd' || kind == 'i' || kind == 'u';
    if (!value.is_integral() &&
        !(decimal && value.is(Kind::Float) && value.real() > -9e18 && value.real() < 9e18)) {
      fail_number(kind, value);
    }
    const int64_t number = value.is(Kind::Float) ? static_cast<int64_t>(value.real()) : value.integer();
    const auto magnitude =
        number < 0 ? 0 - static_cast<unsigned long long>(number) : static_cast<unsigned long long>(number);
    char digits[32];
    std::snprintf(digits, sizeof digits,
                  decimal       ? "%llu"
                  : kind == 'x' ? "%llx"
                  : kind == 'X' ? "%llX"
                                : "%llo",
                  magnitude);
    std::string text = digits;
    if (precision > static_cast<int64_t>(text.size()))
      text.insert(0, static_cast<size_t>(precision) - text.size(), '0');
    return number < 0 ? "-" + text : text;
  }

  std::string floating(const Value& value, char kind, int64_t precision) {
    if (!value.is_number()) fail_number(kind, value);
    const std::string format = std::string("%.*") + kind;
    std::string text(8192, '\0');
    const int size = std::snprintf(text.data(), text.size(), format.c_str(),
                                   precision < 0 ? 6 : static_cast<int>(precision), value.real());
    text.resize(static_cast<size_t>(size));
    return text;
  }

  Runtime& runtime_;
  const Text& format_;
  const Value& values_;
  bool is_tuple_;
  size_t at_ = 0, used_ = 0;
  Text out_;
};

}  // namespace

Text format_percent(Runtime& runtime, const Text& text, const Value& values) {
  runtime.charge_text(text);
  return PercentFormatter(runtime, text, values).run();
}

}  // namespace tessera::text::jinja

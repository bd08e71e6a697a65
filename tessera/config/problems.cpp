#include "tessera/config/problems.h"

#include <algorithm>
#include <tuple>

#include "tessera/core/log.h"

namespace tessera::config {
namespace {

// Several errors as one, whose text has a line for each.
class ErrorLines : public Error {
 public:
  ErrorLines(const Error& first, std::string text) : Error(first), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

constexpr size_t kMaxLines = 100;

}  // namespace

Error& Problems::add(std::string_view key, const SourcePlace& place, const Error& error) {
  if (!key.empty()) refused_.emplace(key);
  const auto file = std::find(files_.begin(), files_.end(), place.file);
  const auto index = static_cast<size_t>(file - files_.begin());
  if (file == files_.end()) files_.push_back(place.file);
  return problems_.emplace_back(index, place.line, place.column, error).error;
}

void Problems::settle() {
  if (problems_.empty()) {
    for (const std::string& text : warnings_) log::warn(text);
    warnings_.clear();
    return;
  }
  std::stable_sort(problems_.begin(), problems_.end(), [](const Problem& a, const Problem& b) {
    return std::tie(a.file, a.line, a.column) < std::tie(b.file, b.line, b.column);
  });
  if (problems_.size() == 1) throw problems_.front().error;
  std::string text;
  for (size_t i = 0; i < std::min(problems_.size(), kMaxLines); ++i) {
    text += (i > 0 ? "\n" : "") + std::string(problems_[i].error.what());
  }
  if (problems_.size() > kMaxLines) text += "\nand " + std::to_string(problems_.size() - kMaxLines) + " more";
  throw ErrorLines(problems_.front().error, std::move(text));
}

}  // namespace tessera::config

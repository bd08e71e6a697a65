#include "tessera/scoring/judge/verdict.h"

#include <cmath>
#include <cstdlib>
#include <optional>
#include <vector>

namespace tessera::scoring::judge {
namespace {

constexpr double kTieDelta = 0.1;

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

std::string take_digits(std::string_view& text) {
  size_t count = 0;
  while (count < text.size() && text[count] >= '0' && text[count] <= '9') ++count;
  std::string digits(text.substr(0, count));
  text.remove_prefix(count);
  return digits;
}

// Takes digits, and a point with more of them if there is one; "" if there is no digit.
std::string take_number(std::string_view& text) {
  std::string number = take_digits(text);
  if (!number.empty() && take(text, ".")) number += '.' + take_digits(text);
  return number;
}

bool take_space(std::string_view& text) {
  if (text.empty() || std::string_view(" \t\n\r\f\v").find(text.front()) == std::string_view::npos)
    return false;
  text.remove_prefix(1);
  return true;
}

// Returns the first `count` numbers that stand between the brackets, separated by commas; none if there is no
// such place.
std::vector<std::string> find_numbers(std::string_view text, std::string_view open, std::string_view close,
                                      size_t count) {
  for (size_t at = text.find(open); at != std::string_view::npos; at = text.find(open, at + 1)) {
    std::string_view rest = text.substr(at + open.size());
    std::vector<std::string> numbers = {take_number(rest)};
    while (!numbers.back().empty() && numbers.size() < count && take(rest, ",")) {
      take_space(rest);
      numbers.push_back(take_number(rest));
    }
    if (numbers.size() == count && !numbers.back().empty() && take(rest, close)) return numbers;
  }
  return {};
}

std::vector<std::string> find_ratings(std::string_view judgment, size_t count) {
  const auto found = find_numbers(judgment, "[[", "]]", count);
  return found.empty() ? find_numbers(judgment, "[", "]", count) : found;
}

bool holds(std::string_view text, std::string_view word) { return text.find(word) != std::string_view::npos; }

}  // namespace

Json find_rating(std::string_view judgment) {
  constexpr size_t kMostDigits = 18;  // of which every number is an int64_t
  const auto found = find_ratings(judgment, 1);
  if (found.empty()) return kNoRating;
  const bool is_whole = !holds(found.front(), ".") && found.front().size() <= kMostDigits;
  return is_whole ? Json(std::atoll(found.front().c_str())) : Json(std::atof(found.front().c_str()));
}

std::string find_winner(std::string_view judgment, std::string_view output_format) {
  if (output_format == "[[A]]") {
    if (holds(judgment, "[[A]]")) return "A";
    if (holds(judgment, "[[B]]")) return "B";
    return holds(judgment, "[[C]]") ? "tie" : "error";
  }
  const auto found = find_ratings(judgment, 2);
  if (found.empty()) return "error";
  const double a = std::atof(found[0].c_str()), b = std::atof(found[1].c_str());
  if (std::abs(a - b) <= kTieDelta) return "tie";
  return a > b ? "A" : "B";
}

}  // namespace tessera::scoring::judge

#include "tessera/train/setup/freeze.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/config/scalar.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/peft/targets.h"

namespace tessera::train {
namespace {

Error pattern_error(const std::string& pattern, const std::string& what) {
  return Error(ErrorKind::Config, "UNFROZEN", "key 'unfrozen_parameters': " + what).got("'" + pattern + "'");
}

constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
using Range = std::pair<int64_t, int64_t>;

struct Pattern {
  peft::NamePattern names;
  std::optional<Range> rows;
};

// Takes rows off the end of a pattern, and returns them: "[:32000]" of "^lm_head.weight$[:32000]" means rows
// of the parameter, and so does "[7]"; neither is a set of characters.
std::optional<Range> take_rows(std::string& pattern) {
  const size_t open = pattern.rfind('[');
  if (open == std::string::npos || open == 0 || !pattern.ends_with(']')) return std::nullopt;
  const std::string inside = pattern.substr(open + 1, pattern.size() - open - 2);
  const size_t colon = inside.find(':');
  const std::string first = inside.substr(0, colon),
                    last = colon == std::string::npos ? "" : inside.substr(colon + 1);
  const auto number = [](const std::string& text, int64_t missing) -> std::optional<int64_t> {
    if (text.empty()) return missing;
    const config::ParsedInteger parsed = config::parse_integer(text);
    const bool is_plain = text.find_first_not_of("0123456789") == std::string::npos;
    return is_plain && parsed.status == config::IntegerStatus::Ok ? std::optional(parsed.value)
                                                                  : std::nullopt;
  };
  const auto begin = number(first, 0);
  if (!begin || inside.empty()) return std::nullopt;
  const auto end = colon == std::string::npos ? std::optional(*begin + 1) : number(last, kLast);
  if (!end) return std::nullopt;
  if (*begin >= *end)
    throw pattern_error(pattern, "not a range of rows").need("a row, FROM:, :TO or FROM:TO");
  pattern.resize(open);
  return Range{*begin, *end};
}

// Turns a pattern with which names begin into a regular expression over whole names.
Pattern parse(std::string pattern) {
  const std::optional<Range> rows = take_rows(pattern);
  std::string expression = "(?:";
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool is_escaped = i > 0 && pattern[i - 1] == '\\';
    const bool is_wildcard = i + 1 < pattern.size() && pattern[i + 1] == '+';
    if (pattern[i] == '.' && !is_escaped && !is_wildcard) expression += '\\';
    expression += pattern[i];
  }
  try {
    return {peft::NamePattern(expression + ").*"), rows};
  } catch (const Error&) {
    throw pattern_error(pattern, "not a regular expression");
  }
}

// Tells whether each row of the parameter is a row of one tensor in its files.
bool has_rows_of_files(const checkpoint::StoredParameter* stored) {
  return stored == nullptr || (stored->parts.size() == 1 && !stored->parts[0].is_transposed &&
                               stored->parts[0].shape == stored->shape);
}

// Returns the ranges in order, with those that meet as one.
std::vector<Range> merged(std::vector<Range> ranges) {
  std::ranges::sort(ranges);
  std::vector<Range> apart;
  for (const Range& range : ranges) {
    if (apart.empty() || range.first > apart.back().second) {
      apart.push_back(range);
    } else {
      apart.back().second = std::max(apart.back().second, range.second);
    }
  }
  return apart;
}

// Tells whether the pattern `text` means the parameter: by its name in the model or by all of its names in
// the files. Throws pattern_error() where it means some of the latter.
bool means(const Pattern& pattern, const std::string& text, const std::string& name,
           const checkpoint::StoredParameter* stored) {
  if (pattern.names.matches(name)) return true;
  if (stored == nullptr) return false;
  const int64_t num_matched =
      std::count_if(stored->parts.begin(), stored->parts.end(),
                    [&](const auto& part) { return pattern.names.matches(part.name); });
  if (num_matched > 0 && num_matched < std::ssize(stored->parts)) {
    throw pattern_error(text, "'" + name + "' can only be trained as a whole")
        .need("patterns that match all tensors that form it");
  }
  return num_matched > 0;
}

// Returns the rows [begin, end) that `range` of the pattern `text` means of a parameter of `size` rows.
// Throws pattern_error() where it has no such rows.
Range rows_in(const Range& range, const std::string& text, const std::string& name, int64_t size,
              const checkpoint::StoredParameter* stored) {
  const int64_t end = range.second == kLast ? size : range.second;
  if (end > size || range.first >= end) {
    throw pattern_error(text, "'" + name + "' has no such rows").need("rows below " + std::to_string(size));
  }
  if (!has_rows_of_files(stored)) {
    throw pattern_error(text, "the rows of '" + name + "' are not rows of the tensors in its files")
        .need("a pattern for the whole parameter");
  }
  return {range.first, end};
}

}  // namespace

TrainedRows freeze_all_but(models::CausalLM& model, const checkpoint::StateDictAdapter& saved,
                           const std::vector<std::string>& patterns) {
  std::vector<Pattern> expressions;
  for (const std::string& pattern : patterns) expressions.push_back(parse(pattern));
  TrainedRows trained_rows;
  std::vector<bool> has_matched(patterns.size());
  std::vector<std::string> names;
  int64_t num_trained = 0;
  for (const auto& entry : model.named_parameters()) {
    const std::string& name = entry.key();
    names.push_back(name);
    const checkpoint::StoredParameter* stored = saved.find(name);
    bool is_trained = false, is_whole = false;
    std::vector<Range> rows;
    for (size_t i = 0; i < patterns.size(); ++i) {
      if (!means(expressions[i], patterns[i], name, stored)) continue;
      is_trained = has_matched[i] = true;
      const std::optional<Range>& range = expressions[i].rows;
      is_whole = is_whole || !range;
      if (range) rows.push_back(rows_in(*range, patterns[i], name, entry.value().size(0), stored));
    }
    if (is_whole && !rows.empty()) {
      throw pattern_error(join(patterns, ", "),
                          "one pattern trains all rows of '" + name + "', another one only some")
          .need("one of them");
    }
    if (!rows.empty()) trained_rows[name] = merged(std::move(rows));
    // Corrections of routers and scales of layers, which the model itself keeps frozen, stay so.
    is_trained = is_trained && entry.value().requires_grad();
    entry.value().set_requires_grad(is_trained);
    num_trained += is_trained ? 1 : 0;
  }
  if (num_trained == 0) {
    throw pattern_error(join(patterns, ", "), "no parameter is trained")
        .need("patterns that match the beginning of names, such as " + names.front() + " and " +
              names.back());
  }
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (!has_matched[i])
      log::warn("key 'unfrozen_parameters': no parameter's name begins with '" + patterns[i] + "'");
  }
  log::info(
      "unfrozen_parameters: " + std::to_string(num_trained) + " of " + std::to_string(names.size()) +
      " parameters are trained" +
      (trained_rows.empty() ? "" : ", " + std::to_string(trained_rows.size()) + " of them in some rows"));
  return trained_rows;
}

void clear_frozen_rows(const TrainedRows& trained, const parallel::ShardedModel& model) {
  if (trained.empty()) return;
  const at::NoGradGuard no_grad;
  for (const parallel::ShardedParameter& parameter : model.parameters()) {
    const auto found = trained.find(parameter.name);
    at::Tensor gradient = parameter.tile.grad();
    if (found == trained.end() || !gradient.defined() || gradient.numel() == 0) continue;
    const int64_t first = parameter.box.offset[0], size = parameter.box.size[0];
    int64_t begin = 0;  // first of the next frozen rows, in the tile
    // Zeroes the rows from `begin` up to row `end` of the whole parameter, as far as the tile has them.
    const auto clear_to = [&](int64_t end) {
      end = std::clamp<int64_t>(end - first, begin, size);
      gradient.narrow(0, begin, end - begin).zero_();
    };
    for (const auto& [from, to] : found->second) {
      clear_to(from);
      begin = std::clamp<int64_t>(to - first, begin, size);
    }
    clear_to(first + size);
  }
}

}  // namespace tessera::train

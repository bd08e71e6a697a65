#include "tessera/train/freeze.h"

#include <algorithm>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/peft/targets.h"

namespace tessera::train {
namespace {

Error pattern_error(const std::string& pattern, const std::string& what) {
  return Error(ErrorKind::Config, "UNFROZEN", "key 'unfrozen_parameters': " + what).got("'" + pattern + "'");
}

// "^lm_head.weight$[:32000]" and "[7]" mean rows of the parameter, and no characters.
bool ends_in_range(const std::string& pattern) {
  const size_t open = pattern.rfind('[');
  if (open == std::string::npos || open == 0 || !pattern.ends_with(']')) return false;
  const std::string inside = pattern.substr(open + 1, pattern.size() - open - 2);
  return inside.find_first_not_of("0123456789:") == std::string::npos &&
         std::count(inside.begin(), inside.end(), ':') <= 1;
}

// A regular expression over whole names, of one that names begin with.
peft::NamePattern parse(const std::string& pattern) {
  if (ends_in_range(pattern)) {
    throw pattern_error(pattern, "training some rows of a parameter is not built")
        .need("patterns of whole parameters")
        .hint("without the range all of its rows are trained");
  }
  std::string expression = "(?:";
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool is_escaped = i > 0 && pattern[i - 1] == '\\';
    const bool is_wildcard = i + 1 < pattern.size() && pattern[i + 1] == '+';
    if (pattern[i] == '.' && !is_escaped && !is_wildcard) expression += '\\';
    expression += pattern[i];
  }
  try {
    return peft::NamePattern(expression + ").*");
  } catch (const Error&) {
    throw pattern_error(pattern, "not a regular expression");
  }
}

}  // namespace

void freeze_all_but(models::CausalLM& model, const checkpoint::StateDictAdapter& saved,
                    const std::vector<std::string>& patterns) {
  std::vector<peft::NamePattern> expressions;
  for (const std::string& pattern : patterns) expressions.push_back(parse(pattern));
  std::vector<bool> has_matched(patterns.size());
  std::vector<std::string> names;
  int64_t num_trained = 0;
  for (const auto& entry : model.named_parameters()) {
    const std::string& name = entry.key();
    names.push_back(name);
    const checkpoint::StoredParameter* stored = saved.find(name);
    bool is_trained = false;
    for (size_t i = 0; i < patterns.size(); ++i) {
      int64_t num_parts = 0, num_matched = 0;
      if (stored != nullptr) {
        num_parts = std::ssize(stored->parts);
        num_matched = std::count_if(stored->parts.begin(), stored->parts.end(),
                                    [&](const auto& part) { return expressions[i].matches(part.name); });
      }
      const bool is_named = expressions[i].matches(name);
      if (!is_named && num_matched > 0 && num_matched < num_parts) {
        throw pattern_error(patterns[i], "'" + name + "' is trained as a whole")
            .need("a pattern of all tensors that it is made of");
      }
      if (!is_named && num_matched == 0) continue;
      is_trained = has_matched[i] = true;
    }
    entry.value().set_requires_grad(is_trained);
    num_trained += is_trained ? 1 : 0;
  }
  if (num_trained == 0) {
    throw pattern_error(join(patterns, ", "), "no parameter is trained")
        .need("patterns that names begin with, such as those of " + names.front() + " and " + names.back());
  }
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (!has_matched[i])
      log::warn("key 'unfrozen_parameters': no parameter's name begins with '" + patterns[i] + "'");
  }
  log::info("unfrozen_parameters: " + std::to_string(num_trained) + " of " + std::to_string(names.size()) +
            " parameters are trained");
}

}  // namespace tessera::train

#include "tessera/peft/layer_options.h"

namespace tessera::peft {
namespace {

// Takes the keys out of `pattern` and makes expressions for whole names of them.
template <class T>
std::vector<std::pair<NamePattern, T>> compiled(std::vector<std::pair<std::string, T>>& pattern) {
  std::vector<std::pair<NamePattern, T>> expressions;
  for (const auto& [key, value] : pattern)
    expressions.emplace_back(NamePattern("(.*\\.)?(" + key + ")"), value);
  pattern.clear();
  return expressions;
}

template <class T>
void take_first(const std::vector<std::pair<NamePattern, T>>& expressions, const std::string& layer,
                T& value) {
  for (const auto& [expression, own] : expressions) {
    if (!expression.matches(layer)) continue;
    value = own;
    return;
  }
}

}  // namespace

LayerOptions::LayerOptions(LoraOptions options)
    : options_(std::move(options)),
      ranks_(compiled(options_.rank_pattern)),
      alphas_(compiled(options_.alpha_pattern)) {}

LoraOptions LayerOptions::operator()(const std::string& layer) const {
  LoraOptions own = options_;
  take_first(ranks_, layer, own.rank);
  take_first(alphas_, layer, own.alpha);
  return own;
}

}  // namespace tessera::peft

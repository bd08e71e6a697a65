#include "tessera/train/setup/optimizer_targets.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/peft/targets.h"

namespace tessera::train {
namespace {

class TargetNames {
 public:
  explicit TargetNames(const std::vector<std::string>& modules) : modules_(modules) {
    for (const std::string& module : modules) patterns_.emplace_back(module);
  }
  bool has(const std::string& parameter) const {
    const std::string module = parameter.substr(0, parameter.rfind('.'));
    for (size_t i = 0; i < modules_.size(); ++i) {
      const bool is_all = modules_[i] == "all-linear" || modules_[i] == "all_linear";
      if (is_all || module.find(modules_[i]) != std::string::npos || patterns_[i].matches(module))
        return true;
    }
    return false;
  }

 private:
  const std::vector<std::string>& modules_;
  std::vector<peft::NamePattern> patterns_;
};

}  // namespace

void set_targets(const std::vector<std::string>& modules, std::vector<optim::OptimizedTile>& tiles) {
  if (modules.empty()) return;
  const TargetNames targets(modules);
  for (optim::OptimizedTile& tile : tiles) tile.is_target = targets.has(tile.name);
}

void check_targets(const std::vector<std::string>& modules, const std::vector<std::string>& names) {
  if (modules.empty()) return;
  const TargetNames targets(modules);
  if (std::ranges::any_of(names, [&](const std::string& name) { return targets.has(name); })) return;
  throw Error(ErrorKind::Config, "OPTIM-TARGET", "key 'optim_target_modules' names no trained module")
      .got(join(modules, ", "))
      .need("parts of module names, regular expressions for whole names, or all-linear")
      .hint("a trained parameter is '" + (names.empty() ? std::string() : names.front()) + "'");
}

}  // namespace tessera::train

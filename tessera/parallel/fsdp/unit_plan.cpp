#include "tessera/parallel/fsdp/unit_plan.h"

#include <unordered_map>

#include <c10/core/TensorImpl.h>

#include "tessera/core/error.h"
#include "tessera/parallel/fsdp/shard_state.h"

namespace tessera::parallel::detail {
namespace {

Error unit_error(const std::string& what) { return Error(ErrorKind::Config, "SHARD-UNITS", what); }

}  // namespace

UnitPlan plan_units(const torch::nn::Module& root,
                    const std::vector<std::shared_ptr<torch::nn::Module>>& units) {
  std::unordered_map<const torch::nn::Module*, std::string> name_of;
  bool is_sharded = has_shard_hook(root);
  for (const auto& entry : root.named_modules("", false)) {
    name_of[entry.value().get()] = entry.key();
    is_sharded = is_sharded || has_shard_hook(*entry.value());
  }
  if (is_sharded) {
    throw Error(ErrorKind::Config, "SHARDED-TWICE", "the module, or a part of it, is sharded already")
        .hint(
            "call fully_shard() once, on the root, with all its units; to shard a module again, construct it "
            "again");
  }

  UnitPlan plan;
  std::unordered_map<const c10::TensorImpl*, size_t> index_of;
  for (const auto& entry : root.named_parameters()) {
    const auto [seen, is_new] = index_of.emplace(entry.value().unsafeGetTensorImpl(), plan.parameters.size());
    if (is_new) {
      plan.parameters.push_back({entry.value(), entry.key(), {}, 0});
    } else {
      plan.parameters[seen->second].aliases.push_back(entry.key());
    }
  }

  plan.unit_names.emplace_back("the root");
  for (const auto& module : units) {
    const auto name = name_of.find(module.get());
    if (name == name_of.end()) {
      throw unit_error(module == nullptr ? "a unit is null" : "a unit is not a module below the root")
          .hint("a unit is registered in the root, or in a module of it, by register_module()");
    }
    const size_t number = plan.unit_names.size();
    plan.unit_names.push_back("unit '" + name->second + "'");
    for (const auto& entry : module->named_parameters()) {
      UnitPlan::Parameter& parameter = plan.parameters[index_of.at(entry.value().unsafeGetTensorImpl())];
      if (parameter.unit != 0 && parameter.unit != number) {
        throw unit_error("parameter '" + parameter.name + "' belongs to " + plan.unit_names[parameter.unit] +
                         " and to " + plan.unit_names[number])
            .hint(
                "list each unit once, and none inside another; modules that several units use belong to the "
                "root");
      }
      parameter.unit = number;
    }
  }
  return plan;
}

}  // namespace tessera::parallel::detail

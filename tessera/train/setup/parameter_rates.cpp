#include "tessera/train/setup/parameter_rates.h"

#include <algorithm>

#include "tessera/core/log.h"
#include "tessera/models/common/head_rows.h"

namespace tessera::train {
namespace {

bool has(const std::string& name, const std::string& part) { return name.find(part) != std::string::npos; }

bool is_embedding(const nn::ParameterRoles& roles, const std::string& name) {
  const auto found = roles.find(name);
  return found != roles.end() &&
         (found->second == nn::ParameterRole::Embedding || found->second == nn::ParameterRole::LayerTable ||
          found->second == nn::ParameterRole::OutputHead);
}

bool is_in(const config::LrGroup& group, const std::string& name) {
  return std::ranges::any_of(group.modules, [&](const std::string& module) { return has(name, module); });
}

void set_group(const config::RateConfig& rates, const nn::ParameterRoles& roles, optim::OptimizedTile& tile,
               bool is_matrix) {
  if (is_embedding(roles, tile.name)) {
    tile.weight_decay = 0.0;
    if (rates.embedding_lr_scale) tile.lr_scale = *rates.embedding_lr_scale;
    if (rates.embedding_lr) tile.lr_scale = *rates.embedding_lr / rates.learning_rate;
    return;
  }
  if (!is_matrix) return;
  const auto group = std::ranges::find_if(
      rates.lr_groups, [&](const config::LrGroup& candidate) { return is_in(candidate, tile.name); });
  if (group != rates.lr_groups.end()) tile.lr_scale = group->lr / rates.learning_rate;
}

}  // namespace

void set_learning_rates(const config::RateConfig& rates, const nn::ParameterRoles& roles,
                        std::vector<optim::OptimizedTile>& tiles) {
  const bool has_groups = rates.embedding_lr || rates.embedding_lr_scale || !rates.lr_groups.empty();
  for (optim::OptimizedTile& tile : tiles) {
    const bool is_matrix = tile.layout.shape().size() >= 2;
    if (has_groups) set_group(rates, roles, tile, is_matrix);
    if (rates.loraplus_lr_ratio > 0.0 && (has(tile.name, "lora_B") || !is_matrix))
      tile.lr_scale = rates.loraplus_lr_ratio;
  }
}

void set_roles(const models::CausalLM& model, std::vector<optim::OptimizedTile>& tiles) {
  const nn::ParameterRoles roles = model.parameter_roles();
  const nn::ParameterBlocks blocks = models::head_rows(model);
  for (optim::OptimizedTile& tile : tiles) {
    if (const auto role = roles.find(tile.name); role != roles.end()) tile.role = role->second;
    if (const auto rows = blocks.find(tile.name); rows != blocks.end()) tile.row_blocks = rows->second;
  }
}

void warn_of_unused_rates(const config::RateConfig& rates, const nn::ParameterRoles& roles,
                          const std::vector<std::string>& names) {
  const auto is_one = [&](const std::string& name) { return is_embedding(roles, name); };
  if ((rates.embedding_lr || rates.embedding_lr_scale) && std::ranges::none_of(names, is_one)) {
    log::warn(std::string("key '") + (rates.embedding_lr ? "embedding_lr" : "embedding_lr_scale") +
              "' has no effect: no embedding is trained");
  }
  for (const config::LrGroup& group : rates.lr_groups) {
    if (std::ranges::any_of(names, [&](const std::string& name) { return is_in(group, name); })) continue;
    log::warn("key 'lr_groups': the group '" + group.name + "' matches no trained parameter");
  }
}

}  // namespace tessera::train

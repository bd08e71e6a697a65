// Sets learning rates for parts of a model: embedding_lr, lr_groups and LoRA+.
#pragma once

#include <string>
#include <vector>

#include "tessera/config/recipe.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/nn/parameter_role.h"
#include "tessera/optim/optimizer.h"

namespace tessera::train {

// Sets the learning rates, as shares of the schedule's, that these keys give to trained parameters by their
// names and roles (models::CausalLM::parameter_roles()). embedding_lr, embedding_lr_scale and lr_groups group
// parameters as Axolotl does: the embeddings and the output projection, which then have no weight decay, and
// the other weight matrices whose names contain a module of a group, the first such group. loraplus_lr_ratio
// (Hayou et al., "LoRA+", 2024) is for the second matrices of adapters, and for vectors.
void set_learning_rates(const config::RateConfig& rates, const nn::ParameterRoles& roles,
                        std::vector<optim::OptimizedTile>& tiles);

// Sets the roles of the tiles and the blocks of their rows, which rules of optimizers look at.
void set_roles(const models::CausalLM& model, std::vector<optim::OptimizedTile>& tiles);

// Warns of learning-rate keys that mean none of the trained parameters `names`.
void warn_of_unused_rates(const config::RateConfig& rates, const nn::ParameterRoles& roles,
                          const std::vector<std::string>& names);

}  // namespace tessera::train

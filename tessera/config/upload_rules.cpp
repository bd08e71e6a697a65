#include "tessera/config/rules.h"
#include "tessera/hub/snapshot.h"
#include "tessera/hub/upload_target.h"

namespace tessera::config {

void validate_upload(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (recipe.hub_model_id.empty() && recipe.push_to_hub.value_or(false)) {
    rules.refuse("MISSING", {"push_to_hub", "hub_model_id"}, "there is no repository to upload to")
        .need("hub_model_id: org/name as well");
  }
  if (!recipe.uploads()) {
    for (const auto& [key, is_given] : {std::pair("hub_private_repo", recipe.hub_private_repo.has_value()),
                                        std::pair("hub_revision", !recipe.hub_revision.empty())}) {
      if (is_given && !recipe.push_to_hub) rules.warn_idle(key, "without 'hub_model_id'");
    }
    return;
  }
  if (!hub::is_upload_id(recipe.hub_model_id)) {
    rules.refuse("RANGE", {"hub_model_id"}, "the hub does not accept this name for a repository")
        .got("'" + recipe.hub_model_id + "'")
        .need(
            "org/name: the user or organisation that owns it, and a name of letters, digits, '-', '_' and "
            "'.'");
  }
  if (!recipe.hub_revision.empty() && !hub::is_revision(recipe.hub_revision)) {
    rules.refuse("RANGE", {"hub_revision"}, "a branch cannot have this name")
        .got("'" + recipe.hub_revision + "'");
  }
  if (!recipe.save_final) {
    rules
        .refuse_text("CONFLICT", {"hub_model_id", "save_final"},
                     "keys 'hub_model_id' and 'save_final': there is no result to upload")
        .hint("remove one of them, or set push_to_hub: false");
  }
}

}  // namespace tessera::config

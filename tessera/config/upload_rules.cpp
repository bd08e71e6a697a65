#include "tessera/config/rules.h"
#include "tessera/hub/snapshot.h"
#include "tessera/hub/upload_target.h"

namespace tessera::config {

void validate_upload(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (recipe.hub_model_id.empty() && recipe.push_to_hub.value_or(false)) {
    rules.refuse({"push_to_hub", "hub_model_id"},
                 rules.error("MISSING", "key 'push_to_hub': nothing says where to", "push_to_hub")
                     .need("hub_model_id: org/name beside it"));
  }
  if (!recipe.uploads()) {
    for (const auto& [key, is_given] : {std::pair("hub_private_repo", recipe.hub_private_repo.has_value()),
                                        std::pair("hub_revision", !recipe.hub_revision.empty())}) {
      if (is_given && !recipe.push_to_hub)
        rules.warn(key, std::string("key '") + key + "' has no effect without 'hub_model_id'");
    }
    return;
  }
  if (!hub::is_upload_id(recipe.hub_model_id)) {
    rules.refuse(
        {"hub_model_id"},
        rules
            .error("RANGE", "key 'hub_model_id': no repository of the hub can have this name", "hub_model_id")
            .got("'" + recipe.hub_model_id + "'")
            .need("org/name: the user or organisation that owns it, and a name of letters, digits, "
                  "'-', '_' and '.'"));
  }
  if (!recipe.hub_revision.empty() && !hub::is_revision(recipe.hub_revision)) {
    rules.refuse({"hub_revision"},
                 rules.error("RANGE", "key 'hub_revision': no branch has this name", "hub_revision")
                     .got("'" + recipe.hub_revision + "'"));
  }
  if (!recipe.save_final) {
    rules.refuse({"hub_model_id", "save_final"},
                 rules
                     .error("CONFLICT", "keys 'hub_model_id' and 'save_final': there is no result to upload",
                            "hub_model_id")
                     .hint("leave out one of them, or write push_to_hub: false"));
  }
}

}  // namespace tessera::config

#include "tessera/config/schema.h"

#include "tessera/config/schema_tables.h"

namespace tessera::config {
namespace {

constexpr std::string_view kRequired[] = {"base_model", "datasets", "learning_rate"};

}  // namespace

std::span<const Key<Recipe>> recipe_keys() {
  static const std::vector<Key<Recipe>> keys = [] {
    std::vector<Key<Recipe>> all;
    for (const auto topic :
         {model_keys(), data_keys(), training_keys(), output_keys(), adapter_keys(), parallelism_keys()})
      all.insert(all.end(), topic.begin(), topic.end());
    return all;
  }();
  return keys;
}
std::span<const std::string_view> required_recipe_keys() { return kRequired; }

}  // namespace tessera::config

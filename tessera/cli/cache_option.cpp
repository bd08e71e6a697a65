#include "tessera/cli/cache_option.h"

#include <map>
#include <string>

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_cache_option(CLI::App& verb, generation::CacheType& type) {
  static const std::map<std::string, generation::CacheType> kTypes = {{"auto", generation::CacheType::Model},
                                                                      {"int8", generation::CacheType::Int8}};
  verb.add_option(
          "--kv-cache-dtype", type,
          "Keep the keys and values of the cache in the model's type (auto), or in 8 bits with a scale "
          "for each token of each head (int8): about a quarter of the memory of fp32, half of that of "
          "bf16, with slightly other answers; on the CPU alone")
      ->transform(CLI::CheckedTransformer(kTypes))
      ->default_str("auto");
}

}  // namespace tessera::cli

#include "tessera/cli/cache_option.h"

#include <string>

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_cache_option(CLI::App& verb, generation::CacheType& type) {
  const auto set = [&type](const std::string& name) {
    type = name == "int8" ? generation::CacheType::Int8 : generation::CacheType::Model;
  };
  verb.add_option_function<std::string>("--kv-cache-dtype", set,
                                        "Keep the keys and values of the cache in the model's type (auto), "
                                        "or in 8 bits with a scale for each "
                                        "token of each head (int8): about a quarter of the memory of fp32, "
                                        "half of that of bf16, with slightly "
                                        "other answers; on the CPU alone")
      ->check(CLI::IsMember({"auto", "int8"}))
      ->default_str("auto");
}

}  // namespace tessera::cli

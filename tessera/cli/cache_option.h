// The option --kv-cache-dtype of the verbs that make text.
#pragma once

#include "tessera/generation/cache_type.h"

namespace CLI {
class App;
}

namespace tessera::cli {

void add_cache_option(CLI::App& verb, generation::CacheType& type);

}  // namespace tessera::cli

#include "tessera/generation/cache_type.h"

#include <string>

#include "tessera/core/error.h"
#include "tessera/device/device.h"
#include "tessera/ops/cache_pages.h"

namespace tessera::generation {

void check_cache_type(CacheType type, at::Device device) {
  if (type == CacheType::Model || device == kHost) return;
  throw Error(ErrorKind::Config, "KV-CACHE", "a cache in 8 bits is read on the CPU alone")
      .got("device " + device.str())
      .need("--device cpu, or --kv-cache-dtype auto");
}

nn::KvCacheOptions cache_options(const models::CausalLM& model, CacheType type) {
  nn::KvCacheOptions options = model.cache_options();
  if (type == CacheType::Model) return options;
  check_cache_type(type, options.device);
  if (model.config().is_encoder_decoder) {
    throw Error(ErrorKind::Config, "KV-CACHE", "a cache in 8 bits is for models that continue texts")
        .got("an encoder-decoder")
        .need("--kv-cache-dtype auto");
  }
  options.dtype = ops::kCodedCache;
  return options;
}

}  // namespace tessera::generation

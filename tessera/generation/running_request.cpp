#include "tessera/generation/running_request.h"

#include <string>

#include "tessera/core/sha256.h"

namespace tessera::generation {

std::vector<int64_t> RunningRequest::tokens(int64_t begin, int64_t end) const {
  std::vector<int64_t> ids;
  for (int64_t i = begin; i < end; ++i) {
    ids.push_back(i < prompt_size() ? prompt[static_cast<size_t>(i)]
                                    : result.token_ids[static_cast<size_t>(i - prompt_size())]);
  }
  return ids;
}

void RunningRequest::add_keys() {
  constexpr int64_t kPage = nn::KvCache::kPageTokens;
  for (int64_t next = std::ssize(keys); (next + 1) * kPage <= text_size(); ++next) {
    Sha256 sum;
    // No key of a page begins like the first one's text.
    sum.add(next == 0 ? "adapter " + std::to_string(options.adapter) + " salt " + options.cache_salt
                      : keys.back());
    const std::vector<int64_t> ids = tokens(next * kPage, (next + 1) * kPage);
    sum.add({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int64_t)});
    keys.push_back(sum.hex());
  }
}

}  // namespace tessera::generation

#include "tessera/nn/attention_dropout.h"

#include "tessera/core/rng.h"
#include "tessera/nn/random_scope.h"

namespace tessera::nn {

AttentionDropout::AttentionDropout(double probability, int64_t num_heads, const std::string& site)
    : probability_(probability), num_heads_(num_heads), stream_(stream_of(site.c_str())) {}

bool AttentionDropout::drops() const { return is_training() && RandomScope::current() != nullptr; }

ops::AttentionDropout AttentionDropout::of(const at::Tensor& q, int64_t first_head) const {
  if (!drops()) return {};
  return {probability_, draws_here(q, first_head, num_heads_, stream_)};
}

std::shared_ptr<AttentionDropout> add_attention_dropout(torch::nn::Module& parent, double probability,
                                                        int64_t num_heads, const std::string& site) {
  if (probability == 0.0) return nullptr;
  return parent.register_module("attention_dropout",
                                std::make_shared<AttentionDropout>(probability, num_heads, site));
}

}  // namespace tessera::nn

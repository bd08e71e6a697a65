#include "tessera/models/common/head_rows.h"

#include <string>

#include "tessera/nn/transformer_block.h"

namespace tessera::models {
namespace {

void add_attention(const std::string& name, const nn::AttentionOptions& o, nn::ParameterBlocks& blocks) {
  const auto add = [&](const std::string& layer, const nn::RowBlocks& rows) {
    blocks[name + "." + layer + ".weight"] = rows;
  };
  const nn::RowBlocks heads{o.head_dim, o.head_dim, 0};
  if (o.latent) {
    const int64_t keys = o.head_dim - o.latent->rope_dim, values = o.latent->value_dim;
    add(o.latent->q_rank ? "q_b_proj" : o.q, heads);
    return add("kv_b_proj", {keys, keys + values, values});
  }
  if (!o.qkv.empty()) {
    const int64_t queries = o.num_heads / o.num_kv_heads;
    return add(o.qkv, {o.head_dim, (queries + 2) * o.head_dim, o.head_dim});
  }
  add(o.q, heads);
  add(o.k, heads);
}

}  // namespace

nn::ParameterBlocks head_rows(const CausalLM& model) {
  nn::ParameterBlocks blocks;
  for (const auto& module : model.named_modules("", /*include_self=*/false)) {
    const auto* const block = dynamic_cast<const nn::TransformerBlock*>(module.value().get());
    if (block == nullptr) continue;
    const nn::TransformerBlockOptions& o = block->options();
    if (o.has_attention()) add_attention(module.key() + "." + o.attention_name, o.attention, blocks);
    if (!o.cross_attention) continue;
    const nn::CrossAttentionOptions& cross = *o.cross_attention;
    for (const std::string& layer : {cross.q, cross.k}) {
      blocks[module.key() + "." + o.cross_attention_name + "." + layer + ".weight"] = {cross.head_dim,
                                                                                       cross.head_dim, 0};
    }
  }
  return blocks;
}

}  // namespace tessera::models

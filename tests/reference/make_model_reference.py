#!/usr/bin/env python3
"""Makes tests/reference/data/models/<family>/: a tiny random model of each family and Transformers' numbers for it.

Each folder is a Hugging Face model folder plus reference.safetensors, whose tensors README.md lists. "lora" names
the layers of an adapter that PEFT makes for the model, in the folder adapter/.
usage: make_model_reference.py [FAMILY...]
"""
import json
import os
import shutil
import sys

from make_training_reference import save_adapter
from reference_common import DATA, IGNORE, everything_in_float64, label_loss_sum, num_label_tokens, save

import torch
from safetensors.torch import load_file
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

DOCUMENT_LENGTHS = (17, 6)
NUM_GREEDY_TOKENS = 8

COMMON = dict(attention_dropout=0.0, bos_token_id=1, eos_token_id=2, hidden_act="silu", initializer_range=0.02,
              use_cache=True)
LLAMA = dict(COMMON, architectures=["LlamaForCausalLM"], model_type="llama")
GPT2 = dict(architectures=["GPT2LMHeadModel"], model_type="gpt2", attn_pdrop=0.1, embd_pdrop=0.1, resid_pdrop=0.1,
            bos_token_id=1, eos_token_id=2, initializer_range=0.02, layer_norm_epsilon=1e-5, n_ctx=64, n_positions=64,
            summary_type="cls_index", use_cache=True)
SMALL = dict(hidden_size=16, intermediate_size=18, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=61, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, use_cache=True,
             torch_dtype="float32")
QWEN2 = dict(COMMON, architectures=["Qwen2ForCausalLM"], model_type="qwen2", use_sliding_window=False)

ABSENT = object()
# For families whose sizes have other names.
SMALL_OWN = dict.fromkeys(["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                           "max_position_embeddings"], ABSENT)
OPT_OWN = dict(intermediate_size=ABSENT, num_key_value_heads=ABSENT)


def slim(architecture, how=None, **config):
    """A family that is there for what it does otherwise: small, and without float32 gradients.

    A padding token must not be one of the documents' (3 and above): Transformers gives its embedding no gradient.
    """
    config = dict(SMALL, architectures=[architecture]) | config
    config = {key: value for key, value in config.items() if value is not ABSENT}
    return dict(seed=31, float64=True, slim=True, config=config) | (how or {})


def whole(vision, **text):
    """The keys of a multimodal model that stand for the sizes of a text model."""
    nothing = dict.fromkeys(["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                             "num_key_value_heads", "vocab_size", "max_position_embeddings"], ABSENT)
    text = {key: value for key, value in dict(SMALL, **text).items() if value is not ABSENT}
    return dict(nothing, vision_config=vision, text_config=text)


def delta_net(kernel):
    return dict(linear_conv_kernel_dim=kernel, linear_key_head_dim=3, linear_value_head_dim=5, linear_num_key_heads=4,
                linear_num_value_heads=12)


QWEN3_5_VISION = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=2, out_hidden_size=16,
                      num_position_embeddings=16, spatial_merge_size=1)
QWEN3_5_TOKENS = dict(image_token_id=60, video_token_id=59, vision_start_token_id=58, vision_end_token_id=57)


# "config" is config.json as it is written: most published folders have `rope_theta` and `rope_scaling`, those
# saved by Transformers 5 have `rope_parameters` and `dtype`. Both kinds occur here.
FAMILIES = {
    # As Llama 2 was published: neither head_dim nor rope_theta. Saved in shards.
    "llama2": dict(seed=1, shard_size="40KB", config=dict(
        LLAMA, hidden_size=36, intermediate_size=44, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=3, vocab_size=97, max_position_embeddings=64, rms_norm_eps=1e-5, rope_scaling=None,
        pretraining_tp=1, attention_bias=False, tie_word_embeddings=False, torch_dtype="float32")),
    "llama3": dict(seed=2, float64=True, config=dict(
        LLAMA, hidden_size=24, intermediate_size=28, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=6, vocab_size=97, max_position_embeddings=128, rms_norm_eps=1e-5,
        attention_bias=False, mlp_bias=False, rope_theta=500.0, rope_scaling=dict(
            factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64,
            rope_type="llama3"),
        eos_token_id=[2, 5], tie_word_embeddings=True, torch_dtype="float32")),
    "llama_linear": dict(seed=3, config=dict(
        LLAMA, hidden_size=40, intermediate_size=52, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, vocab_size=97, max_position_embeddings=64, rms_norm_eps=1e-6, rope_theta=10000.0,
        rope_scaling=dict(type="linear", factor=4.0), tie_word_embeddings=False, torch_dtype="float32")),
    # The longer document is longer than max_position_embeddings, the shorter is not: only one is rescaled.
    "llama_dynamic": dict(seed=4, config=dict(
        LLAMA, hidden_size=24, intermediate_size=28, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, vocab_size=61, max_position_embeddings=8, rms_norm_eps=1e-6, rope_theta=10000.0,
        rope_scaling=dict(type="dynamic", factor=2.0), tie_word_embeddings=False, torch_dtype="float32")),
    "llama_yarn": dict(seed=5, config=dict(
        LLAMA, hidden_size=40, intermediate_size=28, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=10, vocab_size=61, max_position_embeddings=64, rms_norm_eps=1e-6,
        rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=4.0, beta_slow=1.0,
                             original_max_position_embeddings=16),
        tie_word_embeddings=False, dtype="float32")),
    "llama_bias": dict(seed=6, config=dict(
        LLAMA, hidden_size=24, intermediate_size=28, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=61, max_position_embeddings=64, rms_norm_eps=1e-6, attention_bias=True,
        mlp_bias=True, rope_theta=10000.0, tie_word_embeddings=False, torch_dtype="float32")),
    # Stored in bfloat16; the numbers are those of the weights widened to float32.
    "mistral": dict(seed=7, store=torch.bfloat16, config=dict(
        COMMON, architectures=["MistralForCausalLM"], model_type="mistral", hidden_size=40, intermediate_size=52,
        num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=97,
        max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0, sliding_window=None,
        tie_word_embeddings=False, torch_dtype="bfloat16")),
    # Each token sees itself and the four before it.
    "mistral_sliding": dict(seed=8, config=dict(
        COMMON, architectures=["MistralForCausalLM"], model_type="mistral", hidden_size=24, intermediate_size=28,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=61,
        max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0, sliding_window=5,
        tie_word_embeddings=False, torch_dtype="float32")),
    "qwen2": dict(seed=9, float64=True, config=dict(
        QWEN2, hidden_size=24, intermediate_size=28, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=97, max_position_embeddings=64, max_window_layers=3,
        rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=32, tie_word_embeddings=True,
        torch_dtype="float32")),
    "qwen2_5": dict(seed=20, config=dict(
        QWEN2, hidden_size=40, intermediate_size=52, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, vocab_size=97, max_position_embeddings=64, max_window_layers=2,
        rms_norm_eps=1e-6, rope_parameters=dict(rope_type="default", rope_theta=1000000.0), sliding_window=None,
        tie_word_embeddings=False, dtype="float32")),
    # The second layer alone has a window.
    "qwen2_sliding": dict(seed=15, config=dict(
        QWEN2 | dict(use_sliding_window=True), hidden_size=24, intermediate_size=28, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=61, max_position_embeddings=64,
        max_window_layers=1, rms_norm_eps=1e-6, rope_theta=10000.0, sliding_window=4, tie_word_embeddings=True,
        torch_dtype="float32")),
    # head_dim is not hidden_size / num_attention_heads.
    "qwen3": dict(seed=11, float64=True, config=dict(
        COMMON, architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_size=22, intermediate_size=26,
        num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=6, vocab_size=97,
        max_position_embeddings=64, max_window_layers=3, rms_norm_eps=1e-6, rope_theta=1000000,
        rope_scaling=None, attention_bias=False, sliding_window=None, use_sliding_window=False,
        tie_word_embeddings=True, torch_dtype="float32")),
    # layer_types says which layer has a window, against max_window_layers.
    "qwen3_sliding": dict(seed=16, float64=True, config=dict(
        COMMON, architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_size=24, intermediate_size=26,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6, vocab_size=61,
        max_position_embeddings=64, max_window_layers=1, rms_norm_eps=1e-6, rope_theta=10000.0,
        rope_scaling=None, attention_bias=False, sliding_window=3, use_sliding_window=True,
        layer_types=["sliding_attention", "full_attention"], tie_word_embeddings=False, torch_dtype="float32")),
    # Experts that two, three and four ranks share unevenly.
    "mixtral": dict(seed=21, float64=True, aux=0.3, config=dict(
        COMMON, architectures=["MixtralForCausalLM"], model_type="mixtral", hidden_size=24, intermediate_size=10,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, num_local_experts=5,
        num_experts_per_tok=2, vocab_size=61, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0,
        sliding_window=6, tie_word_embeddings=False, torch_dtype="float32")),
    # As Qwen3-30B-A3B was published, with one layer without experts.
    "qwen3_moe": dict(seed=22, float64=True, aux=0.3, config=dict(
        COMMON, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", hidden_size=22,
        intermediate_size=26, moe_intermediate_size=6, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=6, num_experts=7, num_experts_per_tok=3, norm_topk_prob=True,
        decoder_sparse_step=1, mlp_only_layers=[1], vocab_size=61, max_position_embeddings=64,
        max_window_layers=3, rms_norm_eps=1e-6, rope_theta=1000000.0, rope_scaling=None, attention_bias=False,
        sliding_window=None, use_sliding_window=False, output_router_logits=False, router_aux_loss_coef=0.001,
        tie_word_embeddings=False, torch_dtype="float32")),
    "qwen3_moe_options": dict(seed=23, float64=True, config=dict(
        COMMON, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", hidden_size=24,
        intermediate_size=26, moe_intermediate_size=6, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=6, num_experts=4, num_experts_per_tok=2, norm_topk_prob=False,
        decoder_sparse_step=2, mlp_only_layers=[], vocab_size=61, max_position_embeddings=64,
        rms_norm_eps=1e-6, rope_theta=10000.0, attention_bias=True, sliding_window=4, use_sliding_window=True,
        tie_word_embeddings=True, dtype="float32")),
    "smollm2": dict(seed=12, config=dict(
        LLAMA, hidden_size=54, intermediate_size=34, num_hidden_layers=2, num_attention_heads=9,
        num_key_value_heads=3, vocab_size=97, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=100000,
        rope_scaling=None, rope_interleaved=False, pad_token_id=2, attention_bias=False, mlp_bias=False,
        tie_word_embeddings=True, torch_dtype="float32")),
    # As GPT-2 was published: no n_inner.
    "gpt2": dict(seed=13, float64=True, lora=["c_attn", "c_fc", "c_proj"], config=dict(
        GPT2, activation_function="gelu_new", n_embd=15, n_head=3, n_layer=3, vocab_size=97)),
    "gpt2_options": dict(seed=14, config=dict(
        GPT2, activation_function="gelu", n_embd=24, n_head=4, n_layer=2, n_inner=28, vocab_size=61,
        scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=False, tie_word_embeddings=False,
        dtype="float32")),
    # Values lie on both sides of the activation's bend; the other one has an activation without parameters.
    "apertus": slim("ApertusForCausalLM", model_type="apertus", head_dim=8, attention_bias=True, rms_norm_eps=1e-2,
                    pad_token_id=0),
    "apertus_relu2": slim("ApertusForCausalLM", dict(seed=32), model_type="apertus", hidden_act="relu2", pad_token_id=0,
                          rope_parameters=dict(rope_type="default", rope_theta=500.0)),
    "arcee": slim("ArceeForCausalLM", model_type="arcee", attention_bias=True, mlp_bias=True, rms_norm_eps=1e-5),
    # Six heads are no power of 2. The sizes have names of their own.
    "bloom": slim("BloomForCausalLM", dict(eager=True, lora=["query_key_value", "dense_h_to_4h"]), model_type="bloom", n_embed=24, n_layer=2, n_head=6, layer_norm_epsilon=1e-3,
                  **SMALL_OWN),
    "cohere": slim("CohereForCausalLM", model_type="cohere", use_qk_norm=True, attention_bias=True, logit_scale=0.4, layer_norm_eps=1e-5,
                   rope_theta=300.0),
    "cohere2": slim("Cohere2ForCausalLM", model_type="cohere2", num_hidden_layers=3, sliding_window=4,
                    sliding_window_pattern=2, logit_scale=0.5),
    "exaone4": slim("Exaone4ForCausalLM", dict(seed=41), model_type="exaone4", num_hidden_layers=3, sliding_window=4,
                    sliding_window_pattern=2, tie_word_embeddings=False),
    # As Falcon-7B and -40B, and as Falcon-RW without its ALiBi.
    "falcon_7b": slim("FalconForCausalLM", model_type="falcon", multi_query=True, parallel_attn=True, bias=False,
                      alibi=False, new_decoder_architecture=False),
    "falcon_40b": slim("FalconForCausalLM", model_type="falcon", num_kv_heads=2, bias=False, alibi=False,
                       new_decoder_architecture=True, ffn_hidden_size=28),
    "falcon_options": slim("FalconForCausalLM", model_type="falcon", multi_query=False, parallel_attn=False, bias=True,
                           alibi=False, new_decoder_architecture=False, tie_word_embeddings=False),
    # As Falcon-RW: linear biases, which are rounded to bfloat16, in the place of positions. The eager attention of
    # Transformers adds them twice.
    "falcon_rw": slim("FalconForCausalLM", dict(kind="sdpa"), model_type="falcon", hidden_size=24, num_attention_heads=6, multi_query=False,
                      parallel_attn=False, bias=True, alibi=True, new_decoder_architecture=False),
    # The square root of hidden_size is whole: Transformers keeps it in float32.
    "gemma": slim("GemmaForCausalLM", model_type="gemma", num_attention_heads=3, num_key_value_heads=1,
                  head_dim=10, hidden_act="gelu", attention_bias=True),
    "gemma2": slim("Gemma2ForCausalLM", dict(eager=True), model_type="gemma2", head_dim=8,
                   sliding_window=4, query_pre_attn_scalar=7, attn_logit_softcapping=4.0, final_logit_softcapping=20.0),
    "gemma3": slim("Gemma3ForCausalLM", model_type="gemma3_text", num_hidden_layers=3, head_dim=8,
                   sliding_window=4, sliding_window_pattern=2, query_pre_attn_scalar=11, rope_theta=1000.0,
                   rope_local_base_freq=100.0, rope_scaling=dict(rope_type="linear", factor=2.0)),
    "gemma3_nested": slim("Gemma3ForCausalLM", model_type="gemma3_text", head_dim=8, sliding_window=4,
                          layer_types=["full_attention", "sliding_attention"], final_logit_softcapping=20.0,
                          rope_parameters=dict(
                              full_attention=dict(rope_type="default", rope_theta=700.0),
                              sliding_attention=dict(rope_type="linear", factor=3.0, rope_theta=50.0))),
    # As Gemma 3 is published: the text part is a model in a larger one.
    "gemma3_multimodal": slim("Gemma3ForConditionalGeneration", dict(lora=["q_proj", "down_proj"], num_other_ids=3),
                              model_type="gemma3", **whole(
        dict(model_type="siglip_vision_model", hidden_size=8, intermediate_size=8, num_hidden_layers=1,
             num_attention_heads=2, image_size=4, patch_size=2, vision_use_head=False),
        model_type="gemma3_text", head_dim=8, sliding_window=4, sliding_window_pattern=2, rope_theta=1000.0,
        query_pre_attn_scalar=11), mm_tokens_per_image=4, image_token_index=60, boi_token_index=58,
        eoi_token_index=59),
    # As Gemma 4 31B: values from the keys in layers that see everything, whose heads are wider and fewer, and of
    # whose angles some are 0. The last layer becomes such a layer.
    "gemma4": slim("Gemma4ForCausalLM", dict(lora=["q_proj", "k_proj", "down_proj"]), model_type="gemma4_text", num_hidden_layers=3, hidden_size=18, head_dim=6,
                   num_key_value_heads=4, global_head_dim=10, num_global_key_value_heads=2, attention_k_eq_v=True,
                   attention_bias=True, sliding_window=4, final_logit_softcapping=20.0, hidden_size_per_layer_input=0, pad_token_id=0, rms_norm_eps=1e-2,
                   rope_parameters=dict(
                       full_attention=dict(rope_type="proportional", partial_rotary_factor=0.5, rope_theta=700.0, factor=2.0),
                       sliding_attention=dict(rope_type="default", rope_theta=50.0))),
    # As 26B-A4B, in the form of Transformers 5: experts beside the MLP.
    "gemma4_moe": slim("Gemma4ForCausalLM", model_type="gemma4_text", hidden_size=18, head_dim=6,
                       layer_types=["sliding_attention", "full_attention"], sliding_window=4,
                       per_layer_config={"1": dict(head_dim=10)}, enable_moe_block=True, num_experts=5, top_k_experts=2,
                       moe_intermediate_size=7, hidden_size_per_layer_input=0, pad_token_id=0, rms_norm_eps=1e-2),
    # As E2B and E4B: an embedding for each layer, whose table has more rows than there are tokens, and last layers that
    # read the keys and values of earlier ones, two of them of the same one, and have MLPs of twice the width.
    "gemma4_shared": slim("Gemma4ForCausalLM", dict(lora=["q_proj", "k_proj", "per_layer_input_gate", "per_layer_model_projection"]),
                          model_type="gemma4_text", num_hidden_layers=6, hidden_size=14, intermediate_size=10, head_dim=6, global_head_dim=10,
                          num_kv_shared_layers=3, use_double_wide_mlp=True, sliding_window=4,
                          layer_types=["full_attention", "sliding_attention", "full_attention",
                                       "sliding_attention", "full_attention", "full_attention"],
                          hidden_size_per_layer_input=5, vocab_size_per_layer_input=63, final_logit_softcapping=20.0, pad_token_id=0, rms_norm_eps=1e-2,
                          rope_parameters=dict(
                              full_attention=dict(rope_type="proportional", partial_rotary_factor=0.5, rope_theta=700.0),
                              sliding_attention=dict(rope_type="default", rope_theta=50.0))),
    # As they are published: the text part of a larger model.
    "gemma4_shared_multimodal": slim("Gemma4ForConditionalGeneration", dict(num_other_ids=7), model_type="gemma4", **whole(
        dict(model_type="gemma4_vision", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
             num_key_value_heads=2, head_dim=4, patch_size=2, position_embedding_size=4),
        model_type="gemma4_text", num_hidden_layers=3, head_dim=6, global_head_dim=8, num_kv_shared_layers=1,
        layer_types=["sliding_attention", "full_attention", "full_attention"], sliding_window=4, hidden_size_per_layer_input=3,
        vocab_size_per_layer_input=61, pad_token_id=0), image_token_id=60, boi_token_id=59, eoi_token_id=58, audio_token_id=57,
        boa_token_id=56, eoa_token_index=55, video_token_id=54),
    "gemma4_multimodal": slim("Gemma4ForConditionalGeneration", dict(num_other_ids=7), model_type="gemma4", **whole(
        dict(model_type="gemma4_vision", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
             num_key_value_heads=2, head_dim=4, patch_size=2, position_embedding_size=4),
        model_type="gemma4_text", head_dim=6, global_head_dim=8, attention_k_eq_v=True, num_global_key_value_heads=1,
        layer_types=["sliding_attention", "full_attention"], sliding_window=4, hidden_size_per_layer_input=0, pad_token_id=0,
        use_bidirectional_attention="vision"), image_token_id=60, boi_token_id=59, eoi_token_id=58, audio_token_id=57, boa_token_id=56,
        eoa_token_index=55, video_token_id=54),
    # An inner norm has its own eps, and heads of values are narrower than those of keys, or wider.
    "deepseek_v2": slim("DeepseekV2ForCausalLM", model_type="deepseek_v2", num_key_value_heads=4, kv_lora_rank=12, q_lora_rank=10,
                        qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=7, n_routed_experts=6, num_experts_per_tok=3,
                        n_shared_experts=2, moe_intermediate_size=5, first_k_dense_replace=1, attention_bias=True,
                        routed_scaling_factor=1.7, topk_method="group_limited_greedy", n_group=3, topk_group=2,
                        norm_topk_prob=True, rms_norm_eps=1e-2, pad_token_id=0, mlp_bias=True, rope_theta=1000.0,
                        rope_scaling=dict(type="yarn", factor=4.0, beta_fast=8.0, beta_slow=1.0, mscale=0.7,
                                          mscale_all_dim=1.3, original_max_position_embeddings=16)),
    "deepseek_v2_lite": slim("DeepseekV2ForCausalLM", dict(seed=41), model_type="deepseek_v2", num_key_value_heads=4, kv_lora_rank=12, q_lora_rank=None,
                             qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=13, n_routed_experts=4,
                             num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=5, pad_token_id=0),
    "deepseek_v3": slim("DeepseekV3ForCausalLM", dict(seed=53), model_type="deepseek_v3", num_key_value_heads=4, kv_lora_rank=12, q_lora_rank=10,
                        qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=7, n_routed_experts=6, num_experts_per_tok=3,
                        n_shared_experts=1, moe_intermediate_size=5, first_k_dense_replace=1, n_group=3, topk_group=2,
                        routed_scaling_factor=1.7, rms_norm_eps=1e-2, pad_token_id=0, num_nextn_predict_layers=1,
                        attention_bias=True),
    "glm4_moe": slim("Glm4MoeForCausalLM", model_type="glm4_moe", head_dim=8, n_routed_experts=5, num_experts_per_tok=2,
                     n_shared_experts=2, moe_intermediate_size=7, first_k_dense_replace=1, partial_rotary_factor=0.5,
                     routed_scaling_factor=1.3, use_qk_norm=True, attention_bias=True, pad_token_id=0),
    "glm4_moe_lite": slim("Glm4MoeLiteForCausalLM", model_type="glm4_moe_lite", num_key_value_heads=4, kv_lora_rank=12, q_lora_rank=10,
                          qk_rope_head_dim=4, qk_nope_head_dim=5, v_head_dim=9, n_routed_experts=5, num_experts_per_tok=2,
                          moe_intermediate_size=7, norm_topk_prob=False, rope_interleave=False, pad_token_id=0,
                          num_hidden_layers=3, mlp_layer_types=["sparse", "dense", "sparse"]),
    "glm": slim("GlmForCausalLM", model_type="glm", head_dim=8, attention_bias=True, partial_rotary_factor=0.5,
                pad_token_id=0),
    "glm4": slim("Glm4ForCausalLM", model_type="glm4", head_dim=8, intermediate_size=37, attention_bias=False,
                 pad_token_id=0),
    "gpt_neox": slim("GPTNeoXForCausalLM", model_type="gpt_neox", hidden_size=32, rotary_pct=0.25, rotary_emb_base=500),
    "gpt_neox_sequential": slim("GPTNeoXForCausalLM", model_type="gpt_neox", rotary_pct=1.0, hidden_act="gelu_new",
                                use_parallel_residual=False, attention_bias=False, tie_word_embeddings=True),
    # The gates of experts go beyond the limit, which cuts them off.
    "gpt_oss": slim("GptOssForCausalLM", dict(eager=True), model_type="gpt_oss", num_hidden_layers=3, head_dim=8,
                    num_local_experts=5, num_experts_per_tok=3, sliding_window=4, swiglu_limit=0.8, swiglu_alpha=1.5,
                    rope_theta=1000.0, rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=4.0, beta_slow=1.0,
                                                         truncate=False, original_max_position_embeddings=16)),
    # What its configuration class takes for keys that are not there.
    "gpt_oss_defaults": slim("GptOssForCausalLM", dict(eager=True), model_type="gpt_oss",
                             num_local_experts=4, attention_bias=False, num_attention_heads=2,
                             num_key_value_heads=1),
    # As it is published: experts in blocks of 32.
    "gpt_oss_mxfp4": slim("GptOssForCausalLM", dict(eager=True, mxfp4=True), model_type="gpt_oss", hidden_size=32,
                          intermediate_size=32, num_hidden_layers=1, num_local_experts=3, num_experts_per_tok=2, head_dim=8,
                          sliding_window=4),
    "gptj": slim("GPTJForCausalLM", dict(lora=["q_proj", "fc_in"], eager=True), model_type="gptj", n_embd=24, n_layer=2, n_head=3,
                 n_positions=64, n_inner=28, rotary_dim=6, layer_norm_epsilon=1e-3, **SMALL_OWN),
    "granite_moe": slim("GraniteMoeForCausalLM", model_type="granitemoe", num_local_experts=5, num_experts_per_tok=2,
                        attention_bias=True, embedding_multiplier=3.5, residual_multiplier=0.7,
                        attention_multiplier=0.3, logits_scaling=2.5),
    "granite": slim("GraniteForCausalLM", model_type="granite", attention_bias=True, mlp_bias=True,
                    embedding_multiplier=3.5, residual_multiplier=0.7, attention_multiplier=0.3, logits_scaling=2.5),
    "helium": slim("HeliumForCausalLM", dict(seed=41), model_type="helium", head_dim=4, pad_token_id=0, attention_bias=True),
    "hunyuan": slim("HunYuanDenseV1ForCausalLM", model_type="hunyuan_v1_dense", attention_bias=True, head_dim=6,
                    rope_theta=100.0, rope_scaling=dict(type="dynamic", alpha=5.0, factor=1.0)),
    # One of the documents is shorter than the convolution. The width of MLPs is rounded up.
    "lfm2": slim("Lfm2ForCausalLM", dict(lora=["in_proj", "out_proj", "w1"]), model_type="lfm2", num_hidden_layers=3, full_attn_idxs=[1],
                 conv_L_cache=7, conv_bias=True, intermediate_size=30, block_ffn_dim_multiplier=1.1, block_multiple_of=4,
                 head_dim=8, norm_eps=1e-2, rope_theta=1000.0, pad_token_id=0),
    "lfm2_moe": slim("Lfm2MoeForCausalLM", model_type="lfm2_moe", num_hidden_layers=3,
                     layer_types=["conv", "full_attention", "conv"], num_dense_layers=1, num_experts=5,
                     num_experts_per_tok=2, moe_intermediate_size=7, routed_scaling_factor=1.7, pad_token_id=0,
                     tie_word_embeddings=False),
    # A document is longer than a chunk, one layer has no experts, and one no positions.
    "llama4": slim("Llama4ForCausalLM", dict(no_greedy=True), model_type="llama4_text", num_hidden_layers=3, head_dim=8, intermediate_size_mlp=22,
                   num_local_experts=5, num_experts_per_tok=2, moe_layers=[0, 2], no_rope_layer_interval=2,
                   attention_chunk_size=7, attn_scale=0.4, floor_scale=4, rms_norm_eps=1e-2, attention_bias=True, pad_token_id=0,
                   rope_scaling=dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=1.0,
                                     original_max_position_embeddings=32)),
    "llama4_multimodal": slim("Llama4ForConditionalGeneration", dict(num_other_ids=3), model_type="llama4", **whole(
        dict(model_type="llama4_vision_model", hidden_size=8, intermediate_size=32, num_hidden_layers=1,
             num_attention_heads=2, image_size=4, patch_size=2, projector_input_dim=8, projector_output_dim=8, vision_output_dim=8),
        model_type="llama4_text", head_dim=8, intermediate_size_mlp=22, num_local_experts=4, num_experts_per_tok=1,
        interleave_moe_layer_step=2, no_rope_layers=[1, 0], use_qk_norm=False, attn_temperature_tuning=False,
        pad_token_id=0), image_token_index=60, boi_token_index=58, eoi_token_index=59),
    "ministral": slim("MinistralForCausalLM", model_type="ministral", head_dim=6, sliding_window=4,
                      layer_types=["sliding_attention", "full_attention"]),
    "ministral3": slim("Ministral3ForCausalLM", model_type="ministral3", head_dim=8, pad_token_id=0, rope_parameters=dict(
        type="yarn", rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=4,
        beta_fast=8.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.4)),
    "mistral3_multimodal": slim("Mistral3ForConditionalGeneration", dict(num_other_ids=1), model_type="mistral3", image_token_index=60,
                                tie_word_embeddings=False, **whole(
        dict(model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
             head_dim=4, image_size=4, patch_size=2),
        model_type="ministral3", head_dim=8, tie_word_embeddings=True, rope_parameters=dict(
            type="yarn", rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=4,
            beta_fast=8.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.4)),
        spatial_merge_size=1),
    "mistral4": slim("Mistral4ForCausalLM", model_type="mistral4", num_key_value_heads=4, kv_lora_rank=12, q_lora_rank=10,
                     qk_rope_head_dim=4, qk_nope_head_dim=4, v_head_dim=7, n_routed_experts=6, num_experts_per_tok=3,
                     moe_intermediate_size=5, n_group=3, topk_group=2, rms_norm_eps=1e-2, pad_token_id=0,
                     rope_parameters=dict(type="yarn", rope_type="yarn", rope_theta=1000.0, factor=4.0,
                                          original_max_position_embeddings=4, beta_fast=8.0, beta_slow=1.0, mscale=1.0,
                                          mscale_all_dim=1.0, llama_4_scaling_beta=0.4)),
    "mpt": slim("MptForCausalLM", dict(lora=["Wqkv", "up_proj"], eager=True), model_type="mpt", d_model=24, n_layers=2, n_heads=6, max_seq_len=64,
                layer_norm_epsilon=1e-3, attn_config=dict(alibi_bias_max=8, clip_qkv=1.5, softmax_scale=0.3, alibi=True),
                **SMALL_OWN),
    "nemotron": slim("NemotronForCausalLM", model_type="nemotron", head_dim=8, attention_bias=True, mlp_bias=True,
                     partial_rotary_factor=0.5),
    "olmo": slim("OlmoForCausalLM", model_type="olmo", clip_qkv=0.8, attention_bias=True),
    "olmo2": slim("Olmo2ForCausalLM", model_type="olmo2", attention_bias=True),
    "olmo3": slim("Olmo3ForCausalLM", model_type="olmo3", num_hidden_layers=3, sliding_window=4,
                  layer_types=["sliding_attention", "full_attention", "sliding_attention"], rope_theta=2000.0,
                  rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=4.0)),
    "olmoe": slim("OlmoeForCausalLM", model_type="olmoe", num_experts=5, num_experts_per_tok=3, attention_bias=True,
                  norm_topk_prob=False, pad_token_id=0),
    "opt": slim("OPTForCausalLM", dict(lora=["q_proj", "fc1"]), model_type="opt", ffn_dim=28, pad_token_id=0, **OPT_OWN),
    # As OPT-350m, but for its projections: norms of the residual sums, and none at the end.
    "opt_sums": slim("OPTForCausalLM", model_type="opt", ffn_dim=28, do_layer_norm_before=False, enable_bias=False,
                     layer_norm_elementwise_affine=False, activation_function="gelu", tie_word_embeddings=False, pad_token_id=0, **OPT_OWN),
    "phi": slim("PhiForCausalLM", dict(lora=["q_proj", "fc1"]), model_type="phi", hidden_size=32, partial_rotary_factor=0.5,
                qk_layernorm=True, layer_norm_eps=1e-3, rope_theta=300.0),
    "phi3": slim("Phi3ForCausalLM", dict(lora=["qkv_proj", "gate_up_proj"]), model_type="phi3", intermediate_size=37,
                 sliding_window=5, pad_token_id=0),
    # One document is longer than the original length, the other is not.
    "phi3_longrope": slim("Phi3ForCausalLM", dict(no_greedy=True), model_type="phi3", hidden_size=32,
                          partial_rotary_factor=0.75, original_max_position_embeddings=8, pad_token_id=0,
                          rope_scaling=dict(type="longrope", short_factor=[1.0, 1.5, 2.0],
                                            long_factor=[1.5, 4.0, 9.0])),
    # A layer without experts, and one with a window.
    "qwen2_moe": slim("Qwen2MoeForCausalLM", dict(aux=0.3), model_type="qwen2_moe", num_hidden_layers=3, num_experts=5,
                      num_experts_per_tok=2, moe_intermediate_size=7, shared_expert_intermediate_size=10,
                      mlp_only_layers=[1], use_sliding_window=True, sliding_window=4, max_window_layers=2),
    # One of the documents is shorter than the convolution.
    "qwen3_next": slim("Qwen3NextForCausalLM", dict(aux=0.3), model_type="qwen3_next", num_hidden_layers=3,
                       full_attention_interval=2, head_dim=8, partial_rotary_factor=0.5, rope_theta=1000.0, attention_bias=True,
                       num_experts=5, num_experts_per_tok=2, moe_intermediate_size=7, shared_expert_intermediate_size=10,
                       norm_topk_prob=False, mlp_only_layers=[1], rms_norm_eps=1e-2, **delta_net(7)),
    "qwen3_5": slim("Qwen3_5ForCausalLM", dict(seed=60, lora=["in_proj_qkv", "in_proj_a", "out_proj", "q_proj"]),
                    model_type="qwen3_5_text", num_hidden_layers=3, head_dim=16, tie_word_embeddings=True,
                    full_attention_interval=2, rms_norm_eps=1e-2,
                    rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=0.5,
                                         mrope_interleaved=True, mrope_section=[2, 1, 1]), **delta_net(3)),
    "qwen3_5_moe": slim("Qwen3_5MoeForCausalLM", dict(aux=0.3, seed=63), model_type="qwen3_5_moe_text", num_hidden_layers=3,
                        intermediate_size=ABSENT, head_dim=8,
                        layer_types=["full_attention", "linear_attention", "linear_attention"], num_experts=5, num_experts_per_tok=2,
                        moe_intermediate_size=7, shared_expert_intermediate_size=10, rms_norm_eps=1e-2,
                        **delta_net(4)),
    "qwen3_5_multimodal": slim("Qwen3_5ForConditionalGeneration", dict(lora=["in_proj_z", "o_proj"], num_other_ids=4),
                               model_type="qwen3_5", **QWEN3_5_TOKENS, **whole(
        QWEN3_5_VISION, model_type="qwen3_5_text", head_dim=8, full_attention_interval=2, rms_norm_eps=1e-2,
        **delta_net(4))),
    # As published: the experts of a layer in two tensors.
    "qwen3_5_moe_multimodal": slim("Qwen3_5MoeForConditionalGeneration", dict(num_other_ids=4, joined=True),
                                   model_type="qwen3_5_moe", **QWEN3_5_TOKENS, **whole(
        QWEN3_5_VISION, model_type="qwen3_5_moe_text", intermediate_size=ABSENT, head_dim=8, full_attention_interval=2,
        num_experts=5, num_experts_per_tok=2, moe_intermediate_size=7, shared_expert_intermediate_size=10,
        rms_norm_eps=1e-2, **delta_net(4))),
    "seed_oss": slim("SeedOssForCausalLM", model_type="seed_oss", head_dim=6, pad_token_id=0, attention_out_bias=True, mlp_bias=True),
    "smollm3": slim("SmolLM3ForCausalLM", model_type="smollm3", num_hidden_layers=3, no_rope_layer_interval=2,
                    use_sliding_window=True, sliding_window=4, pad_token_id=0),
    "stablelm": slim("StableLmForCausalLM", model_type="stablelm", hidden_size=32, use_qkv_bias=True),
    "stablelm_parallel": slim("StableLmForCausalLM", model_type="stablelm", hidden_size=32, use_parallel_residual=True,
                              partial_rotary_factor=0.5),
    "stablelm_norms": slim("StableLmForCausalLM", model_type="stablelm", hidden_size=32, qk_layernorm=True, layer_norm_eps=1e-3),
    "starcoder2": slim("Starcoder2ForCausalLM", model_type="starcoder2", sliding_window=5),
}


def randomize(model, generator):
    """Weights large enough that attention is far from uniform and every part shows in the logits."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("norm.weight") or ".ln_" in name and name.endswith("weight"):
                parameter.copy_(1.0 + 0.2 * noise)
            elif parameter.dim() == 1:
                parameter.copy_(0.3 * noise)
            elif "embed_tokens" in name or name.endswith(("wte.weight", "wpe.weight")):
                parameter.copy_(0.8 * noise)
            else:
                is_transposed = ".c_" in name
                parameter.copy_(noise * (1.3 / parameter.shape[0 if is_transposed else 1] ** 0.5))
        for name, buffer in model.named_buffers():
            if name.endswith(("e_score_correction_bias", "expert_bias")):
                buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
            if name.endswith("layer_scalar"):
                buffer.copy_(1.0 + 0.2 * torch.randn(buffer.shape, generator=generator))


def make_documents(vocab_size, generator):
    documents = []
    for index, length in enumerate(DOCUMENT_LENGTHS):
        ids = torch.randint(3, vocab_size, (length,), generator=generator)
        labels = ids.clone()
        if index == 0:
            labels[:5] = IGNORE
            labels[9:11] = IGNORE
        else:
            labels[-1] = IGNORE  # and labels[0] is set, although no position predicts it
        documents.append((ids, labels))
    return documents


def stored_gradients(model):
    """By the names of the files, which hold each expert by itself."""
    gradients = {}
    is_mixtral = model.config.model_type == "mixtral"
    names = ("w1", "w3", "w2") if is_mixtral or model.config.model_type == "lfm2_moe" else ("gate_proj", "up_proj", "down_proj")
    for name, parameter in model.named_parameters():
        if parameter.grad is None:  # of what text does not reach
            continue
        if is_mixtral:
            name = name.replace(".mlp.", ".block_sparse_moe.")
        if model.config.model_type == "llama4":  # files have other names than modules
            name = name.replace("language_model.model.", "model.language_model.").replace("language_model.lm_head", "lm_head")
        if model.config.model_type == "gpt_neox":
            name = name.replace("lm_head", "embed_out")
        if model.config.model_type == "granitemoe":
            for there, stored in (("experts.gate_up_proj", "input_linear.weight"), ("router.weight", "router.layer.weight"),
                                  ("experts.down_proj", "output_linear.weight")):
                name = name.replace(there, stored)
        prefix, _, kind = name.rpartition(".")
        if not prefix.endswith(".experts") or model.config.model_type in ("gemma4_text", "gpt_oss", "llama4", "llama4_text", "mistral4",
                                                                                   "qwen3_5_moe"):
            gradients[name] = parameter.grad
            continue
        for expert, grad in enumerate(parameter.grad):
            parts = dict(zip(names, grad.chunk(2))) if kind == "gate_up_proj" else {names[2]: grad}
            gradients.update({f"{prefix}.{expert}.{part}.weight": value for part, value in parts.items()})
    return gradients


def run(model, documents, aux=None):
    """Logits of each document alone, the summed loss and the gradients of all parameters.

    aux: of the routers' balance over both documents, for each label token.
    """
    model.zero_grad(set_to_none=True)
    model.config._experts_implementation = "eager"  # torch's grouped product takes even sizes alone
    outputs = [model(input_ids=ids[None], use_cache=False, **({"output_router_logits": True} if aux else {}))
               for ids, _ in documents]
    logits = [output.logits[0] for output in outputs]
    loss = sum(label_loss_sum(value, labels) for value, (_, labels) in zip(logits, documents))
    if aux:
        layers = tuple(torch.cat(layer) for layer in zip(*(output.router_logits for output in outputs)))
        balance = sys.modules[type(model).__module__].load_balancing_loss_func(
            layers, model.num_experts, model.num_experts_per_tok)
        loss = loss + aux * sum(num_label_tokens(labels) for _, labels in documents) * balance
    loss.backward()
    logits = [value.detach() for value in logits]
    return logits, loss.detach(), {name: value.clone() for name, value in stored_gradients(model).items()}


def greedy(model, ids):
    """The argmax continuation; refuses a near tie, which another summation order could turn."""
    tokens = ids.tolist()
    with torch.no_grad():
        for _ in range(NUM_GREEDY_TOKENS):
            logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
            top = logits.topk(2)
            assert top.values[0] - top.values[1] > 2e-3, "near tie: choose another seed"
            tokens.append(int(top.indices[0]))
    return torch.tensor(tokens[len(ids):])


def run_float64(folder, model, documents, aux=None, kinds=("eager", "sdpa")):
    state = {name: value.double() for name, value in model.state_dict().items()}
    results = []
    with everything_in_float64(type(model)):
        for attention in kinds:
            config = AutoConfig.from_pretrained(folder)
            wide = model_class(folder).from_config(config, attn_implementation=attention, dtype=torch.float64)
            wide.load_state_dict(state)
            results.append(run(wide.eval(), documents, aux))
    (logits, loss, gradients), (other_logits, other_loss, _) = results[0], results[-1]
    assert abs(loss - other_loss) < 1e-10 * loss, "the float64 run is not in float64 throughout"
    for a, b in zip(logits, other_logits):
        assert (a - b).abs().max() < 1e-11, "the float64 run is not in float64 throughout"
    return logits, loss, gradients


def model_class(folder):
    config = AutoConfig.from_pretrained(folder)
    is_causal = type(config) in AutoModelForCausalLM._model_mapping and not hasattr(config, "vision_config")
    return AutoModelForCausalLM if is_causal else AutoModelForImageTextToText


def make_adapter(folder, layers, base_name, documents, generator):
    """Saves a random adapter beside the model; returns the logits with it."""
    model = model_class(folder).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    config = LoraConfig(r=3, lora_alpha=6, lora_dropout=0.0, bias="none", target_modules=list(layers),
                        fan_in_fan_out=base_name == "gpt2", task_type="CAUSAL_LM")
    adapted = get_peft_model(model, config).eval()
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))
    save_adapter(adapted, os.path.join(folder, "adapter"), base_name)
    with torch.no_grad():
        return [adapted(input_ids=ids[None], use_cache=False).logits[0] for ids, _ in documents]


def quantize_experts(folder, config_json, generator):
    """Puts random MXFP4 blocks in the place of the experts' weights; returns the config.json that says so."""
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, columns, rows = tensors.pop(name).shape
        groups = (experts, rows, columns // 32)
        tensors[name + "_blocks"] = torch.randint(0, 256, (*groups, 16), dtype=torch.uint8, generator=generator)
        tensors[name + "_scales"] = torch.randint(121, 125, groups, dtype=torch.uint8, generator=generator)
    save(tensors, path, format="pt")
    config = json.loads(config_json) | {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": []}}
    return json.dumps(config, indent=2, sort_keys=True) + "\n"


def join_experts(folder):
    """Puts the weights of all experts of a layer into two tensors."""
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    for prefix in sorted({name.split(".experts.")[0] for name in tensors if ".experts." in name}):
        experts = range(sum(f"{prefix}.experts.{i}.up_proj.weight" in tensors for i in range(100)))
        gate, up, down = (torch.stack([tensors.pop(f"{prefix}.experts.{i}.{kind}_proj.weight") for i in experts])
                          for kind in ("gate", "up", "down"))
        tensors[f"{prefix}.experts.gate_up_proj"] = torch.cat([gate, up], 1)
        tensors[f"{prefix}.experts.down_proj"] = down
    save(tensors, path, format="pt")


def make(name, family):
    folder = os.path.join(DATA, "models", name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    config_file = os.path.join(folder, "config.json")
    generator = torch.Generator().manual_seed(family["seed"])
    config_json = json.dumps(family["config"], indent=2, sort_keys=True) + "\n"
    with open(config_file, "w", encoding="utf-8") as file:
        file.write(config_json)

    model = model_class(folder).from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    randomize(model, generator)
    model.to(family.get("store", torch.float32))
    model.save_pretrained(folder, max_shard_size=family.get("shard_size", "1GB"))
    if family.get("joined"):
        join_experts(folder)
    if family.get("mxfp4"):
        config_json = quantize_experts(folder, config_json, generator)
    with open(config_file, "w", encoding="utf-8") as file:
        file.write(config_json)
    os.remove(os.path.join(folder, "generation_config.json"))

    # From here on only what the folder holds counts.
    kind = family.get("kind", "eager")
    model = model_class(folder).from_pretrained(folder, dtype=torch.float32, attn_implementation=kind).eval()
    documents = make_documents(model.config.get_text_config().vocab_size - family.get("num_other_ids", 0), generator)
    logits, loss, gradients = run(model, documents)
    tensors = {"loss_sum": loss, "num_label_tokens": torch.tensor(
        sum(num_label_tokens(labels) for _, labels in documents))}
    for index, (ids, labels) in enumerate(documents):
        tensors[f"ids.{index}"] = ids
        tensors[f"labels.{index}"] = labels
        tensors[f"logits.{index}"] = logits[index]
    # Frequencies that change with the length give other tokens with a KV cache.
    if name != "llama_dynamic" and not family.get("no_greedy"):
        for index, (ids, _) in enumerate(documents):
            tensors[f"greedy.{index}"] = greedy(model, ids)
    if not family.get("slim"):
        tensors.update({f"grad.{key}": value for key, value in gradients.items()})
    if family.get("lora"):
        with_adapter = make_adapter(folder, family["lora"], name, documents, generator)
        tensors.update({f"logits_lora.{index}": value for index, value in enumerate(with_adapter)})

    difference = ""
    if family.get("float64"):
        wide_logits, wide_loss, wide_gradients = run_float64(
            folder, model, documents, kinds=(kind,) if {"eager", "kind"} & family.keys() else ("eager", "sdpa"))
        tensors["loss_sum_f64"] = wide_loss
        tensors.update({f"logits_f64.{index}": value for index, value in enumerate(wide_logits)})
        tensors.update({f"grad_f64.{key}": value for key, value in wide_gradients.items()})
        worst = max(float((a - b).abs().max()) for a, b in zip(logits, wide_logits))
        difference = f", float32 against float64 logits {worst:.1e}"
        assert worst < 1e-4
        if family.get("aux"):
            _, wide_loss, wide_gradients = run_float64(folder, model, documents, family["aux"])
            tensors["aux_coef"] = torch.tensor(family["aux"], dtype=torch.float64)
            tensors["loss_sum_aux_f64"] = wide_loss
            tensors.update({f"grad_aux_f64.{key}": value for key, value in wide_gradients.items()
                            if key.endswith((".gate.weight", "norm.weight"))})
    save(tensors, os.path.join(folder, "reference.safetensors"), format="pt")

    for file in os.listdir(folder):
        if os.path.isfile(os.path.join(folder, file)):
            os.chmod(os.path.join(folder, file), 0o644)
    size = sum(os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder))
    assert size < 300_000, f"{name} takes {size} bytes"
    print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, {size} bytes, "
          f"loss sum {loss.item():.6f}{difference}", flush=True)


def main():
    torch.use_deterministic_algorithms(True)
    names = sys.argv[1:] or list(FAMILIES)
    for name in names:
        make(name, FAMILIES[name])


if __name__ == "__main__":
    main()

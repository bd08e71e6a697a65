"""Attention over several documents in one row, for padding-free batches of Transformers.

Its own way is flash-attn. Where that package is missing, LibTorch has the same kernel (flash attention 2 with lengths)
behind torch.nn.attention.varlen, which is registered here under a name, so that the peer is not held back. Without a
GPU it is scaled_dot_product_attention with a mask of blocks.
"""
import importlib.util

import torch
import transformers

VARLEN = "torch_varlen"


def varlen_forward(module, query, key, value, attention_mask, scaling=None, dropout=0.0, *, cu_seq_lens_q, max_length_q,
                   attend=None, **_):
    """An attention function of Transformers: query [1, heads, tokens, head_dim], keys and values with theirs. `attend`:
    torch's varlen_attn, or another of its signature."""
    if attend is None:
        from torch.nn.attention.varlen import varlen_attn as attend
    # Rotary embeddings are in float32 under autocast; values never saw them.
    q, k, v = (x[0].transpose(0, 1).to(value.dtype) for x in (query, key, value))
    out = attend(q, k, v, cu_seq_lens_q, cu_seq_lens_q, max_length_q, max_length_q, scale=scaling, window_size=(-1, 0))
    return out.unsqueeze(0), None


def no_mask(*_, **__):
    """The lengths say it all."""
    return None


def padding_free(device: str) -> str:
    """The name to give as attn_implementation."""
    if not device.startswith("cuda"):
        return "sdpa"
    if importlib.util.find_spec("flash_attn") is not None:
        return "flash_attention_2"
    transformers.AttentionInterface.register(VARLEN, varlen_forward)
    transformers.AttentionMaskInterface.register(VARLEN, no_mask)
    return VARLEN


def lengths(documents_lengths: list[int], device: str) -> dict:
    """position_ids and the lengths, as TRL's collator with padding_free=True gives them."""
    starts = torch.tensor([0, *documents_lengths]).cumsum(0).to(torch.int32).to(device)
    positions = torch.cat([torch.arange(length) for length in documents_lengths]).unsqueeze(0).to(device)
    longest = max(documents_lengths)
    return {"position_ids": positions, "cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": longest,
            "max_length_k": longest}

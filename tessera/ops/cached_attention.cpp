#include "tessera/ops/cached_attention.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/ops/cache_pages.h"
#include "tessera/ops/cached_blocks.h"
#include "tessera/ops/host.h"
#include "tessera/ops/plain.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using kernels::ComputeType;
using kernels::kPageTokens;

static_assert(kCachePageTokens == kernels::kPageTokens);

constexpr const char* kName = "cached_attention";
// A query's keys are split into parts of this many pages, so that several threads can work on one long
// sequence. The number is a constant, as the split decides the order of the sums.
constexpr int64_t kPartPages = 16;
// Parts that are worked on between two merges; this bounds the scratch memory.
constexpr int64_t kMaxParts = 256;

// A part of the work: some of the pages that one query sees.
struct Part {
  char* const* pages;  // all pages of the query's sequence
  int64_t query;       // the query's row of q
  int64_t first_page, num_pages;
  kernels::IndexRange visible;  // tokens of the sequence that the query sees, in any page
  bool is_alone;                // the query has no other part
  // A part without pages stands for the sinks.
  bool is_sinks() const { return num_pages == 0; }
};

struct Shape : PageShape {
  int64_t heads = 0;
  int64_t group() const { return heads / kv_heads; }
  int64_t width() const { return heads * head_dim; }
};

// The unfinished softmax that the kernel leaves of every part, [parts, heads] and, for `out` and the scaled
// queries `q`, [parts, heads, head_dim].
template <class C>
struct Scratch {
  std::vector<C> maximum, sum, out, q;

  Scratch(size_t parts, const Shape& shape)
      : maximum(parts * static_cast<size_t>(shape.heads)),
        sum(maximum.size()),
        out(parts * static_cast<size_t>(shape.width())),
        q(out.size()) {}
};

template <class T>
class Attention {
 public:
  using C = ComputeType<T>;

  Attention(const at::Tensor& q, const at::Tensor& y, const Shape& shape, bool is_coded, int64_t layer,
            const AttentionFormula& formula)
      : q_(read<T>(q)),
        y_(write<T>(y)),
        shape_(shape),
        is_coded_(is_coded),
        layer_(layer),
        scale_(static_cast<C>(formula.scale)),
        cap_(static_cast<C>(formula.soft_cap)) {
    if (formula.sinks.defined())
      sinks_ = formula.sinks.detach().to(at::CppTypeToScalarType<C>::value).contiguous();
  }

  // Attends for all parts. The parts of one query must follow each other, and none may be left out.
  void run(const std::vector<Part>& parts) {
    Scratch<C> scratch(parts.size(), shape_);
    int64_t pages = 0;
    for (const Part& part : parts) pages += part.num_pages;
    const int64_t items = static_cast<int64_t>(parts.size()) * shape_.kv_heads;
    // The grain is about 16 pages of one group of heads, each of which takes some hundred nanoseconds.
    const int64_t grain =
        std::max<int64_t>(1, 16 * static_cast<int64_t>(parts.size()) / std::max<int64_t>(pages, 1));
    at::parallel_for(0, items, grain, [&](int64_t begin, int64_t end) {
      std::vector<C> decoded(static_cast<size_t>(is_coded_ ? 2 * shape_.block() : 0));
      for (int64_t item = begin; item < end; ++item) {
        attend(parts[static_cast<size_t>(item / shape_.kv_heads)], item / shape_.kv_heads,
               item % shape_.kv_heads, scratch, decoded.data());
      }
    });
    for (size_t first = 0, last = 0; first < parts.size(); first = last) {
      for (last = first; last < parts.size() && parts[last].query == parts[first].query;) ++last;
      if (last - first > 1) {
        merge(parts[first].query, static_cast<int64_t>(first), static_cast<int64_t>(last - first), 0,
              shape_.heads, scratch);
      }
    }
  }

 private:
  // Returns the head of a page in 8 bits as numbers, in the memory `to`.
  PageHead<C> decode(char* page, int64_t kv_head, C* to) const {
    const CodedPageHead coded = shape_.coded_head(page, layer_, kv_head);
    C* const values = to + shape_.block();
    kernels::decode_columns(coded.keys, coded.key_scales, shape_.head_dim, to);
    kernels::decode_rows_of(coded.values, coded.value_scales, kPageTokens, shape_.head_dim, values);
    return {to, values};
  }

  void attend(const Part& part, int64_t index, int64_t kv_head, Scratch<C>& scratch, C* decoded) const {
    const int64_t group = shape_.group(), head_dim = shape_.head_dim;
    const int64_t head = kv_head * group, row = index * shape_.heads + head;
    C* q = scratch.q.data() + row * head_dim;
    C* maximum = scratch.maximum.data() + row;
    if (part.is_sinks()) {
      // One key of each head, whose value of zeros is what `out` holds from the start.
      std::copy_n(read<C>(sinks_) + head, group, maximum);
      std::fill_n(scratch.sum.data() + row, group, C{1});
      return;
    }
    const T* from = q_ + part.query * shape_.width() + head * head_dim;
    for (int64_t i = 0; i < group * head_dim; ++i) q[i] = widened(from[i]) * scale_;
    std::fill(maximum, maximum + group, -std::numeric_limits<C>::infinity());
    for (int64_t page = part.first_page; page < part.first_page + part.num_pages; ++page) {
      const int64_t first = page * kPageTokens;
      const kernels::IndexRange tokens{std::max<int64_t>(0, part.visible.begin - first),
                                       std::min(kPageTokens, part.visible.end - first)};
      const auto add = [&](const auto* keys, const auto* values) {
        kernels::attend_page(q, keys, values, tokens, group, head_dim, cap_, maximum,
                             scratch.sum.data() + row, scratch.out.data() + row * head_dim);
      };
      if (is_coded_) {
        const PageHead<C> own = decode(part.pages[page], kv_head, decoded);
        add(own.keys, own.values);
      } else {
        const PageHead<const T> own = shape_.head<const T>(part.pages[page], layer_, kv_head);
        add(own.keys, own.values);
      }
    }
    if (part.is_alone) merge(part.query, index, 1, head, group, scratch);
  }

  void merge(int64_t query, int64_t index, int64_t parts, int64_t first_head, int64_t heads,
             Scratch<C>& scratch) const {
    const int64_t head_dim = shape_.head_dim;
    for (int64_t head = first_head; head < first_head + heads; ++head) {
      const int64_t row = index * shape_.heads + head;
      kernels::merge_attention(scratch.maximum.data() + row, scratch.sum.data() + row,
                               scratch.out.data() + row * head_dim, parts, shape_.heads, head_dim,
                               scratch.q.data() + row * head_dim,
                               y_ + query * shape_.width() + head * head_dim);
    }
  }

  const T* q_;
  T* y_;
  Shape shape_;
  bool is_coded_;
  int64_t layer_;
  C scale_, cap_;
  at::Tensor sinks_;
};

// Returns the addresses of all pages of every sequence; null for those that have gone back.
std::vector<std::vector<char*>> page_memory(const CachedBatch& batch) {
  std::vector<std::vector<char*>> memory(batch.sequences.size());
  for (size_t i = 0; i < memory.size(); ++i) {
    for (const at::Tensor& page : batch.sequences[i].pages) memory[i].push_back(write<char>(page));
  }
  return memory;
}

// Runs run(parts) for the sequences that have few new tokens.
template <class Run>
void for_all_parts(const CachedBatch& batch, const std::vector<std::vector<char*>>& memory,
                   const AttentionFormula& formula, const Run& run) {
  std::vector<Part> parts;
  for (size_t s = 0; s < memory.size(); ++s) {
    const CachedSequence& sequence = batch.sequences[s];
    if (sequence.added >= kManyNewTokens) continue;
    for (int64_t i = 0; i < sequence.added; ++i) {
      const int64_t past = sequence.length - sequence.added;
      const kernels::IndexRange visible =
          key_band({i, 1, 0, sequence.length, past + i}, formula).keys_seen(1);
      const int64_t first = visible.begin / kPageTokens, end = (visible.end + kPageTokens - 1) / kPageTokens;
      const bool has_sinks = formula.sinks.defined(), is_alone = end - first <= kPartPages && !has_sinks;
      for (int64_t page = first; page < end; page += kPartPages) {
        parts.push_back({memory[s].data(), sequence.first + i, page, std::min(kPartPages, end - page),
                         visible, is_alone});
      }
      if (has_sinks) parts.push_back({memory[s].data(), sequence.first + i, end, 0, visible, is_alone});
      if (static_cast<int64_t>(parts.size()) >= kMaxParts) {
        run(parts);
        parts.clear();
      }
    }
  }
  if (!parts.empty()) run(parts);
}

// Writes a token's key and value of a head into a page.
template <class T>
void write_token(const PageHead<T>& page, int64_t slot, const T* key, const T* value, int64_t head_dim) {
  for (int64_t i = 0; i < head_dim; ++i) page.keys[i * kPageTokens + slot] = key[i];
  std::copy_n(value, head_dim, page.values + slot * head_dim);
}
template <class T>
void write_token(const CodedPageHead& page, int64_t slot, const T* key, const T* value, int64_t head_dim) {
  kernels::encode_token(key, head_dim, page.keys + slot, kPageTokens, page.key_scales + slot);
  kernels::encode_token(value, head_dim, page.values + slot * head_dim, 1, page.value_scales + slot);
}

// Writes k and v, [tokens, kv_heads, head_dim], into the pages from token `past` of the sequence on.
// head_of(page, kv_head) returns where one head lies.
template <class T, class HeadOf>
void write_pages(const CachedSequence& sequence, const T* k, const T* v, const PageShape& shape,
                 const HeadOf& head_of) {
  const int64_t head_dim = shape.head_dim, kv_width = shape.kv_heads * head_dim;
  const int64_t past = sequence.length - sequence.added;
  const int64_t first_page = past / kPageTokens, end_page = (sequence.length - 1) / kPageTokens + 1;
  const auto write_page = [&](int64_t page) {
    const int64_t begin = std::max(past, page * kPageTokens),
                  end = std::min(sequence.length, (page + 1) * kPageTokens);
    for (int64_t token = begin; token < end; ++token) {
      const int64_t row = (sequence.first + token - past) * kv_width;
      for (int64_t head = 0; head < shape.kv_heads; ++head) {
        write_token(head_of(page, head), token - page * kPageTokens, k + row + head * head_dim,
                    v + row + head * head_dim, head_dim);
      }
    }
  };
  at::parallel_for(first_page, end_page, 4, [&](int64_t begin, int64_t end) {
    for (int64_t page = begin; page < end; ++page) write_page(page);
  });
}

// A layer in a page: keys, [kv_heads, head_dim, kPageTokens], and values, [kv_heads, kPageTokens, head_dim];
// for codes also their scales, which can be multiplied with them.
struct PageTensors {
  at::Tensor keys, values, key_scales, value_scales;

  PageTensors(const at::Tensor& page, const CachedBatch& batch, int64_t layer) {
    const int64_t heads = batch.num_kv_heads, count = cache_page_elements(1, heads, batch.head_dim);
    at::Tensor own = page;
    if (batch.dtype == kCodedCache) {
      own = page.narrow(0, coded_page_bytes(layer, heads, batch.head_dim),
                        coded_page_bytes(1, heads, batch.head_dim));
      const at::Tensor scales = own.slice(0, count).view(at::kFloat).view({2, heads, kPageTokens});
      key_scales = scales[0].unsqueeze(1);
      value_scales = scales[1].unsqueeze(2);
      own = own.narrow(0, 0, count);
    } else {
      own = page.narrow(0, layer * count, count);
    }
    const at::Tensor both = own.view({2, heads, batch.head_dim * kPageTokens});
    keys = both[0].view({heads, batch.head_dim, kPageTokens});
    values = both[1].view({heads, kPageTokens, batch.head_dim});
  }

  // Writes x, of the shape of `to` but for the type.
  static void write(const at::Tensor& to, const at::Tensor& scales, const at::Tensor& x, int64_t dim) {
    if (!scales.defined()) {
      to.copy_(x);
      return;
    }
    scales.copy_(x.abs().amax({dim}, /*keepdim=*/true).to(at::kFloat) / 127.0);
    to.copy_(at::where(scales > 0, x / scales, 0.0).nan_to_num(0.0, 0.0, 0.0).round());
  }
  static at::Tensor read(const at::Tensor& from, const at::Tensor& scales, at::ScalarType type) {
    return scales.defined() ? from.to(compute_type(type)).mul_(scales).to(type) : from;
  }
};

}  // namespace

void plain::write_cache(const CachedBatch& batch, int64_t layer, const at::Tensor& k, const at::Tensor& v) {
  for (const CachedSequence& sequence : batch.sequences) {
    const int64_t past = sequence.length - sequence.added;
    for (int64_t token = past; token < sequence.length;) {
      const int64_t page = token / kPageTokens, slot = token % kPageTokens;
      const int64_t count = std::min(kPageTokens - slot, sequence.length - token);
      const PageTensors own(sequence.pages[static_cast<size_t>(page)], batch, layer);
      const int64_t row = sequence.first + token - past;
      const auto part = [&](const at::Tensor& x, int64_t dim) {
        return x.defined() ? x.narrow(dim, slot, count) : x;
      };
      PageTensors::write(part(own.keys, 2), part(own.key_scales, 2),
                         k.narrow(0, row, count).permute({1, 2, 0}), 1);
      PageTensors::write(part(own.values, 1), part(own.value_scales, 1),
                         v.narrow(0, row, count).transpose(0, 1), 2);
      token += count;
    }
  }
}

at::Tensor plain::cached_attention(const at::Tensor& q, const CachedBatch& batch, int64_t layer,
                                   const AttentionFormula& formula) {
  std::vector<at::Tensor> keys, values;
  std::vector<AttentionSpan> spans;
  for (const CachedSequence& sequence : batch.sequences) {
    const auto first_key = static_cast<int64_t>(keys.size()) * kPageTokens;
    int64_t held = sequence.length;  // number of tokens whose pages have not gone back
    for (const at::Tensor& page : sequence.pages) {
      if (!page.defined()) {
        held -= kPageTokens;
        continue;
      }
      const PageTensors own(page, batch, layer);
      keys.push_back(PageTensors::read(own.keys, own.key_scales, q.scalar_type()).permute({2, 0, 1}));
      values.push_back(PageTensors::read(own.values, own.value_scales, q.scalar_type()).transpose(0, 1));
    }
    spans.push_back({sequence.first, sequence.added, first_key, held, held - sequence.added});
  }
  const AttentionResult made = leaves(q).attend_spans(q, at::cat(keys), at::cat(values), spans, formula);
  add_sinks(made, formula);
  return made.out;
}

void host::write_cache(const CachedBatch& batch, int64_t layer, const at::Tensor& k_in,
                       const at::Tensor& v_in) {
  const at::Tensor k = k_in.contiguous(), v = v_in.contiguous();
  const PageShape shape{batch.num_kv_heads, batch.head_dim};
  const std::vector<std::vector<char*>> memory = page_memory(batch);
  dispatch(k.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    for (size_t s = 0; s < memory.size(); ++s) {
      const auto write_all = [&](const auto& head_of) {
        write_pages<T>(batch.sequences[s], read<T>(k), read<T>(v), shape, [&](int64_t page, int64_t head) {
          return head_of(memory[s][static_cast<size_t>(page)], head);
        });
      };
      if (batch.dtype == kCodedCache) {
        write_all([&](char* page, int64_t head) { return shape.coded_head(page, layer, head); });
      } else {
        write_all([&](char* page, int64_t head) { return shape.head<T>(page, layer, head); });
      }
    }
  });
}

at::Tensor host::cached_attention(const at::Tensor& q_in, const CachedBatch& batch, int64_t layer,
                                  const AttentionFormula& formula) {
  const at::Tensor q = q_in.contiguous();
  at::Tensor y = at::empty(q.sizes(), q.options());
  const Shape shape{{batch.num_kv_heads, batch.head_dim}, q.size(1)};
  const std::vector<std::vector<char*>> memory = page_memory(batch);
  attend_in_blocks(q, batch, memory, layer, formula, y);
  dispatch(q.scalar_type(), [&](auto tag) {
    Attention<decltype(tag)> attention(q, y, shape, batch.dtype == kCodedCache, layer, formula);
    for_all_parts(batch, memory, formula, [&](const std::vector<Part>& parts) { attention.run(parts); });
  });
  return y;
}

namespace {

void check_batch(const CachedBatch& batch, const at::Tensor& tokens) {
  check_operands(kName, {&tokens});
  TESSERA_ASSERT(tokens.dim() == 3 && tokens.size(2) == batch.head_dim &&
                     (tokens.scalar_type() == batch.dtype || batch.dtype == kCodedCache),
                 "cached_attention: tokens must be [tokens, heads, head_dim] of the cache's type");
  TESSERA_ASSERT(batch.num_kv_heads > 0 && batch.head_dim > 0 && tokens.size(1) > 0 &&
                     tokens.size(1) % batch.num_kv_heads == 0,
                 "cached_attention: heads must be a multiple of kv_heads");
  int64_t next = 0;
  for (const CachedSequence& s : batch.sequences) {
    TESSERA_ASSERT(s.first == next && s.added > 0 && s.length >= s.added &&
                       static_cast<int64_t>(s.pages.size()) * kPageTokens >= s.length,
                   "cached_attention: a sequence of the batch");
    next += s.added;
  }
  TESSERA_ASSERT(next == tokens.size(0), "cached_attention: the sequences must cover all tokens");
}

}  // namespace

int64_t cache_page_elements(int64_t num_layers, int64_t num_kv_heads, int64_t head_dim) {
  return num_layers * 2 * num_kv_heads * head_dim * kPageTokens;
}

void write_cache(const CachedBatch& batch, int64_t layer, const at::Tensor& k, const at::Tensor& v) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_batch(batch, k);
  check_batch(batch, v);
  TESSERA_ASSERT(k.size(1) == batch.num_kv_heads && v.size(1) == batch.num_kv_heads && layer >= 0,
                 "write_cache: heads or layer");
  leaves(k).write_cache(batch, layer, k, v);
}

at::Tensor cached_attention(const at::Tensor& q, const CachedBatch& batch, int64_t layer,
                            const AttentionFormula& formula) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_batch(batch, q);
  formula.check();
  TESSERA_ASSERT(layer >= 0 && formula.is_causal, "cached_attention: layer, or attention that looks ahead");
  for (const CachedSequence& s : batch.sequences) {
    const kernels::IndexRange seen =
        key_band({s.first, s.added, 0, s.length, s.length - s.added}, formula).keys_seen(s.added);
    TESSERA_ASSERT(std::all_of(s.pages.begin() + seen.begin / kPageTokens,
                               s.pages.begin() + (seen.end + kPageTokens - 1) / kPageTokens,
                               [](const at::Tensor& page) { return page.defined(); }),
                   "cached_attention: a page that a query sees is not there");
  }
  return leaves(q).cached_attention(q, batch, layer, formula);
}

}  // namespace tessera::ops

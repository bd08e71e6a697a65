// The time of a training step, as a sum of terms (performance.md 4.2).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/planner/step_parts.h"

namespace tessera::planner {

enum class Term {
  Products,
  Attention,
  Elementwise,
  Recompute,
  Head,
  Launches,
  Contention,
  Shards,
  Tensor,
  Context,
  Experts,
  Messages,
  Bubble,
  Optimizer,
  Offload,
  Host,
};
inline constexpr size_t kNumTerms = 16;
std::string_view term_name(Term term);
// Says how the term is computed, for people.
std::string_view term_meaning(Term term);

// Seconds of a step of the rank that works most; what hides behind the compute is in no term.
struct StepTime {
  std::array<double, kNumTerms> seconds{};
  double model_flops = 0.0;  // of all ranks: forward and backward, attention without its mask
  double done_flops = 0.0;   // the same with what is computed twice
  double tokens = 0.0;       // of all ranks
  double peak_flops = 0.0;   // of all ranks, per second, in the precision of most products

  double& of(Term term) { return seconds[static_cast<size_t>(term)]; }
  double of(Term term) const { return seconds[static_cast<size_t>(term)]; }
  double total() const;
  double tokens_per_s() const { return tokens / total(); }
  double mfu() const { return model_flops / (total() * peak_flops); }
  double hfu() const { return done_flops / (total() * peak_flops); }
  // The largest term beside the products.
  Term limit() const;
};

// Needs a choice with 1 <= each size that the cluster holds, and a precision that the device has.
StepTime step_time(const ModelWork& work, const Cluster& cluster, const Job& job, const Choice& choice,
                   const Software& software = kTessera, const Fitted& fitted = {});

// Returns the factor by which a pipeline of p ranks lengthens m micro-batches of F + B + W: for GPipe and
// 1F1B (m + p - 1) / m; interleaved with v stages (m + (p - 1) / v) / m; zero bubble (Qi et al., 2024, ZB-H1)
// (m + (p - 1) (F + B - W) / (F + B + W)) / m. Exact for m >= p.
double pipeline_factor(PipelineKind kind, double ranks, double stages_per_rank, double micro_batches,
                       double forward, double input_gradient, double weight_gradient);

}  // namespace tessera::planner

#include "tessera/planner/step_time.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tessera/planner/links.h"

namespace tessera::planner {
namespace {

struct TermText {
  std::string_view name, meaning;
};

constexpr std::array<TermText, kNumTerms> kTexts = {{
    {"products",
     "flops of the blocks' matrix products / (peak x share x d / (d + half)), d the smallest dim"},
    {"attention", "4 x heads x head_dim x pairs, forward and 2.5 times that backward / (peak x share)"},
    {"element-wise",
     "bytes of norms, rotations, nonlinearities, casts and gradient sums / (0.8 x memory rate)"},
    {"recomputation", "the forward of what is not kept, once more"},
    {"head and loss", "three products with the vocabulary, and the passes over the logits"},
    {"kernel starts", "where starting kernels (5 us each) takes longer than running them"},
    {"contention", "3 % of the compute beside which collectives run"},
    {"sharding", "gathers and sums of parameters and gradients that do not hide behind a block's compute"},
    {"tensor parallelism", "10 gathers and scatters of hidden states a block; 14 with recomputed blocks"},
    {"context parallelism", "keys and values around the ring beyond attention's time, or the all-to-alls"},
    {"experts", "four all-to-alls of tokens a block"},
    {"stage messages", "hidden states and their gradients between neighbouring stages"},
    {"pipeline wait",
     "(p - 1) / v micro-batches, or less with zero_bubble, and the unevenness of the stages"},
    {"optimizer", "states, weights and gradients read and written once / (0.8 x memory rate)"},
    {"offload", "states to and from the host or the drive"},
    {"host", "2 ms a step"},
}};

double element_bytes(const Choice& choice) { return choice.precision == Precision::Float32 ? 4.0 : 2.0; }

// Seconds of one block and micro-batch.
struct BlockTime {
  double products = 0.0;  // each of forward, gradient of the input, gradient of the weights
  double weight_products = 0.0;
  double into_mlp = 0.0;  // the part of the forward's products that makes the MLP's hidden state
  double attention = 0.0, attention_backward = 0.0;
  double elementwise = 0.0, elementwise_backward = 0.0, gradient_sums = 0.0;
  double recompute = 0.0;
  double tensor = 0.0, context = 0.0, experts = 0.0;

  double forward() const { return products + attention + elementwise; }
  double input_gradient() const { return products + attention_backward + elementwise_backward + recompute; }
  double weight_gradient() const { return weight_products + gradient_sums; }
  double compute() const { return forward() + input_gradient() + weight_gradient(); }
  double messages() const { return tensor + context + experts; }
};

class StepSum {
 public:
  StepSum(const ModelWork& work, const Cluster& cluster, const Job& job, const Choice& choice,
          const Software& software, const Fitted& fitted)
      : work_(work), cluster_(cluster), job_(job), choice_(choice), software_(software), fitted_(fitted) {}

  StepTime sum();

 private:
  double peak(Precision precision) const { return cluster_.device.tflops(precision) * 1e12; }
  Precision plain() const {
    return choice_.precision == Precision::Fp8 ? Precision::BFloat16 : choice_.precision;
  }
  double product_seconds(double flops, double smallest_dim, Precision precision) const {
    // The rate of the A100, for which half_dim is given: 153 operations a byte.
    constexpr double kBalance = 312.0 / 2.039;
    const double rate = cluster_.device.tflops(precision);
    const double half = fitted_.half_dim * rate / (cluster_.device.memory_gb_s * 1e-3) / kBalance;
    return flops * (smallest_dim + half) / smallest_dim / (rate * 1e12 * cluster_.device.product_share);
  }
  double memory_seconds(double bytes) const {
    return bytes / (cluster_.device.memory_gb_s * 1e9 * kMemoryShare);
  }
  void time_products();
  void time_adapters(const Matrix& matrix);
  void time_elementwise();
  void time_messages();
  double head_seconds() const;
  double shard_seconds(double head) const;
  void add_step_end(StepTime& time) const;

  const ModelWork& work_;
  const Cluster& cluster_;
  const Job& job_;
  const Choice& choice_;
  const Software& software_;
  const Fitted& fitted_;
  const double tp_ = static_cast<double>(choice_.tp);
  // Tokens of a rank's micro-batch.
  const double tokens_ = static_cast<double>(choice_.micro_batch) * static_cast<double>(job_.sequence) /
                         static_cast<double>(choice_.cp);
  const bool trains_base_ = choice_.adapter_rank == 0;
  const double width_ = element_bytes(choice_);
  BlockTime block_;
};

void StepSum::time_products() {
  for (const Matrix& matrix : work_.block) {
    const double in = matrix.cuts_input ? std::max(1.0, matrix.in / tp_) : matrix.in;
    const double out = matrix.cuts_input ? matrix.out : std::max(1.0, matrix.out / tp_);
    const double rows =
        std::max(1.0, tokens_ * matrix.share * (matrix.is_expert ? static_cast<double>(choice_.ep) : 1.0));
    const double flops = 2.0 * tokens_ * matrix.share * matrix.parameters() / tp_;
    const double seconds = product_seconds(flops, std::min({rows, in, out}), choice_.precision);
    block_.products += seconds;
    if (matrix.is_into_mlp) block_.into_mlp += seconds;
    if (trains_base_) block_.weight_products += seconds;
    if (!trains_base_) time_adapters(matrix);
  }
  const double sequence = static_cast<double>(job_.sequence);
  const double attention = work_.pair_flops * tokens_ * sequence / 2.0 / tp_;
  const Device& device = cluster_.device;
  block_.attention =
      attention / (peak(plain()) * (software_.has_flash2 ? device.flash2_share : device.attention_share));
  block_.attention_backward = 2.5 * block_.attention;
}

// A and B of LoRA have one dim of the size of the rank.
void StepSum::time_adapters(const Matrix& matrix) {
  const auto rank = static_cast<double>(choice_.adapter_rank);
  const double flops = 2.0 * tokens_ * matrix.share * rank * (matrix.in + matrix.out) * matrix.count / tp_;
  const double seconds = product_seconds(flops, rank, plain());
  block_.products += seconds;
  block_.weight_products += seconds;
}

void StepSum::time_elementwise() {
  const auto hidden = static_cast<double>(work_.hidden);
  const double query = work_.query_width(), kv = work_.kv_width(), mlp = work_.mlp_width;
  // Elements a token that kernels read and write: two norms with their additions, the rotation of queries and
  // keys, and the nonlinearity.
  const double forward = 8 * hidden + 2 * (query + kv / 2) + (work_.is_gated ? 3 : 2) * mlp;
  const double backward = 8 * hidden + 2 * (query + kv / 2) + (work_.is_gated ? 5 : 3) * mlp;
  const double of_software = software_.traffic * width_ * tokens_ / tp_;
  double bytes = forward * of_software, bytes_backward = backward * of_software;
  const double parameters = work_.block_parameters / tp_;
  if (choice_.precision == Precision::Fp8) {
    // Casts read 2 bytes and write 1, for each operand; those of the backward are also transposed.
    bytes += 3 * (2 * hidden + query + mlp) * tokens_ / tp_ + 3 * parameters;
    bytes_backward += 6 * (2 * hidden + query + kv + 2 * mlp) * tokens_ / tp_ + 3 * parameters;
  }
  if (choice_.base == Base::FourBit) {
    bytes += (0.57 + width_) * parameters;
    bytes_backward += (0.57 + width_) * parameters;
  }
  block_.elementwise = memory_seconds(bytes);
  block_.elementwise_backward = memory_seconds(bytes_backward);
  // A gradient of the products is added to the sum of the step in float32.
  if (trains_base_) block_.gradient_sums = memory_seconds((width_ + 8.0) * parameters);
  switch (choice_.recompute) {
    case Recompute::None: break;
    case Recompute::Mlp: block_.recompute = block_.into_mlp; break;
    case Recompute::Selective: block_.recompute = 0.5 * block_.products + block_.elementwise; break;
    case Recompute::Block: block_.recompute = choice_.recomputed_blocks * block_.forward(); break;
  }
}

void StepSum::time_messages() {
  const Group tensor{choice_.tp, 1}, context{choice_.cp, choice_.tp}, experts{choice_.ep, choice_.tp};
  const double hidden_bytes = tokens_ * static_cast<double>(work_.hidden) * width_;
  const double exchanges =
      10.0 + (choice_.recompute == Recompute::Block ? 4.0 * choice_.recomputed_blocks : 0.0);
  block_.tensor = exchanges * gather_seconds(cluster_, hidden_bytes, tensor) *
                  (job_.async_tensor ? 1.0 - kAsyncHidden : 1.0);
  if (choice_.cp > 1) {
    const auto size = static_cast<double>(choice_.cp);
    if (work_.kv_heads % (choice_.tp * choice_.cp) == 0) {
      const double bytes = tokens_ * (work_.kv_width() + 2 * work_.query_width()) * width_ / tp_;
      block_.context = 2.0 * exchange_seconds(cluster_, bytes, context);
    } else {
      const double kv = tokens_ * work_.kv_width() / tp_;
      const auto beyond = [&](double bytes, double compute) {
        return (size - 1) * std::max(0.0, message_seconds(cluster_, bytes, context) - compute / size);
      };
      block_.context =
          beyond(kv * width_, block_.attention) + beyond(kv * (width_ + 4), block_.attention_backward);
    }
  }
  if (choice_.ep > 1) {
    block_.experts =
        4.0 *
        exchange_seconds(cluster_, hidden_bytes * std::max(1.0, work_.experts_per_token) / tp_, experts);
  }
}

double StepSum::head_seconds() const {
  const auto vocab = static_cast<double>(work_.vocab), hidden = static_cast<double>(work_.hidden);
  const double flops = 2.0 * tokens_ * vocab * hidden / tp_;
  const double product = product_seconds(flops, std::min({tokens_, hidden, vocab / tp_}), plain());
  // Fused: the logits are written, read and replaced by their gradients, which are read. PyTorch's loss also
  // widens them to float32, and keeps probabilities and gradients of that type.
  const double passes = software_.logit_bytes > 0.0 ? 15.0 : 4.0;
  return product * (trains_base_ ? 3.0 : 2.0) + memory_seconds(passes * width_ * tokens_ * vocab / tp_) +
         memory_seconds(6.0 * width_ * tokens_ * hidden / tp_);
}

// Returns the seconds of a step in which gathers and sums of the data-parallel axes do not hide.
double StepSum::shard_seconds(double head) const {
  const Group shards{choice_.shards(), choice_.tp};
  const Group copies{
      choice_.zero == 0 ? choice_.dp_replicate * choice_.dp_shard * choice_.cp : choice_.dp_replicate,
      choice_.zero == 0 ? choice_.tp : choice_.tp * choice_.cp * choice_.dp_shard};
  if (shards.size * copies.size == 1) return 0.0;
  const auto micro_batches = static_cast<double>(choice_.accumulation);
  const double blocks = static_cast<double>(work_.layers) / static_cast<double>(choice_.pp);
  const double base_bytes = choice_.base == Base::FourBit ? 0.57 : width_;
  const double parameters = work_.block_parameters / tp_;
  double trained = parameters;
  if (!trains_base_) {
    trained = 0.0;
    for (const Matrix& matrix : work_.block)
      trained += static_cast<double>(choice_.adapter_rank) * (matrix.in + matrix.out) * matrix.count / tp_;
  }
  // The root: the embedding and the head, on one stage each.
  const double root = trains_base_ ? (work_.embedding_parameters + work_.head_parameters) / tp_ /
                                         static_cast<double>(std::min<int64_t>(2, choice_.pp))
                                   : 0.0;
  const double gradient_bytes = choice_.precision == Precision::Float32 ? 4.0 : software_.gradient_bytes;
  const double gather = gather_seconds(cluster_, base_bytes * parameters, shards);
  const double gather_back =
      choice_.hpz > 1 ? gather_seconds(cluster_, base_bytes * parameters, {choice_.hpz, choice_.tp}) : gather;
  const double scatter = gather_seconds(cluster_, gradient_bytes * trained, shards);
  const auto cut = static_cast<double>(shards.size);
  const double reduce = 2.0 * gather_seconds(cluster_, gradient_bytes * trained / cut, copies);
  const double root_end = gather_seconds(cluster_, gradient_bytes * root, shards) +
                          2.0 * gather_seconds(cluster_, gradient_bytes * root / cut, copies);
  const double root_gather = gather_seconds(cluster_, width_ * root, shards);
  const double forward = block_.forward(), backward = block_.input_gradient() + block_.weight_gradient();
  const auto beyond = [](double message, double compute) { return std::max(0.0, message - compute); };

  double seconds = blocks * beyond(reduce, backward) + reduce;
  switch (choice_.zero) {
    case 0: break;
    case 1:
      seconds +=
          (choice_.adapter_rank == 0 ? blocks * gather : 0.0) + blocks * beyond(scatter, backward) + scatter;
      break;
    case 2:
      seconds += (choice_.adapter_rank == 0 ? blocks * gather : 0.0) +
                 micro_batches * (blocks * beyond(scatter, backward) + scatter);
      break;
    default:
      seconds +=
          micro_batches * (blocks * (beyond(gather, forward) + beyond(gather_back + scatter, backward)) +
                           gather + scatter + beyond(root_gather, forward + head));
  }
  return seconds + beyond(root_end, blocks * backward);
}

// Adds what follows the micro-batches.
void StepSum::add_step_end(StepTime& time) const {
  double trained = work_.parameters();
  if (!trains_base_) {
    trained = 0.0;
    for (const Matrix& matrix : work_.block)
      trained +=
          static_cast<double>(choice_.adapter_rank * work_.layers) * (matrix.in + matrix.out) * matrix.count;
  }
  const double own = trained / tp_ / static_cast<double>(choice_.pp) /
                     static_cast<double>(choice_.zero >= 1 ? choice_.shards() : 1);
  const double weight = choice_.pure_bf16 ? 2.0 : 4.0;
  const double states = job_.state_bytes * own;
  time.of(Term::Optimizer) = memory_seconds(2.0 * states + 4.0 * weight * own);
  if (choice_.offload == Offload::HostStates)
    time.of(Term::Offload) = (states + weight * own) / (cluster_.device.host_gb_s * 1e9);
  if (choice_.offload == Offload::DriveStates) {
    // Reads and writes go through the node's one drive.
    time.of(Term::Offload) =
        2.0 * states * static_cast<double>(cluster_.devices_per_node) / (cluster_.nvme_gb_s * 1e9);
  }
  time.of(Term::Host) = kStepSeconds;
}

StepTime StepSum::sum() {
  time_products();
  time_elementwise();
  time_messages();
  StepTime time;
  const auto micro_batches = static_cast<double>(choice_.accumulation);
  const auto stages = static_cast<double>(choice_.pp);
  const double layers = static_cast<double>(work_.layers);
  const double per_step = micro_batches * layers / stages;
  time.of(Term::Products) = per_step * (2.0 * block_.products + block_.weight_products);
  time.of(Term::Attention) = per_step * (block_.attention + block_.attention_backward);
  time.of(Term::Elementwise) =
      per_step * (block_.elementwise + block_.elementwise_backward + block_.gradient_sums);
  time.of(Term::Recompute) = per_step * block_.recompute;
  time.of(Term::Tensor) = per_step * block_.tensor;
  time.of(Term::Context) = per_step * block_.context;
  time.of(Term::Experts) = per_step * block_.experts;
  const double starts = std::max(0.0, software_.forward_kernels * kLaunchSeconds - block_.forward()) +
                        std::max(0.0, software_.backward_kernels * kLaunchSeconds - block_.input_gradient() -
                                          block_.weight_gradient());
  time.of(Term::Launches) = per_step * starts;
  const double head = head_seconds();
  time.of(Term::Head) = micro_batches * head / stages;
  const bool has_collectives = choice_.dp_replicate * choice_.dp_shard * choice_.cp > 1;
  if (has_collectives) time.of(Term::Contention) = kContention * per_step * block_.compute();
  time.of(Term::Shards) = shard_seconds(head);
  if (choice_.pp > 1) {
    const double of_block = block_.compute() + block_.messages() + starts;
    const double even = (layers * of_block + head) / stages;
    // Blocks of a stage, dealt by work; the last stage has the head and the rest.
    const double blocks = std::ceil(even / of_block - 1e-9);
    const double last = head + std::max(0.0, layers - (stages - 1) * blocks) * of_block;
    const double slowest = std::max(blocks * of_block, last);
    const double factor =
        pipeline_factor(choice_.schedule, stages, static_cast<double>(choice_.stages_per_rank), micro_batches,
                        block_.forward(), block_.input_gradient(), block_.weight_gradient());
    time.of(Term::Bubble) = micro_batches * (slowest * factor - even);
    const Group pipeline{choice_.pp, choice_.ranks() / choice_.pp};
    const double message =
        message_seconds(cluster_, tokens_ * static_cast<double>(work_.hidden) * width_ / tp_, pipeline);
    time.of(Term::Messages) = 2.0 * micro_batches * static_cast<double>(choice_.stages_per_rank) * message;
  }
  add_step_end(time);

  const auto ranks = static_cast<double>(choice_.ranks());
  time.tokens = static_cast<double>(choice_.readers() * choice_.micro_batch * choice_.accumulation) *
                static_cast<double>(job_.sequence);
  const double sequence = static_cast<double>(job_.sequence);
  double per_token = work_.flops_per_token(sequence);
  if (!trains_base_) per_token -= layers * work_.block_flops();
  time.model_flops = time.tokens * per_token;
  double again = 0.0;  // of a token and block
  switch (choice_.recompute) {
    case Recompute::None: break;
    case Recompute::Mlp:
      for (const Matrix& matrix : work_.block) {
        if (matrix.is_into_mlp) again += 2.0 * matrix.parameters() * matrix.share;
      }
      break;
    case Recompute::Selective: again = 0.5 * work_.block_flops(); break;
    case Recompute::Block:
      again = choice_.recomputed_blocks * (work_.block_flops() + work_.pair_flops * sequence);
      break;
  }
  time.done_flops = time.model_flops + time.tokens * layers * again;
  time.peak_flops = ranks * peak(choice_.precision);
  return time;
}

}  // namespace

std::string_view term_name(Term term) { return kTexts[static_cast<size_t>(term)].name; }
std::string_view term_meaning(Term term) { return kTexts[static_cast<size_t>(term)].meaning; }

double StepTime::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

Term StepTime::limit() const {
  return static_cast<Term>(std::max_element(seconds.begin() + 1, seconds.end()) - seconds.begin());
}

double pipeline_factor(PipelineKind kind, double ranks, double stages_per_rank, double micro_batches,
                       double forward, double input_gradient, double weight_gradient) {
  double waits = ranks - 1.0;
  if (kind == PipelineKind::Interleaved) waits /= stages_per_rank;
  if (kind == PipelineKind::ZeroBubble) {
    const double all = forward + input_gradient + weight_gradient;
    waits *= std::max(0.0, forward + input_gradient - weight_gradient) / all;
  }
  return (micro_batches + waits) / micro_batches;
}

StepTime step_time(const ModelWork& work, const Cluster& cluster, const Job& job, const Choice& choice,
                   const Software& software, const Fitted& fitted) {
  return StepSum(work, cluster, job, choice, software, fitted).sum();
}

}  // namespace tessera::planner

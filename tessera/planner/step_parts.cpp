#include "tessera/planner/step_parts.h"

#include <algorithm>

namespace tessera::planner {
namespace {

double element_bytes(const Choice& choice) { return choice.precision == Precision::Float32 ? 4.0 : 2.0; }

class PartsOfStep {
 public:
  PartsOfStep(const ModelWork& work, const Cluster& cluster, const Job& job, const Choice& choice,
              const Software& software, const Fitted& fitted)
      : work_(work), cluster_(cluster), job_(job), choice_(choice), software_(software), fitted_(fitted) {}

  StepParts make();

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
  void find_groups();
  void time_products();
  void time_adapters(const Matrix& matrix);
  void time_elementwise();
  void time_starts();
  void time_messages();
  void time_head();
  void time_shards();
  void time_step_end();
  // Parameters of LoRA in a block.
  double adapter_parameters() const;
  // Bytes of a block, and of the root, in codes.
  double coded_block(double bits, double block) const;
  double coded_root(double root, double bits, double block) const;

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
  StepParts parts_;
  BlockTime& block_ = parts_.block;
};

void PartsOfStep::find_groups() {
  const int64_t ranks = choice_.ranks(), all_shards = choice_.dp_shard * choice_.cp;
  AxisGroups& groups = parts_.groups;
  groups.tensor = {choice_.tp, 1};
  groups.context = {choice_.cp, choice_.tp};
  groups.experts = {choice_.ep, choice_.tp};
  groups.shards = {choice_.shards(), choice_.tp};
  groups.near_shards = choice_.hpz > 1 ? Group{choice_.hpz, choice_.tp} : groups.shards;
  groups.copies = choice_.zero == 0 ? Group{choice_.dp_replicate * all_shards, choice_.tp}
                                    : Group{choice_.dp_replicate, choice_.tp * all_shards};
  groups.pipeline = {choice_.pp, ranks / choice_.pp};
  groups.world = {ranks, 1};
}

void PartsOfStep::time_products() {
  for (const Matrix& matrix : work_.block) {
    const double in = matrix.cuts_input ? std::max(1.0, matrix.in / tp_) : matrix.in;
    const double out = matrix.cuts_input ? matrix.out : std::max(1.0, matrix.out / tp_);
    const double rows =
        std::max(1.0, tokens_ * matrix.share * (matrix.is_expert ? static_cast<double>(choice_.ep) : 1.0));
    const double flops = 2.0 * tokens_ * matrix.share * matrix.parameters() / tp_;
    const double seconds = product_seconds(flops, std::min({rows, in, out}), choice_.precision);
    block_.products += seconds;
    if (matrix.is_into_mlp) block_.into_mlp += seconds;
    if (matrix.cuts_input && matrix.in == work_.mlp_width) block_.out_of_mlp += seconds;
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
void PartsOfStep::time_adapters(const Matrix& matrix) {
  const auto rank = static_cast<double>(choice_.adapter_rank);
  const double flops = 2.0 * tokens_ * matrix.share * rank * (matrix.in + matrix.out) * matrix.count / tp_;
  const double seconds = product_seconds(flops, rank, plain());
  block_.products += seconds;
  block_.weight_products += seconds;
}

void PartsOfStep::time_elementwise() {
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
    // Casts read 2 bytes and write 1, for each operand. Weight gradients need the inputs and the gradients
    // of the outputs transposed, too. Weights, the output of attention and the gradient of values are also
    // read for their largest magnitude, which other kernels find for what they write.
    const double inputs = 2 * hidden + query + mlp, outputs = 2 * hidden + query + kv + 2 * mlp;
    const double transposed = trains_base_ ? inputs + outputs : 0.0;
    bytes += (3 * inputs + 2 * query) * tokens_ / tp_ + 5 * parameters;
    bytes_backward += (3 * (outputs + transposed) + kv) * tokens_ / tp_ + 3 * parameters;
  }
  if (choice_.base == Base::FourBit) {
    bytes += (0.57 + width_) * parameters;
    bytes_backward += (0.57 + width_) * parameters;
  }
  if (choice_.shards() > 1 && trains_base_) {
    // Every rank encodes its part of the parameters and decodes all, and the other way round for gradients.
    if (choice_.codes_weights) {
      bytes += (1.0 + width_) * parameters;
      if (choice_.hpz == 1) bytes_backward += (1.0 + width_) * parameters;
    }
    if (choice_.codes_gradients) bytes_backward += (width_ + 0.5) * parameters;
  }
  block_.elementwise = memory_seconds(bytes);
  block_.elementwise_backward = memory_seconds(bytes_backward);
  // A gradient of the products is added to the sum of the step in float32.
  if (trains_base_) block_.gradient_sums = memory_seconds((width_ + 8.0) * parameters);
  switch (choice_.recompute) {
    case Recompute::None: break;
    case Recompute::Mlp: block_.recompute = block_.into_mlp; break;
    case Recompute::Selective: block_.recompute = 0.5 * block_.products + block_.elementwise; break;
    case Recompute::Block:
      block_.recompute = choice_.recomputed_blocks *
                         (block_.forward() - (software_.recomputes_down ? 0.0 : block_.out_of_mlp));
      break;
  }
}

void PartsOfStep::time_starts() {
  const double start = cluster_.kernel_start_us * 1e-6;
  parts_.forward_starts = std::max(0.0, software_.forward_kernels * start - block_.forward());
  parts_.backward_starts =
      std::max(0.0, software_.backward_kernels * start - block_.input_gradient() - block_.weight_gradient());
}

void PartsOfStep::time_messages() {
  const AxisGroups& groups = parts_.groups;
  const double hidden_bytes = tokens_ * static_cast<double>(work_.hidden) * width_;
  const Transfer whole = gather(cluster_, hidden_bytes, groups.tensor);
  Transfer exchanged = whole.times(job_.async_tensor ? 1.0 - kAsyncHidden : 1.0);
  exchanged.bytes_sent = whole.bytes_sent;  // though a part of them hides
  parts_.tensor_forward = exchanged.times(4.0);
  parts_.tensor_backward =
      exchanged.times(6.0 + (choice_.recompute == Recompute::Block ? 4.0 * choice_.recomputed_blocks : 0.0));
  if (choice_.cp > 1) {
    parts_.is_ring = work_.kv_heads % (choice_.tp * choice_.cp) != 0;
    if (parts_.is_ring) {
      const double kv = tokens_ * work_.kv_width() / tp_;
      const auto rounds = static_cast<double>(choice_.cp - 1);
      parts_.context_forward = message(cluster_, kv * width_, groups.context).times(rounds);
      // Gradients go all the way around, back to the owner of their keys and values.
      const double of_gradients = 4.0 * static_cast<double>(choice_.cp) / rounds;
      parts_.context_backward = message(cluster_, kv * (width_ + of_gradients), groups.context).times(rounds);
    } else {
      const double bytes = tokens_ * (work_.kv_width() + 2 * work_.query_width()) * width_ / tp_;
      parts_.context_forward = parts_.context_backward = exchange(cluster_, bytes, groups.context);
    }
  }
  if (choice_.ep > 1) {
    const double bytes = hidden_bytes * std::max(1.0, work_.experts_per_token) / tp_;
    parts_.expert_exchange = exchange(cluster_, bytes, groups.experts);
  }
  if (choice_.pp > 1) parts_.stage_message = message(cluster_, hidden_bytes / tp_, groups.pipeline);
}

void PartsOfStep::time_head() {
  const auto vocab = static_cast<double>(work_.vocab), hidden = static_cast<double>(work_.hidden);
  const double flops = 2.0 * tokens_ * vocab * hidden / tp_;
  const double product = product_seconds(flops, std::min({tokens_, hidden, vocab / tp_}), plain());
  // Fused: the logits are written, read and replaced by their gradients, which are read. PyTorch's loss also
  // widens them to float32, and keeps probabilities and gradients of that type.
  parts_.head = product * (trains_base_ ? 3.0 : 2.0) +
                memory_seconds(software_.logit_passes * width_ * tokens_ * vocab / tp_) +
                memory_seconds(6.0 * width_ * tokens_ * hidden / tp_);
}

double PartsOfStep::adapter_parameters() const {
  double parameters = 0.0;
  for (const Matrix& matrix : work_.block)
    parameters += static_cast<double>(choice_.adapter_rank) * (matrix.in + matrix.out) * matrix.count;
  return parameters;
}

// Norms and biases, a few thousandths of a block, are sent as they are.
double PartsOfStep::coded_block(double bits, double block) const {
  double bytes = 0.0, matrices = 0.0;
  for (const Matrix& matrix : work_.block) {
    bytes += matrix.coded_bytes(bits, block);
    matrices += matrix.parameters();
  }
  return (bytes + width_ * (work_.block_parameters - matrices)) / tp_;
}

double PartsOfStep::coded_root(double root, double bits, double block) const {
  const auto hidden = static_cast<double>(work_.hidden);
  return Matrix{hidden, root / hidden}.coded_bytes(bits, block);
}

void PartsOfStep::time_shards() {
  const AxisGroups& groups = parts_.groups;
  const double base_bytes = choice_.base == Base::FourBit ? 0.57 : width_;
  const double parameters = work_.block_parameters / tp_;
  const double trained = trains_base_ ? parameters : adapter_parameters() / tp_;
  const double root = trains_base_ ? (work_.embedding_parameters + work_.head_parameters) / tp_ /
                                         static_cast<double>(std::min<int64_t>(2, choice_.pp))
                                   : 0.0;
  const double gradient_bytes = choice_.precision == Precision::Float32 ? 4.0 : software_.gradient_bytes;
  const auto cut = static_cast<double>(groups.shards.size);
  // Blocks of 256 and 128 numbers have a scale each; secondary shards are sent as they are.
  const bool codes_weights = choice_.codes_weights && trains_base_,
             codes_gradients = choice_.codes_gradients && trains_base_;
  const double sent = codes_weights ? coded_block(8, 256) : base_bytes * parameters;
  const double sent_root = codes_weights ? coded_root(root, 8, 256) : width_ * root;
  const double summed = codes_gradients ? coded_block(4, 128) : gradient_bytes * trained;
  const double summed_root = codes_gradients ? coded_root(root, 4, 128) : gradient_bytes * root;
  parts_.gather = gather(cluster_, sent, groups.shards);
  parts_.gather_back =
      choice_.hpz > 1 ? gather(cluster_, base_bytes * parameters, groups.near_shards) : parts_.gather;
  parts_.scatter = gather(cluster_, summed, groups.shards);
  // An all-reduce is a reduce-scatter and an all-gather.
  parts_.reduce = gather(cluster_, gradient_bytes * trained / cut, groups.copies).times(2.0);
  parts_.root_gather = gather(cluster_, sent_root, groups.shards);
  parts_.root_scatter = gather(cluster_, summed_root, groups.shards);
  parts_.root_reduce = gather(cluster_, gradient_bytes * root / cut, groups.copies).times(2.0);
  if (choice_.cuts_each_gradient(software_)) parts_.scatters = static_cast<double>(choice_.accumulation);
  parts_.gathers_updates = (choice_.zero == 1 || choice_.zero == 2) && trains_base_;
  if (choice_.dp_replicate * choice_.dp_shard * choice_.cp > 1) parts_.contention = kContention;
}

void PartsOfStep::time_step_end() {
  const double trained =
      trains_base_ ? work_.parameters() : adapter_parameters() * static_cast<double>(work_.layers);
  const double own = trained / tp_ / static_cast<double>(choice_.pp) /
                     static_cast<double>(choice_.zero >= 1 ? choice_.shards() : 1);
  const double weight = choice_.pure_bf16 ? 2.0 : 4.0;
  const double states = job_.state_bytes * own;
  const double whole = job_.whole_state_bytes * trained / static_cast<double>(choice_.pp);
  parts_.optimizer =
      std::max(memory_seconds(2.0 * (states + whole) + 4.0 * weight * own), job_.update_s * own);
  if (choice_.offload == Offload::HostStates)
    parts_.offload = (states + weight * own) / (cluster_.device.host_gb_s * 1e9);
  if (choice_.offload == Offload::DriveStates) {
    // Reads and writes go through the node's one drive.
    parts_.offload =
        2.0 * states * static_cast<double>(cluster_.devices_per_node) / (cluster_.nvme_gb_s * 1e9);
  }
  parts_.host = kStepSeconds;
}

StepParts PartsOfStep::make() {
  find_groups();
  time_products();
  time_elementwise();
  time_starts();
  time_messages();
  time_head();
  time_shards();
  time_step_end();
  return parts_;
}

}  // namespace

StepParts step_parts(const ModelWork& work, const Cluster& cluster, const Job& job, const Choice& choice,
                     const Software& software, const Fitted& fitted) {
  return PartsOfStep(work, cluster, job, choice, software, fitted).make();
}

}  // namespace tessera::planner

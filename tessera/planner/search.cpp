#include "tessera/planner/search.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tessera::planner {
namespace {

// Returns the divisors of a number up to `most`, in order.
std::vector<int64_t> divisors(int64_t number, int64_t most) {
  std::vector<int64_t> found;
  for (int64_t i = 1; i * i <= number; ++i) {
    if (number % i != 0) continue;
    found.push_back(i);
    if (i * i < number) found.push_back(number / i);
  }
  std::erase_if(found, [most](int64_t divisor) { return divisor > most; });
  std::sort(found.begin(), found.end());
  return found;
}

class Search {
 public:
  Search(const ModelWork& work, const Cluster& cluster, const Job& job, const Choice& kept,
         const Software& software)
      : work_(work), cluster_(cluster), job_(job), kept_(kept), software_(software) {}

  SearchResult run();

 private:
  bool cuts_heads(int64_t tp) const {
    return tp <= work_.heads && (work_.kv_heads % tp == 0 || tp % work_.kv_heads == 0);
  }
  // Each of these sets one part of the choice in every way, and goes on to the next one.
  void choose_data_axes(Choice choice, int64_t ranks);
  void choose_zero(Choice choice);
  void choose_schedule(Choice choice);
  void choose_micro_batch(Choice choice);
  void choose_recompute(Choice choice);
  void judge(const Choice& choice);

  using Key =
      std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, Recompute, Offload, PipelineKind>;
  const ModelWork& work_;
  const Cluster& cluster_;
  const Job& job_;
  const Choice& kept_;
  const Software& software_;
  std::map<Key, Plan> best_;
  SearchResult result_;
};

SearchResult Search::run() {
  const int64_t ranks = cluster_.size();
  constexpr int64_t kLeastTokens = 512;  // of a document on one rank
  Choice choice = kept_;
  for (const int64_t tp : divisors(ranks, cluster_.devices_per_node)) {
    if (!cuts_heads(tp)) continue;
    for (const int64_t pp : divisors(ranks / tp, work_.has_stages ? work_.layers : 1)) {
      for (const int64_t cp : divisors(ranks / tp / pp, std::max<int64_t>(1, job_.sequence / kLeastTokens))) {
        choice.tp = tp;
        choice.pp = pp;
        choice.cp = cp;
        choose_data_axes(choice, ranks / tp / pp / cp);
      }
    }
  }
  for (auto& [key, plan] : best_) result_.plans.push_back(std::move(plan));
  std::stable_sort(result_.plans.begin(), result_.plans.end(),
                   [](const Plan& a, const Plan& b) { return a.time.total() < b.time.total(); });
  if (!result_.plans.empty()) result_.nearest.reset();
  return std::move(result_);
}

void Search::choose_data_axes(Choice choice, int64_t ranks) {
  if (job_.sequences_per_step % ranks != 0) return;
  for (const int64_t copies : divisors(ranks, ranks)) {
    choice.dp_replicate = copies;
    choice.dp_shard = ranks / copies;
    int64_t experts = 1;
    for (const Matrix& matrix : work_.block) {
      if (matrix.is_expert)
        experts = std::max(experts, static_cast<int64_t>(work_.experts_per_token / matrix.share));
    }
    for (const int64_t ep : divisors(choice.dp_shard * choice.cp, experts)) {
      choice.ep = ep;
      choose_zero(choice);
    }
  }
}

void Search::choose_zero(Choice choice) {
  const int64_t shards = choice.dp_shard * choice.cp;
  choice.hpz = 1;
  if (shards == 1) {
    choice.zero = 0;
    return choose_schedule(choice);
  }
  // Stage 0 with more shards than context parallelism's is the same as more copies, and experts that ranks
  // divide are not whole on each.
  for (int64_t zero = choice.dp_shard > 1 || choice.ep > 1 ? 1 : 0; zero <= 3; ++zero) {
    choice.zero = zero;
    choice.hpz = 1;
    choose_schedule(choice);
  }
  const int64_t of_node = cluster_.devices_per_node / choice.tp;
  if (cluster_.nodes > 1 && of_node > 1 && of_node < shards && shards % of_node == 0) {
    choice.hpz = of_node;
    choose_schedule(choice);
  }
}

void Search::choose_schedule(Choice choice) {
  choice.schedule = PipelineKind::OneFOneB;
  choice.stages_per_rank = 1;
  // The gradients of a stage are sums over the micro-batches in flight, which no backward is the last for.
  if (choice.pp > 1 && choice.updates_in_backward) return;
  // Codes are for parameters that ranks share.
  if ((choice.codes_weights || choice.codes_gradients) && choice.shards() == 1) return;
  choose_micro_batch(choice);
  if (choice.pp == 1) return;
  choice.schedule = PipelineKind::ZeroBubble;
  choose_micro_batch(choice);
  choice.schedule = PipelineKind::Interleaved;
  for (const int64_t stages : {2, 4}) {
    if (choice.pp * stages > work_.layers) break;
    choice.stages_per_rank = stages;
    choose_micro_batch(choice);
  }
}

void Search::choose_micro_batch(Choice choice) {
  const int64_t sequences = job_.sequences_per_step / choice.readers();
  // A step of one micro-batch takes them all.
  const int64_t least = choice.updates_in_backward ? sequences : 1;
  for (int64_t size = least; size <= std::min<int64_t>(sequences, 256); size *= 2) {
    if (sequences % size != 0) break;
    choice.micro_batch = size;
    choice.accumulation = sequences / size;
    // A pipeline with fewer micro-batches than stages leaves ranks without work.
    if (choice.pp > 1 && choice.accumulation < choice.pp) break;
    choose_recompute(choice);
  }
}

void Search::choose_recompute(Choice choice) {
  for (const Recompute recompute : {Recompute::None, Recompute::Mlp, Recompute::Block}) {
    choice.recompute = recompute;
    choice.offload = Offload::None;
    judge(choice);
    const auto judge_offload = [&](Offload offload, double room) {
      if (room <= 0.0) return;
      choice.offload = offload;
      judge(choice);
    };
    judge_offload(Offload::HostStates, cluster_.host_memory_gib);
    judge_offload(Offload::DriveStates, cluster_.nvme_gib);
  }
}

void Search::judge(const Choice& choice) {
  ++result_.examined;
  const MemoryUse memory = memory_use(work_, cluster_, job_, choice, software_);
  if (!fits(memory, cluster_)) {
    if (!result_.nearest || memory.device() < result_.nearest->memory.device())
      result_.nearest = Plan{choice, {}, memory};
    return;
  }
  ++result_.fitting;
  const Key key = {choice.tp,          choice.pp,        choice.cp,      choice.ep,      choice.zero,
                   choice.micro_batch, choice.recompute, choice.offload, choice.schedule};
  StepTime time = step_time(work_, cluster_, job_, choice, software_);
  const auto found = best_.find(key);
  if (found == best_.end() || time.total() < found->second.time.total())
    best_.insert_or_assign(key, Plan{choice, time, memory});
}

// Collects changes with which a training fits, each with its fastest plan.
class FittingChanges {
 public:
  FittingChanges(const ModelWork& work, const Software& software) : work_(work), software_(software) {}

  std::vector<Change> found() { return std::move(found_); }

  // Notes the change if a plan fits with it, and returns whether one does.
  bool attempt(const std::string& text, const Cluster& cluster, const Job& job, const Choice& kept) {
    SearchResult result = search(work_, cluster, job, kept, software_);
    if (result.plans.empty()) return false;
    found_.push_back({text, std::move(result.plans.front())});
    return true;
  }

  // Attempts optimizer states on the host, then on a drive, with the least room of which a plan fits.
  void offload(const Cluster& cluster, const Job& job, const Choice& kept) {
    const auto text = [](const char* place, double gib) {
      return std::string("optimizer states on ") + place + std::to_string(static_cast<int>(gib)) +
             " GiB a node";
    };
    Cluster roomy = cluster;
    for (double gib = std::max(64.0, cluster.host_memory_gib * 2); gib <= 4096; gib *= 2) {
      roomy.host_memory_gib = gib;
      if (attempt(text("the host, with ", gib), roomy, job, kept)) break;
    }
    roomy = cluster;
    roomy.nvme_gb_s = std::max(cluster.nvme_gb_s, kUsualDrive);
    for (double gib = std::max(256.0, cluster.nvme_gib * 2); gib <= 65536; gib *= 2) {
      roomy.nvme_gib = gib;
      if (attempt(text("a drive of ", gib), roomy, job, kept)) break;
    }
  }

  void narrow_states(const Cluster& cluster, const Job& job, const Choice& kept) {
    Job narrow = job;
    narrow.state_bytes = 2.1;
    attempt("optimizer: adamw_8bit", cluster, narrow, kept);
    if (kept.pure_bf16 || kept.precision == Precision::Float32) return;
    Choice pure = kept;
    pure.pure_bf16 = true;
    attempt("optimizer: adamw_8bit and pure_bf16: true", cluster, narrow, pure);
  }

  void add_nodes(const Cluster& cluster, const Job& job, const Choice& kept) {
    Cluster larger = cluster;
    if (larger.nodes == 1 && larger.network_gb_s <= 0.0) larger.network_gb_s = kUsualNetwork;
    while (larger.size() < 16384) {
      larger.nodes *= 2;
      Job wider = job;
      // Each rank needs a sequence of its own.
      wider.sequences_per_step = std::max(job.sequences_per_step, larger.size());
      if (attempt(std::to_string(larger.nodes) + " such nodes", larger, wider, kept)) break;
    }
  }

 private:
  const ModelWork& work_;
  const Software& software_;
  std::vector<Change> found_;
};

}  // namespace

SearchResult search(const ModelWork& work, const Cluster& cluster, const Job& job, const Choice& kept,
                    const Software& software) {
  return Search(work, cluster, job, kept, software).run();
}

std::vector<Change> changes_that_fit(const ModelWork& work, const Cluster& cluster, const Job& job,
                                     const Choice& kept, const Software& software) {
  FittingChanges changes(work, software);
  const bool is_full = kept.adapter_rank == 0;
  if (is_full) changes.offload(cluster, job, kept);
  Job shorter = job;
  while (shorter.sequence >= 256) {
    shorter.sequence /= 2;
    if (changes.attempt("sequence_len: " + std::to_string(shorter.sequence), cluster, shorter, kept)) break;
  }
  if (is_full && job.state_bytes > 2.1) changes.narrow_states(cluster, job, kept);
  Choice adapted = kept;
  if (is_full) {
    adapted.adapter_rank = 16;
    changes.attempt("adapter: lora, with lora_r: 16 and lora_target_linear: true", cluster, job, adapted);
  }
  if (kept.base != Base::FourBit) {
    adapted.base = Base::FourBit;
    changes.attempt(
        is_full ? "adapter: qlora, with lora_r: 16 and lora_target_linear: true" : "load_in_4bit: true",
        cluster, job, adapted);
  }
  changes.add_nodes(cluster, job, kept);
  return changes.found();
}

std::string why_not(const Device& device, Precision precision) {
  if (device.tflops(precision) > 0.0 && (precision != Precision::Fp8 || device.bf16_tflops > 0.0)) return "";
  return device.name + " has no products in " + std::string(precision_name(precision));
}

}  // namespace tessera::planner

#include "tessera/planner/published_tables.h"

#include <optional>

#include "tessera/core/strings.h"
#include "tessera/planner/search.h"
#include "tessera/report/axis.h"

namespace tessera::planner {
namespace {

using report::printed;

constexpr double kGib = 0x1p30, kGiga = 1e9;

std::string error_of(double planned, double published) {
  return printed("%+.0f %%", 100.0 * (planned / published - 1.0));
}

Job job_of(int64_t sequence) {
  Job job;
  job.sequence = sequence;
  return job;
}

// Parameters, gradients and states of 7.5 billion parameters, in bytes of a rank.
PublishedTable zero_table() {
  PublishedTable table{
      "zero-7.5b",
      "parameters, gradients and states of 7.5 billion parameters on 64 GPUs, GB of each",
      "Rajbhandari et al., \"ZeRO\", 2020, figure 1 (16-bit weights and gradients, Adam in float32)",
      "Tessera has no 16-bit copy of the gradients and, from stage 1 on, cuts its float32 weights too.",
      {"stage", "published", "by its formula", "Tessera, one micro-batch", "Tessera, accumulating"},
      {}};
  constexpr double kParameters = 7.5e9, kRanks = 64.0;
  const double published[] = {120.0, 31.4, 16.6, 1.9};
  // The paper's factors: 2 + 2 bytes of a parameter and its gradient, K = 12 of the optimizer.
  const double formula[] = {16.0, 4.0 + 12.0 / kRanks, 2.0 + 14.0 / kRanks, 16.0 / kRanks};
  Cluster cluster = load_cluster("8x8xH100");
  cluster.context_gib = 0.0;
  // One block of that many parameters, whose products do not matter here.
  ModelWork work = model_work({75, 4096, 16384, 32, 32, 128, 1, false, true});
  work.block_parameters = kParameters / static_cast<double>(work.layers);
  work.embedding_parameters = 0.0;
  for (int64_t stage = 0; stage < 4; ++stage) {
    std::vector<std::string> row = {std::to_string(stage), printed("%.1f", published[stage]),
                                    printed("%.1f", formula[stage] * kParameters / kGiga)};
    for (const int64_t micro_batches : {1, 2}) {
      Choice choice;
      choice.dp_shard = 64;
      choice.zero = stage;
      choice.accumulation = micro_batches;
      const MemoryUse use = memory_use(work, cluster, job_of(1), choice);
      const double whole_copy = stage < 3 ? use.gathered : 0.0;
      row.push_back(printed("%.1f", (use.weights + use.states + use.gradients + whole_copy) / kGiga));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

PublishedTable nodes_table() {
  PublishedTable table{
      "between-nodes",
      "bits of each of M parameters that the link of a GPU carries to other nodes in a step, on many nodes "
      "of N "
      "GPUs",
      "Zhao et al., \"PyTorch FSDP\", 2023, section 3.2 (full sharding moves 3 M, hybrid sharding 2 M / N); "
      "Wang "
      "et al., \"ZeRO++\", 2023 (a quarter of ZeRO-3)",
      "Weights and gradients have 16 bits. The GPUs of a node gather for each other, so each one's link "
      "carries "
      "an Nth of what a GPU needs. Planned for the blocks of a 70B Llama on 64 nodes of 8 GPUs, with one "
      "micro-batch a step; seconds are those of 50 GB/s a GPU.",
      {"method", "published", "planned", "GB of a GPU", "seconds"},
      {}};
  Cluster cluster = load_cluster("64x8xH100");
  cluster.link_share = 1.0;
  Software software = kTessera;
  software.gradient_bytes = 2.0;
  const ModelWork work = model_work({80, 8192, 28672, 64, 8, 128, 128256});
  Choice replicas, shards, full, hybrid, near, coded;
  replicas.dp_replicate = 512;
  replicas.zero = 0;
  shards.dp_shard = full.dp_shard = near.dp_shard = coded.dp_shard = 512;
  shards.zero = 1;
  hybrid.dp_replicate = 64;
  hybrid.dp_shard = near.hpz = coded.hpz = 8;
  coded.codes_weights = coded.codes_gradients = true;
  struct Row {
    const char* method;
    int published;
    const Choice& choice;
  };
  const Row rows[] = {{"replicas (DDP)", 32, replicas},
                      {"states and gradients in shards (ZeRO-1, ZeRO-2)", 32, shards},
                      {"full sharding (FSDP, ZeRO-3)", 48, full},
                      {"hybrid: shards within a node, replicas across", 32, hybrid},
                      {"ZeRO-3 with secondary shards in a node (hpZ)", 32, near},
                      {"the same with codes (ZeRO++)", 12, coded}};
  const auto gpus = static_cast<double>(cluster.devices_per_node);
  for (const Row& row : rows) {
    const StepParts parts = step_parts(work, cluster, job_of(4096), row.choice, software);
    double seconds = parts.reduce.network_s + parts.scatter.network_s;
    if (row.choice.zero > 0) seconds += parts.gather.network_s;
    if (row.choice.zero == 3) seconds += parts.gather_back.network_s;
    const double bits = 8.0 * seconds * cluster.network_gb_s * kGiga / work.block_parameters * gpus;
    const double all = seconds * static_cast<double>(work.layers);
    table.rows.push_back({row.method, std::to_string(row.published) + " M/N", printed("%.1f M/N", bits),
                          printed("%.1f", all * cluster.network_gb_s), printed("%.2f", all)});
  }
  return table;
}

struct LlamaRow {
  const char* name;
  ModelShape shape;
  double recomputed_blocks;          // as tests/planner/held_out.yaml has them
  double tokens[2], mfu[2], hfu[2];  // on A100, on H100
};

PublishedTable fsdp_table() {
  PublishedTable table{"fsdp-llama",
                       "Llama 2 by FSDP, 4,096 tokens, batch 2: tokens/s of a GPU, MFU and HFU",
                       "README of foundation-model-stack/fms-fsdp, without torch.compile",
                       "The A100 rows of 7B and 70B are among those that the constants are fitted to.",
                       {"model", "GPUs", "tokens/s", "planned", "error", "MFU", "planned", "HFU", "planned"},
                       {}};
  const LlamaRow rows[] = {
      {"7B", {32, 4096, 11008, 32, 32, 128, 32000}, 0.0, {3700, 7500}, {57, 37}, {57, 37}},
      {"13B", {40, 5120, 13824, 40, 40, 128, 32000}, 0.47, {1800, 3800}, {51, 35}, {59, 40}},
      {"34B", {48, 8192, 22016, 64, 8, 128, 32000}, 1.0, {700, 1550}, {47, 32}, {64, 44}},
      {"70B", {80, 8192, 28672, 64, 8, 128, 32000}, 1.0, {370, 800}, {50, 34}, {67, 45}}};
  for (const size_t device : {0u, 1u}) {
    Cluster cluster = load_cluster(device == 0 ? "16x8xA100-80GB" : "12x8xH100");
    cluster.network_gb_s = device == 0 ? 6.25 : 12.5;
    Software software = kEager;
    software.gradient_bytes = 2.0;
    for (const LlamaRow& row : rows) {
      Choice choice;
      choice.dp_shard = cluster.size();
      choice.micro_batch = 2;
      if (row.recomputed_blocks > 0.0) choice.recompute = Recompute::Block;
      choice.recomputed_blocks = row.recomputed_blocks;
      const StepTime time = step_time(model_work(row.shape), cluster, job_of(4096), choice, software);
      const double tokens = time.tokens_per_s() / static_cast<double>(cluster.size());
      table.rows.push_back({row.name, std::to_string(cluster.size()) + " " + cluster.device.name,
                            group_digits(static_cast<int64_t>(row.tokens[device])),
                            group_digits(static_cast<int64_t>(tokens)), error_of(tokens, row.tokens[device]),
                            printed("%.0f %%", row.mfu[device]), printed("%.0f %%", 100.0 * time.mfu()),
                            printed("%.0f %%", row.hfu[device]), printed("%.0f %%", 100.0 * time.hfu())});
    }
  }
  return table;
}

// The largest micro-batch that a device holds, 0 where it holds none.
int64_t largest_batch(const ModelWork& work, const Cluster& cluster, int64_t sequence, Choice choice) {
  int64_t batch = 0;
  while (batch < 4096) {
    choice.micro_batch = batch + 1;
    if (!fits(memory_use(work, cluster, job_of(sequence), choice, kEager), cluster)) break;
    ++batch;
  }
  return batch;
}

PublishedTable titan_table() {
  PublishedTable table{
      "fsdp-titan",
      "GPT-2 on two Titan RTX of 24 GB in float32: the largest batch of a GPU (0: out of memory)",
      "Mangrulkar and Gugger, \"Accelerate Large Model Training using PyTorch FSDP\", 2022",
      "The page does not state a usable length of its rows: it is the one here with which the first row is "
      "met, and the "
      "others are predicted. DDP of that time kept the gradients twice, which the sum does not know, so it "
      "expects "
      "less of FSDP. The page's offload takes parameters and gradients to the host too, the plan's states "
      "alone.",
      {"model", "GPUs", "method", "published", "planned"},
      {}};
  Cluster cluster = load_cluster("2xTitan RTX");
  cluster.host_memory_gib = 256.0;
  const ModelWork large = model_work({36, 1280, 5120, 20, 20, 64, 50257, false, true});
  const ModelWork xl = model_work({48, 1600, 6400, 25, 25, 64, 50257, false, true});
  Choice ddp;
  ddp.precision = Precision::Float32;
  ddp.dp_shard = 2;
  ddp.zero = 0;
  Choice grads = ddp, full = ddp, offloaded = ddp, alone = ddp;
  grads.zero = 2;
  full.zero = offloaded.zero = 3;
  offloaded.offload = Offload::HostStates;
  alone.dp_shard = 1;
  int64_t sequence = 1024;
  while (sequence > 16 && largest_batch(large, cluster, sequence, ddp) < 7) sequence -= 8;
  Cluster one = cluster;
  one.devices_per_node = 1;
  Choice one_offloaded = alone;
  one_offloaded.offload = Offload::HostStates;
  struct Row {
    const char *model, *method;
    const ModelWork& work;
    const Cluster& cluster;
    const Choice& choice;
    int published;
  };
  const Row rows[] = {
      {"Large", "DDP", large, cluster, ddp, 7},
      {"Large", "FSDP, SHARD_GRAD_OP", large, cluster, grads, 11},
      {"Large", "FSDP, FULL_SHARD", large, cluster, full, 15},
      {"Large", "FSDP, FULL_SHARD, offload", large, cluster, offloaded, 22},
      {"XL", "DDP", xl, cluster, ddp, 0},
      {"XL", "one GPU", xl, one, alone, 0},
      {"XL", "FSDP, FULL_SHARD", xl, cluster, full, 5},
      {"XL", "one GPU, offload", xl, one, one_offloaded, 10},
      {"XL", "FSDP, FULL_SHARD, offload", xl, cluster, offloaded, 14},
  };
  for (const Row& row : rows) {
    table.rows.push_back({row.model, std::to_string(row.cluster.size()), row.method,
                          std::to_string(row.published),
                          std::to_string(largest_batch(row.work, row.cluster, sequence, row.choice))});
  }
  table.rows.push_back({"", "", "length that meets the first row", "", std::to_string(sequence)});
  return table;
}

// The memory of a device in the best plan for one sequence of a device and step, and whether there is one.
std::optional<Plan> smallest_plan(const ModelWork& work, const Cluster& cluster, const Choice& kept) {
  Job job = job_of(2048);
  job.sequences_per_step = cluster.size();
  const SearchResult found = search(work, cluster, job, kept);
  return found.plans.empty() ? std::nullopt : std::optional(found.plans.front());
}

PublishedTable falcon_table() {
  PublishedTable table{
      "falcon",
      "finetuning of Falcon-40B and Falcon-180B: the GPUs that were used, and the fewest that a plan needs",
      "Hugging Face's page on Falcon-180B, 2023 (not the least that it needs, but what was tried); Lambda's "
      "on "
      "Falcon-40B, 2023",
      "Nodes of 8 A100 with 80 GB, rows of 2,048 tokens, one of a GPU and step; plans have no offload.",
      {"model", "method", "GPUs that were used", "fits there", "memory of a GPU", "fewest GPUs"},
      {}};
  const ModelWork falcon_180b = model_work({80, 14848, 59392, 232, 8, 64, 65024, false, true});
  const ModelWork falcon_40b = model_work({60, 8192, 32768, 128, 8, 64, 65024, false, true});
  Choice full, lora, qlora;
  lora.adapter_rank = qlora.adapter_rank = 64;
  qlora.base = Base::FourBit;
  struct Row {
    const char *model, *method;
    const ModelWork& work;
    const Choice& kept;
    int64_t devices;
  };
  const Row rows[] = {{"180B", "full", falcon_180b, full, 64},
                      {"180B", "LoRA, ZeRO-3", falcon_180b, lora, 16},
                      {"180B", "QLoRA", falcon_180b, qlora, 2},
                      {"40B", "QLoRA", falcon_40b, qlora, 1}};
  const auto cluster_of = [](int64_t devices) {
    Cluster cluster = load_cluster("2x8xA100-80GB");
    cluster.devices_per_node = std::min<int64_t>(8, devices);
    cluster.nodes = devices / cluster.devices_per_node;
    return cluster;
  };
  for (const Row& row : rows) {
    const auto there = smallest_plan(row.work, cluster_of(row.devices), row.kept);
    int64_t fewest = 1;
    while (fewest < 4096 && !smallest_plan(row.work, cluster_of(fewest), row.kept)) fewest *= 2;
    table.rows.push_back({row.model, row.method, std::to_string(row.devices), there ? "yes" : "no",
                          there ? printed("%.0f GiB", there->memory.device() / kGib) : "-",
                          std::to_string(fewest)});
  }
  return table;
}

PublishedTable qlora_table() {
  PublishedTable table{
      "qlora-65b",
      "finetuning of a 65B LLaMA: memory of one GPU, GB",
      "Dettmers et al., \"QLoRA\", 2023 (16-bit finetuning needs more than 780 GB, QLoRA less than 48)",
      "One row of 512 tokens with recomputed blocks. In 16 bits, weights and gradients take 2 bytes and "
      "Adam's states "
      "8. Tessera trains adapters in float32, with 16 bytes for each of their parameters: at rank 64 they "
      "take 13 GB, "
      "of which the paper keeps part on the host.",
      {"method", "published", "planned"},
      {}};
  const ModelWork work = model_work({80, 8192, 22016, 64, 64, 128, 32000});
  Cluster cluster = load_cluster("1xL40S");
  Choice choice;
  choice.zero = 0;
  choice.recompute = Recompute::Block;
  choice.accumulation = 2;
  choice.pure_bf16 = true;
  table.rows.push_back({"16 bits, all weights", "> 780",
                        printed("%.0f", memory_use(work, cluster, job_of(512), choice).device() / kGiga)});
  choice.pure_bf16 = false;
  choice.base = Base::FourBit;
  for (const int64_t rank : {64, 16}) {
    choice.adapter_rank = rank;
    table.rows.push_back({"QLoRA, rank " + std::to_string(rank), rank == 64 ? "< 48" : "-",
                          printed("%.0f", memory_use(work, cluster, job_of(512), choice).device() / kGiga)});
  }
  return table;
}

}  // namespace

std::vector<PublishedTable> published_tables() {
  return {zero_table(), nodes_table(), fsdp_table(), titan_table(), falcon_table(), qlora_table()};
}

}  // namespace tessera::planner

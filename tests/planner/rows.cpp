#include "tests/planner/rows.h"

#include <cstdio>
#include <map>
#include <memory>

#include "tessera/config/node.h"
#include "tessera/config/scalar.h"
#include "tessera/config/yaml_reader.h"
#include "tessera/planner/memory_use.h"
#include "tessera/planner/step_time.h"

namespace tessera::planner {
namespace {

// layers, hidden, inner, heads, kv_heads, head_dim, vocab, is_gated, is_tied
const std::map<std::string, ModelShape>& shapes() {
  static const std::map<std::string, ModelShape> table = {
      {"gpt2-124m", {12, 768, 3072, 12, 12, 64, 50304, false, true}},
      {"gpt2-350m", {24, 1024, 4096, 16, 16, 64, 50304, false, true}},
      {"gpt2-774m", {36, 1280, 5120, 20, 20, 64, 50304, false, true}},
      {"gpt2-1558m", {48, 1600, 6400, 25, 25, 64, 50304, false, true}},
      {"llama2-7b", {32, 4096, 11008, 32, 32, 128, 32000}},
      {"llama2-13b", {40, 5120, 13824, 40, 40, 128, 32000}},
      {"llama-34b", {48, 8192, 22016, 64, 8, 128, 32000}},
      {"llama2-70b", {80, 8192, 28672, 64, 8, 128, 32000}},
      {"llama3-8b", {32, 4096, 14336, 32, 8, 128, 128256}},
      {"llama3-70b", {80, 8192, 28672, 64, 8, 128, 128256}},
      {"llama3-405b", {126, 16384, 53248, 128, 8, 128, 128256}},
      {"qwen2.5-0.5b", {24, 896, 4864, 14, 2, 64, 151936, true, true}},
      {"qwen2.5-1.5b", {28, 1536, 8960, 12, 2, 128, 151936, true, true}},
      {"qwen2.5-3b", {36, 2048, 11008, 16, 2, 128, 151936, true, true}},
      {"qwen2.5-7b", {28, 3584, 18944, 28, 4, 128, 152064}},
      {"qwen2.5-14b", {48, 5120, 13824, 40, 8, 128, 152064}},
  };
  return table;
}

class RowReader {
 public:
  explicit RowReader(const config::Node& node) : node_(node) {}

  const std::string& text(const std::string& key, const std::string& fallback) {
    const config::Entry* entry = find(key);
    return entry == nullptr ? fallback : entry->value.text;
  }
  double number(const std::string& key, double fallback) {
    const config::Entry* entry = find(key);
    if (entry == nullptr) return fallback;
    const auto value = config::parse_number(entry->value.text);
    if (!value) throw config::config_error("TYPE", "key '" + key + "': not a number", entry->value.place);
    return *value;
  }
  int64_t integer(const std::string& key, int64_t fallback) {
    return static_cast<int64_t>(number(key, static_cast<double>(fallback)));
  }
  bool flag(const std::string& key) { return text(key, "false") == "true"; }
  template <class T>
  T choice(const std::string& key, const std::string& fallback, const std::map<std::string, T>& values) {
    const auto found = values.find(text(key, fallback));
    if (found == values.end())
      throw config::config_error("VALUE", "key '" + key + "': unknown value", node_.place);
    return found->second;
  }
  void check_all_read() const {
    if (seen_ != node_.entries.size())
      throw config::config_error("UNKNOWN-KEY", "the row has a key that is not known", node_.place);
  }

 private:
  const config::Entry* find(const std::string& key) {
    const config::Entry* entry = node_.find(key);
    if (entry != nullptr) ++seen_;
    return entry;
  }
  const config::Node& node_;
  size_t seen_ = 0;
};

Row read_row(const config::Node& node) {
  RowReader reader(node);
  Row row;
  row.name = reader.text("row", "");
  row.work = model_work(reader.choice<ModelShape>("model", "", shapes()));
  const std::string name = reader.text("device", "");
  const Device* device = find_device(name);
  if (device == nullptr) throw config::config_error("VALUE", "unknown device '" + name + "'", node.place);
  row.cluster.device = *device;
  row.cluster.nodes = reader.integer("nodes", 1);
  row.cluster.devices_per_node = reader.integer("devices_per_node", 1);
  row.cluster.network_gb_s = reader.number("network", 0.0);
  row.cluster.host_memory_gib = 1024;
  // The rows state what the allocator had, in which the context is not.
  row.cluster.context_gib = 0.0;
  row.software = reader.choice<Software>("software", "",
                                         {{"eager", kEager},
                                          {"compiled", kCompiled},
                                          {"compiled_loss", kCompiledLoss},
                                          {"kernels", kKernels},
                                          {"tessera", kTessera}});
  row.software.gradient_bytes = reader.number("gradient_bytes", row.software.gradient_bytes);
  Choice& choice = row.choice;
  choice.precision =
      reader.choice<Precision>("precision", "bf16", {{"bf16", Precision::BFloat16}, {"fp8", Precision::Fp8}});
  choice.recompute = reader.choice<Recompute>(
      "recompute", "none",
      {{"none", Recompute::None}, {"selective", Recompute::Selective}, {"block", Recompute::Block}});
  choice.recomputed_blocks = reader.number("recomputed_blocks", 1.0);
  choice.schedule = reader.choice<PipelineKind>(
      "schedule", "1f1b", {{"1f1b", PipelineKind::OneFOneB}, {"interleaved", PipelineKind::Interleaved}});
  choice.stages_per_rank = reader.integer("stages_per_rank", 1);
  choice.offload =
      reader.choice<Offload>("offload", "none", {{"none", Offload::None}, {"host", Offload::HostStates}});
  choice.cp = reader.integer("cp", 1);
  choice.tp = reader.integer("tp", 1);
  choice.pp = reader.integer("pp", 1);
  choice.zero = reader.integer("zero", 3);
  choice.micro_batch = reader.integer("micro_batch", 1);
  choice.accumulation = reader.integer("accumulation", 1);
  choice.adapter_rank = reader.integer("adapter_rank", 0);
  choice.pure_bf16 = reader.flag("pure_bf16");
  choice.dp_shard = row.cluster.size() / (choice.cp * choice.tp * choice.pp);
  row.job.sequence = reader.integer("sequence", 0);
  row.job.sequences_per_step = choice.micro_batch * choice.accumulation * choice.readers();
  row.job.state_bytes = reader.number("state_bytes", 8.0);
  row.job.async_tensor = reader.flag("async_tensor");
  row.tokens_per_s = reader.number("tokens_per_s", 0.0);
  row.memory_gib = reader.number("memory_gib", 0.0);
  row.is_new_device = reader.flag("new_device");
  row.misses_throughput = reader.flag("misses_throughput");
  row.misses_memory = reader.flag("misses_memory");
  reader.check_all_read();
  return row;
}

}  // namespace

std::vector<Row> load_rows(const std::string& path) {
  config::Place file;
  file.file = std::make_shared<const std::string>(path);
  const config::Node root = config::parse_yaml(config::read_config_file(path), file);
  std::vector<Row> rows;
  for (const config::Node& item : root.items) rows.push_back(read_row(item));
  return rows;
}

Prediction predict(const Row& row, const Constants& constants) {
  Cluster cluster = row.cluster;
  Software software = row.software;
  double& share = cluster.device.product_share;
  if (share == kShareA100 && cluster.device.name.starts_with("A100")) share = constants.share_a100;
  if (cluster.device.name.starts_with("H")) share = constants.share_h100;
  if (software.name == kEager.name) {
    software.traffic = constants.eager_traffic;
    software.saved = constants.eager_saved;
  } else if (software.name.starts_with(kCompiled.name)) {
    software.traffic = constants.compiled_traffic;
    software.saved = constants.compiled_saved;
  }
  const StepTime time = step_time(row.work, cluster, row.job, row.choice, software, {constants.half_dim});
  const MemoryUse use = memory_use(row.work, cluster, row.job, row.choice, software);
  return {time.tokens_per_s() / static_cast<double>(row.choice.ranks()), use.device() / 0x1p30};
}

std::string table_line(const Row& row) {
  const Prediction p = predict(row);
  const auto cells = [](const char* format, double measured, double predicted, bool is_missed) {
    char text[96];
    std::snprintf(text, sizeof text, format, measured, predicted, error_percent(predicted, measured));
    return text + std::string(is_missed ? " **missed** |" : " |");
  };
  return "| " + row.name + " | " +
         cells("%.0f | %.0f | %+.0f %%", row.tokens_per_s, p.tokens_per_s, row.misses_throughput) + " " +
         (row.memory_gib > 0
              ? cells("%.1f | %.1f | %+.0f %%", row.memory_gib, p.memory_gib, row.misses_memory)
              : "- | - | - |");
}

double error_percent(double predicted, double measured) { return 100.0 * (predicted / measured - 1.0); }

}  // namespace tessera::planner

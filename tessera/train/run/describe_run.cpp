#include "tessera/train/run/describe_run.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include <ATen/ATen.h>

#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"
#include "tessera/device/device.h"
#include "tessera/device/device_memory.h"
#include "tessera/nn/linear.h"
#include "tessera/train/step/run_schedule.h"

namespace tessera::train {

std::string describe_rows(const data::RowSet& rows) {
  int64_t tokens = 0, labels = 0;
  for (int64_t i = 0; i < rows.size(); ++i) {
    tokens += rows.length(i);
    labels += rows.label_count(i);
  }
  return group_digits(rows.size()) + " rows, " + group_digits(tokens) + " tokens, " + group_digits(labels) +
         " of them trained";
}

void warn_of_dropped(const std::vector<data::DatasetStats>& stats) {
  data::DatasetStats all;
  for (const data::DatasetStats& of_one : stats) all += of_one;
  const int64_t dropped = all.bad_records + all.dropped_long + all.dropped_short + all.dropped_unlabelled;
  if (dropped == 0) return;
  log::warn(std::to_string(dropped) + " records were left out (too long " + std::to_string(all.dropped_long) +
            ", too short " + std::to_string(all.dropped_short) + ", nothing to train " +
            std::to_string(all.dropped_unlabelled) + ", bad " + std::to_string(all.bad_records) +
            "); `tessera data show` gives details");
}

void describe_batch(const config::Recipe& recipe, int64_t dp_size, int64_t samples_per_step) {
  std::string text = "batch: micro_batch_size " + std::to_string(recipe.micro_batch_size) +
                     " x gradient_accumulation_steps " + std::to_string(recipe.gradient_accumulation_steps) +
                     " x dp_size " + std::to_string(dp_size) + " = " + std::to_string(samples_per_step) +
                     " sequences per step";
  if (recipe.lr_scaling != config::LrScaling::None) {
    char rate[64];
    std::snprintf(rate, sizeof rate, "; learning rate %g instead of %g",
                  peak_learning_rate(recipe, samples_per_step), recipe.learning_rate);
    text += rate;
  }
  log::info(text);
}

void describe_model(const TrainedModel& trained, const parallel::DeviceMesh& mesh, double load_seconds) {
  // The elements of a weight in blocks of codes are bytes.
  std::map<std::string, io::BlockForm> forms;
  for (const auto& module : trained.model->named_modules("", /*include_self=*/false)) {
    const auto* const linear = dynamic_cast<const nn::Linear*>(module.value().get());
    if (linear != nullptr && linear->form()) forms.emplace(module.key() + ".weight", *linear->form());
  }
  int64_t total = 0, trainable = 0;
  for (const auto& parameter : trained.sharded->parameters()) {
    const auto form = forms.find(parameter.name);
    const int64_t elements = parameter.layout.numel();
    total += form == forms.end() ? elements : elements / form->second.bytes * form->second.elements;
    if (parameter.requires_grad) trainable += elements;
  }
  const auto& dims = mesh.dims();
  char share[32];
  std::snprintf(share, sizeof share, "%.4g",
                total > 0 ? 100.0 * static_cast<double>(trainable) / static_cast<double>(total) : 0.0);
  if (!forms.empty()) {
    std::map<std::string, int64_t> counts;
    for (const auto& [name, form] : forms) ++counts[io::name_of(form)];
    std::string text;
    for (const auto& [name, count] : counts)
      text += (text.empty() ? "" : ", ") + name + " (" + group_digits(count) +
              (count == 1 ? " layer)" : " layers)");
    log::info("quantised base: " + text);
  }
  log::info("model: " + group_digits(total) + " parameters, " + group_digits(trainable) + " trained (" +
            share + "%); " + std::to_string(mesh.world()->size()) + " rank(s): dp_replicate " +
            std::to_string(dims.dp_replicate) + " x dp_shard " + std::to_string(dims.dp_shard) +
            (dims.cp > 1 ? " x cp " + std::to_string(dims.cp) : "") +
            (dims.tp > 1 ? " x tp " + std::to_string(dims.tp) : "") +
            (dims.pp > 1 ? " x pp " + std::to_string(dims.pp) : "") +
            (dims.ep > 1 ? ", experts over " + std::to_string(dims.ep) : "") + "; loaded in " +
            format_duration(load_seconds));
}

void describe_end(const TrainSummary& summary, double data_wait_s) {
  char share[32];
  std::snprintf(share, sizeof share, "%.2f", 100.0 * data_wait_s / std::max(summary.seconds, 1e-9));
  log::info(group_digits(summary.steps) + " steps done, " + group_digits(summary.tokens) +
            " tokens seen; this run took " + format_duration(summary.seconds) +
            ", of which its steps waited " + share + " % for data");
}

void describe_traffic(const optim::StateTraffic& traffic) {
  const double seconds = std::max(traffic.update_s, 1e-9);
  char rate[96];
  std::snprintf(rate, sizeof rate, "%.0f MB/s; the updates waited %.2f of %.2f s for the drive",
                1e-6 * static_cast<double>(traffic.bytes_read + traffic.bytes_written) / seconds,
                traffic.wait_s, traffic.update_s);
  log::info("optimizer states on the drive: " + format_bytes(traffic.bytes_read) + " read, " +
            format_bytes(traffic.bytes_written) + " written, " + rate);
}

void describe_memory(std::optional<int64_t> expected_bytes, comm::Communicator& world) {
  const bool is_host = world.device().type() == kHost;
  const at::Tensor peak =
      at::tensor({is_host ? peak_rss_bytes() : device_memory(world.device()).peak_bytes}, on_host(at::kLong));
  world.all_reduce(peak, false, {.op = comm::ReduceOp::Max});
  const int64_t bytes = peak.item<int64_t>();
  if (bytes == 0) return;
  log::info("memory: " + format_bytes(bytes) + " of a rank at the peak" +
            (expected_bytes ? ", " + format_bytes(*expected_bytes) + " expected" : ""));
}

}  // namespace tessera::train

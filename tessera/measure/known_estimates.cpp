#include "tessera/measure/known_estimates.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

namespace tessera::measure {
namespace {

constexpr double kBufferFactor = 1.5;

std::string plural(int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string header(const std::string& model, int64_t gpus_per_node, int64_t nodes) {
  return "Estimated memory needed for params, optim states and gradients for a:\nHW: Setup with " +
         plural(nodes, "node") + ", " + plural(gpus_per_node, "GPU") + " per node.\nSW: Model with " + model +
         ".\n  per CPU  |  per GPU |   Options\n";
}

std::string millions(int64_t count) { return std::to_string(count / 1'000'000) + "M"; }

// The sums are whole numbers of bytes, rounded down.
std::string row(double cpu, double gpu, const std::string& options) {
  constexpr double kGiB = 0x1p30;
  const auto whole = [](double bytes) { return static_cast<double>(static_cast<int64_t>(bytes)) / kGiB; };
  char text[64];
  std::snprintf(text, sizeof text, " %7.2fGB | %6.2fGB | ", whole(cpu), whole(gpu));
  return text + options + "\n";
}

double part_of(double bytes, int64_t num) {
  return static_cast<double>(static_cast<int64_t>(bytes / static_cast<double>(num)));
}

// Returns bytes as Accelerate writes them: two digits at most, "413.18 MB".
std::string size_text(double bytes) {
  for (const char* const unit : {"bytes", "KB", "MB", "GB"}) {
    if (bytes < 1024.0) {
      char text[48];
      std::snprintf(text, sizeof text, "%.2f", bytes);
      std::string digits = text;
      // Python prints 216.70 as 216.7 and 432.00 as 432.0.
      if (digits.back() == '0') digits.pop_back();
      return digits + " " + unit;
    }
    bytes /= 1024.0;
  }
  char text[48];
  std::snprintf(text, sizeof text, "%.2f TB", bytes);
  return text;
}

}  // namespace

std::string deepspeed_zero2_table(const ModelCounts& model, int64_t gpus_per_node, int64_t nodes,
                                  Zero2Formula formula) {
  const auto p = static_cast<double>(model.parameters);
  const int64_t gpus = gpus_per_node * nodes;
  const bool is_documented = formula == Zero2Formula::Documented;
  const double without =
      is_documented ? 4.0 * p + part_of(16.0 * p, gpus) : 2.0 * p + part_of(18.0 * p, gpus);
  return header(millions(model.parameters) + " total params", gpus_per_node, nodes) +
         row(p * static_cast<double>(std::max<int64_t>(4 * gpus, 16)) * kBufferFactor, 2.0 * p,
             "offload_optimizer=cpu") +
         row(p * 4.0 * static_cast<double>(gpus_per_node) * kBufferFactor, without, "offload_optimizer=none");
}

std::string deepspeed_zero3_table(const ModelCounts& model, int64_t gpus_per_node, int64_t nodes) {
  const auto p = static_cast<double>(model.parameters),
             layer = 4.0 * static_cast<double>(model.largest_layer);
  const int64_t gpus = gpus_per_node * nodes;
  const double copies = 4.0 * static_cast<double>(gpus_per_node);
  std::string text = header(millions(model.parameters) + " total params, " + millions(model.largest_layer) +
                                " largest layer params",
                            gpus_per_node, nodes);
  // A node holds one part of the states with zero_init; each process begins with the whole model without.
  const auto offloaded = [&](double bytes, bool has_zero_init) {
    const double part = bytes / static_cast<double>(nodes);
    return p * (has_zero_init ? part : std::max(copies, part)) * kBufferFactor;
  };
  for (const bool has_zero_init : {true, false}) {
    text += row(
        offloaded(18.0, has_zero_init), layer,
        std::string("offload_param=cpu , offload_optimizer=cpu , zero_init=") + (has_zero_init ? "1" : "0"));
  }
  for (const bool has_zero_init : {true, false}) {
    text += row(
        offloaded(16.0, has_zero_init), layer + part_of(2.0 * p, gpus),
        std::string("offload_param=none, offload_optimizer=cpu , zero_init=") + (has_zero_init ? "1" : "0"));
  }
  for (const bool has_zero_init : {true, false}) {
    const double whole = has_zero_init ? static_cast<double>(model.largest_layer) : p;
    text += row(
        whole * copies * kBufferFactor, layer + part_of(18.0 * p, gpus),
        std::string("offload_param=none, offload_optimizer=none, zero_init=") + (has_zero_init ? "1" : "0"));
  }
  return text;
}

std::string accelerate_table(const std::string& name, int64_t largest_block_bytes, int64_t model_bytes) {
  struct Type {
    const char* name;
    double share;
    bool trains;
  };
  constexpr std::array<Type, 4> kTypes = {
      {{"float32", 1.0, true}, {"float16", 0.5, true}, {"int8", 0.25, false}, {"int4", 0.125, false}}};
  const auto model = static_cast<double>(model_bytes), block = static_cast<double>(largest_block_bytes);
  std::vector<std::array<std::string, 4>> rows = {
      {"dtype", "Largest Layer", "Total Size", "Training using Adam"}};
  for (const Type& type : kTypes) {
    // In float16 the optimizer's states take twice the model in float32, and that is the most.
    const double training = type.share == 1.0 ? 4.0 * model : 2.0 * model;
    rows.push_back({type.name, size_text(block * type.share), size_text(model * type.share),
                    type.trains ? size_text(training) : "N/A"});
  }
  std::array<size_t, 4> widths{};
  for (const auto& cells : rows) {
    for (size_t c = 0; c < cells.size(); ++c) widths[c] = std::max(widths[c], cells[c].size());
  }
  std::string text = "Memory Usage for loading `" + name + "`\n";
  for (const auto& cells : rows) {
    for (size_t c = 0; c < cells.size(); ++c) {
      const size_t space = widths[c] - cells[c].size();
      text += (c == 0 ? "|" : "") + std::string(1 + space / 2, ' ') + cells[c] +
              std::string(1 + space - space / 2, ' ') + "|";
    }
    text += "\n";
  }
  return text;
}

}  // namespace tessera::measure

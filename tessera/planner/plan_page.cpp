#include "tessera/planner/plan_page.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "tessera/core/html_text.h"
#include "tessera/core/strings.h"
#include "tessera/report/axis.h"
#include "tessera/report/html_page.h"

namespace tessera::planner {
namespace {

using report::Frame;
using report::printed;

constexpr double kGib = 0x1p30;
constexpr int kColors = 10;  // of the page's palette
constexpr size_t kMostPoints = 5000;
constexpr double kWide = 1180.0, kNameWidth = 210.0;

std::string rectangle(double x, double y, double width, double height, int color, const std::string& told) {
  return "<rect class=\"color-" + std::to_string(color % kColors) + "\" fill=\"currentColor\" x=\"" +
         printed("%.2f", x) + "\" y=\"" + printed("%.1f", y) + "\" width=\"" +
         printed("%.2f", std::max(0.3, width)) + "\" height=\"" + printed("%.1f", height) + "\"><title>" +
         html_text(told) + "</title></rect>\n";
}

std::string text_at(double x, double y, const std::string& text, const char* kind = "") {
  return std::string("<text class=\"") + kind + "\" x=\"" + printed("%.1f", x) + "\" y=\"" +
         printed("%.1f", y) + "\">" + html_text(text) + "</text>\n";
}

std::string figure(const std::string& caption, double width, double height, const std::string& svg,
                   const std::map<std::string, int>& legend) {
  std::string keys;
  for (const auto& [name, color] : legend)
    keys +=
        "<span class=\"key color-" + std::to_string(color % kColors) + "\">" + html_text(name) + "</span>";
  return "<figure><figcaption>" + html_text(caption) + "</figcaption>\n<svg viewBox=\"0 0 " +
         printed("%.0f", width) + " " + printed("%.0f", height) + "\" role=\"img\" aria-label=\"" +
         html_text(caption) + "\">\n" + svg + "</svg>\n" +
         (keys.empty() ? "" : "<div class=\"legend\">" + keys + "</div>") + "</figure>\n";
}

std::string memory_figure(const PlanPage& page) {
  constexpr double kRow = 30.0;
  double most = page.device_bytes;
  for (const MemoryBar& bar : page.bars) {
    double sum = 0.0;
    for (const auto& [name, bytes] : bar.kinds) sum += bytes;
    most = std::max(most, sum);
  }
  const auto place = [&](double bytes) { return kNameWidth + bytes / most * (kWide - kNameWidth - 20); };
  std::map<std::string, int> colors;
  std::string svg;
  double y = 6.0;
  for (const MemoryBar& bar : page.bars) {
    svg += text_at(kNameWidth - 10, y + 15, bar.name, "left");
    double begin = 0.0;
    for (const auto& [name, bytes] : bar.kinds) {
      if (bytes <= 0.0) continue;
      const int color = colors.try_emplace(name, static_cast<int>(colors.size())).first->second;
      svg += rectangle(place(begin), y, place(begin + bytes) - place(begin), kRow - 8, color,
                       name + ": " + format_bytes(static_cast<int64_t>(bytes)));
      begin += bytes;
    }
    y += kRow;
  }
  const double limit = place(page.device_bytes);
  svg += "<line class=\"axis\" x1=\"" + printed("%.1f", limit) + "\" y1=\"0\" x2=\"" +
         printed("%.1f", limit) + "\" y2=\"" + printed("%.1f", y) + "\"/>\n";
  svg += text_at(limit - 4, y + 14, format_bytes(static_cast<int64_t>(page.device_bytes)) + " of the device",
                 "left");
  return figure("Memory of a rank at its peak, by kind", kWide, y + 22, svg, colors);
}

std::string candidates_figure(const PlanPage& page) {
  double fastest = 0.0;
  for (const Plan& plan : page.candidates) fastest = std::max(fastest, plan.time.tokens_per_s());
  const Frame frame{.first_step = 0.0,
                    .last_step = page.device_bytes / kGib,
                    .low = 0.0,
                    .high = 1.05 * fastest,
                    .is_log = false};
  std::string svg =
      report::axes(frame, "tokens/s", report::Unit::None, "memory of a device (GiB), by the sum");
  const auto point = [&](size_t i, double radius, int color) {
    const Plan& plan = page.candidates[i];
    const std::string name = i < page.names.size() ? page.names[i] + "\n" : "";
    svg += "<circle class=\"color-" + std::to_string(color) + "\" cx=\"" +
           printed("%.1f", frame.x(plan.memory.device() / kGib)) + "\" cy=\"" +
           printed("%.1f", frame.y(plan.time.tokens_per_s())) + "\" r=\"" + printed("%.1f", radius) +
           "\"><title>" + html_text(name) + group_digits(static_cast<int64_t>(plan.time.tokens_per_s())) +
           " tokens/s, " + format_bytes(static_cast<int64_t>(plan.memory.device())) + "</title></circle>\n";
  };
  for (size_t i = std::min(kMostPoints, page.candidates.size()); i-- > 0;) point(i, 1.4, 7);
  // Numbers stand beside their points, on the side where there is room, and plans that lie close together
  // have theirs one below the other.
  std::vector<std::pair<double, double>> places;
  for (size_t number = 0; number < page.shown.size(); ++number) {
    const size_t i = page.shown[number];
    point(i, 5.0, 1);
    const Plan& plan = page.candidates[i];
    const double x = frame.x(plan.memory.device() / kGib);
    double y = frame.y(plan.time.tokens_per_s()) + 4;
    for (const auto& [other_x, other_y] : places) {
      if (std::abs(other_x - x) < 14 && std::abs(other_y - y) < 12) y = other_y + 12;
    }
    places.emplace_back(x, y);
    const bool is_at_edge = x > frame.x(0.9 * frame.last_step);
    svg += text_at(is_at_edge ? x - 8 : x + 8, y, std::to_string(number + 1), is_at_edge ? "left" : "");
  }
  const size_t count = page.candidates.size();
  std::string caption = "Tokens/s against memory: " + group_digits(static_cast<int64_t>(count)) +
                        (count == 1 ? " plan that fits" : " plans that fit");
  if (count > kMostPoints)
    caption += ", of which the fastest " + group_digits(static_cast<int64_t>(kMostPoints)) + " are drawn";
  return figure(caption, Frame::kWidth, Frame::kHeight, svg, {});
}

// One color for each activity, the same on every page.
int color_of(Activity activity) {
  switch (activity) {
    case Activity::Forward: return 0;
    case Activity::Backward: return 2;
    case Activity::WeightGradient: return 9;
    case Activity::Head: return 5;
    case Activity::Tensor: return 3;
    case Activity::Context: return 6;
    case Activity::Experts: return 8;
    case Activity::Gather: return 1;
    case Activity::Reduce: return 4;
    default: return 7;
  }
}

// Draws a stream. Items of one activity and micro-batch that the eye could not tell apart are drawn as one.
std::string stream_row(const SimulatedStep& step, const RankTrace& trace, Stream stream, double y,
                       double height, std::map<std::string, int>& colors) {
  const Program& program = step.programs[static_cast<size_t>(trace.place)];
  const double scale = (kWide - kNameWidth - 20) / step.seconds;
  std::string svg;
  const Item* before = nullptr;
  double begin = 0.0, end = 0.0;
  const auto draw = [&] {
    if (before == nullptr || end <= begin) return;
    const std::string name(activity_name(before->activity));
    const int color = color_of(before->activity);
    colors[color == 7 ? "messages, norm and optimizer" : name] = color;
    svg += rectangle(
        kNameWidth + begin * scale, y, (end - begin) * scale, height, color,
        name + (before->micro_batch >= 0 ? ", micro-batch " + std::to_string(before->micro_batch) : "") +
            ": " + report::format_number(end - begin, report::Unit::Seconds));
  };
  for (const int32_t number : program.streams[static_cast<size_t>(stream)]) {
    const Item& item = program.items[static_cast<size_t>(number)];
    const Span& span = trace.spans[static_cast<size_t>(number)];
    const bool joins = before != nullptr && before->activity == item.activity &&
                       before->micro_batch == item.micro_batch && (span.begin - end) * scale < 0.7;
    if (!joins) {
      draw();
      before = &item;
      begin = span.begin;
    }
    end = span.end;
  }
  draw();
  return svg;
}

std::string timeline_figure(const PlanPage& page) {
  constexpr size_t kMostRanks = 8;
  constexpr double kRow = 18.0;
  const SimulatedStep& step = page.step;
  std::map<std::string, int> colors;
  std::string svg;
  double y = 4.0;
  for (size_t i = 0; i < std::min(kMostRanks, step.ranks.size()); ++i) {
    const RankTrace& trace = step.ranks[i];
    const Program& program = step.programs[static_cast<size_t>(trace.place)];
    for (size_t s = 0; s < kNumStreams; ++s) {
      if (program.streams[s].empty()) continue;
      const auto stream = static_cast<Stream>(s);
      svg += text_at(
          kNameWidth - 10, y + 11,
          (s == 0 ? "rank " + std::to_string(trace.rank) + ": " : "") + std::string(stream_name(stream)),
          "left");
      svg += stream_row(step, trace, stream, y, kRow - 5, colors);
      y += kRow;
    }
    y += 6.0;
  }
  for (const double tick : report::ticks(0.0, step.seconds, 8)) {
    const double x = kNameWidth + tick / step.seconds * (kWide - kNameWidth - 20);
    svg += text_at(x, y + 12, report::format_number(tick, report::Unit::Seconds), "below");
  }
  return figure("A step of plan 1, simulated: " + report::format_number(step.seconds, report::Unit::Seconds),
                kWide, y + 18, svg, colors);
}

}  // namespace

std::string plan_page(const PlanPage& page) {
  std::string lines;
  for (const std::string& line : page.recipe_lines) lines += html_text(line) + "\n";
  return report::html_page(kPlanPageBegin, page.title,
                           report::html_table(page.table) + memory_figure(page) + "<h2>The step</h2>\n" +
                               timeline_figure(page) + "<h2>The candidates</h2>\n<div class=\"charts\">\n" +
                               candidates_figure(page) +
                               "</div>\n<h2>Lines of plan 1 for the recipe</h2>\n<pre>" + lines + "</pre>\n");
}

}  // namespace tessera::planner

#include "tessera/report/run_marks.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/report/axis.h"

namespace tessera::report {

std::vector<Mark> marks_of(const RunRecord& run) {
  constexpr size_t kMostWarnings = 1000;
  std::vector<Mark> marks;
  double slow_rank = -1;
  const auto warn = [&](const Record& record, const std::string& text) {
    if (marks.size() < kMostWarnings) marks.push_back({record.step, true, text});
  };
  for (const Record& record : run.steps) {
    const auto number = [&](const char* name, double otherwise) {
      const auto found = record.numbers.find(name);
      return found == record.numbers.end() ? otherwise : found->second;
    };
    if (record.missing.contains("loss")) warn(record, "the loss is not finite");
    if (const double skipped = number("skipped_steps", 0); skipped > 0)
      warn(record, format_number(skipped) + (skipped == 1 ? " step" : " steps") + " without an update");
    const double rank = number("straggler/rank", -1);
    if (rank >= 0 && rank != slow_rank)
      warn(record, "rank " + format_number(rank) + " slows the others down");
    slow_rank = rank;
  }
  for (const int64_t step : run.checkpoints) marks.push_back({step, false, "checkpoint"});
  std::ranges::stable_sort(marks, {}, &Mark::step);
  return marks;
}

std::string marks_text(const RunRecord& run) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Mark& mark : marks_of(run)) {
    json.push_back(
        {{"step", mark.step}, {"kind", mark.is_warning ? "warning" : "checkpoint"}, {"text", mark.text}});
  }
  return json.dump();
}

}  // namespace tessera::report

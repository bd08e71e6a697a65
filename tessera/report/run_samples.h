// Reads and shows what a model has made of prompts in the evaluations of a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::report {

// One line of samples.jsonl.
struct SampleRow {
  std::string dataset;  // empty unless there are several
  std::string prompt, expected, generated;
  std::string finish;  // how the generated text ended; "stop" by itself
};
struct SampleStep {
  int64_t step = 0;
  std::vector<SampleRow> rows;
};

// Reads the evaluations of samples.jsonl in the order of the file; none if there is no file. A line that the
// run has begun to write is left out. Throws Error(Data, "SAMPLES") at a line that is no sample, and
// Error(Storage).
std::vector<SampleStep> read_samples(const std::string& path);

// Writes the samples of a run as tables, of which that of the newest evaluation is open, and those of up to
// 19 earlier ones at equal distances can be opened; nothing if there are no samples.
std::string samples_html(const std::string& run, const std::vector<SampleStep>& steps);

}  // namespace tessera::report

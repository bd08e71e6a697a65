// The folders in which runs leave what they tell.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/io/file.h"

namespace tessera::report {

inline constexpr const char* kMetrics = "metrics.jsonl";
inline constexpr const char* kSamples = "samples.jsonl";
inline constexpr const char* kRecipe = "recipe.yaml";
inline constexpr int64_t kMaxRecipe = int64_t{4} << 20;  // bytes
// A run writes into a folder whose name ends so until its result is in place.
inline constexpr const char* kUnfinished = ".tessera-partial";

bool has_metrics(const std::filesystem::path& folder);

// Opens a file of a run for somebody who may see its folder alone. Throws Error(Storage), also for a link.
io::File open_run_file(const std::string& path);

// Gives the output folder of the run that writes into this folder.
std::string output_of(std::string folder);

// Gives the steps of the checkpoints in an output folder up to `last`, ascending. Later ones are of an older
// run, which this one is going to replace. Throws Error(Storage).
std::vector<int64_t> checkpoints_of(const std::string& output, int64_t last);

// Gives the path without a separator at its end.
std::filesystem::path without_end(const std::string& folder);

// Gives the last components of each path, as many as make the names differ.
std::vector<std::string> short_names(const std::vector<std::filesystem::path>& paths);

}  // namespace tessera::report

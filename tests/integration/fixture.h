// The fixture of these tests: a folder with a tiny model, rows and a recipe, and checks of runs in it.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tessera/core/error.h"
#include "tessera/io/checkpoint_folders.h"

#include "tests/testing/run_program.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_model.h"

namespace tessera::testing {

inline std::string read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

// Returns the lines of a metrics.jsonl.
inline std::vector<nlohmann::json> read_metrics(const std::string& folder) {
  std::vector<nlohmann::json> lines;
  for (const std::string& line : ProgramResult::lines(read_text(folder + "/metrics.jsonl"))) {
    lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

inline std::vector<double> read_column(const std::string& folder, const std::string& key) {
  std::vector<double> values;
  for (const auto& line : read_metrics(folder)) values.push_back(line.at(key).get<double>());
  return values;
}

inline std::vector<float> read_f32(const std::string& path, const std::string& name,
                                   std::vector<int64_t>* shape = nullptr) {
  const auto file = io::SafetensorsFile::open(path);
  const io::TensorInfo* info = file.find(name);
  if (info == nullptr || info->dtype != DType::F32)
    throw std::runtime_error("no F32 tensor " + name + " in " + path);
  if (shape != nullptr) *shape = info->shape;
  std::vector<float> values(static_cast<size_t>(info->num_bytes()) / sizeof(float));
  file.read(*info, 0, info->num_bytes(), values.data());
  return values;
}

// Makes this process one of another user, who owns nothing, if it is root's; for RunOptions::prepare.
inline void become_another_user() {
  if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(kCannotPrepare);
}

// A first base for tests whose files must not lie in memory, whatever TMPDIR says (scripts/test.sh).
struct FilesOnADrive {
  FilesOnADrive() { unsetenv("TMPDIR"); }
};

class ProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_tiny_model(model());
    write_text(here / "rows.jsonl", tiny_rows(24));
    write_text(here / "chats.jsonl", tiny_chats(12));
    write_text(here / "recipe.yaml",
               "base_model: model\n"
               "datasets:\n"
               "  - path: rows.jsonl\n"
               "learning_rate: 1e-2\n"
               "lr_scheduler: constant\n"
               "max_steps: 4\n"
               "micro_batch_size: 2\n"
               "output_dir: out\n"
               "overwrite_output_dir: true\n");
  }

  std::string model() const { return here / "model"; }
  std::string out(const std::string& file = "") const {
    return file.empty() ? here / "out" : here / ("out/" + file);
  }

  // Returns the path of a file of a run that has not ended, or has failed.
  std::string partial(const std::string& file = "") const {
    return here / ("out.tessera-partial" + (file.empty() ? "" : "/" + file));
  }

  // Returns the step of the newest checkpoint in `folder`; 0 if there is none.
  int64_t newest(const std::string& folder = "out") const {
    try {
      const auto found = io::list_checkpoints(here / folder);
      return found.empty() ? 0 : found.front().step;
    } catch (const Error&) {
      return 0;  // the folder is just being moved
    }
  }
  // Returns how many steps the run under way has written to its metrics.jsonl.
  size_t num_steps() const { return ProgramResult::lines(read_text(partial("metrics.jsonl"))).size(); }
  // Returns step and loss of each line of metrics.jsonl.
  std::vector<std::pair<int64_t, double>> losses(const std::string& folder) const {
    std::vector<std::pair<int64_t, double>> losses;
    for (const auto& line : read_metrics(folder)) losses.emplace_back(line.at("step"), line.at("loss"));
    return losses;
  }
  static Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // Runs the program inside the folder.
  ProgramResult run(const Words& arguments, RunOptions options = {}) const {
    options.folder = here.path();
    return tessera_program(arguments, options);
  }
  ProgramResult train(const Words& more = {}, const RunOptions& options = {}) const {
    Words arguments = {"train", "recipe.yaml"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, options);
  }
  ProgramResult run_well(const Words& arguments) const {
    ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.told();
    EXPECT_TRUE(result.error_lines().empty()) << result.told();
    return result;
  }
  ProgramResult train_well(const Words& more = {}) const {
    ProgramResult result = train(more);
    EXPECT_EQ(result.exit_code, 0) << result.told();
    EXPECT_TRUE(result.error_lines().empty()) << result.told();
    return result;
  }
  std::vector<float> logits(const std::string& folder, const std::string& adapter = "",
                            const std::string& ids = "1,2,3,200") const {
    const std::string file = here / "logits.safetensors";
    Words arguments = {"debug", "logits", "--model", folder, "--ids", ids, "--out", file};
    if (!adapter.empty()) arguments.insert(arguments.end(), {"--adapter", adapter});
    run_well(arguments);
    return read_f32(file, "logits");
  }

  const TempFolder here;
};

// Expects this exit code, exactly one error line, which has this code and holds these parts, and nothing that
// looks like a crash or like the output of a launcher.
inline void expect_error(const ProgramResult& result, int exit_code, const std::string& code,
                         const Words& parts) {
  EXPECT_EQ(result.exit_code, exit_code) << result.told();
  EXPECT_FALSE(result.has_timed_out) << result.told();
  const Words errors = result.error_lines();
  ASSERT_EQ(errors.size(), 1u) << result.told();
  EXPECT_EQ(errors[0].rfind("tessera: error[" + code, 0), 0u) << "want " << code << "\n" << result.told();
  for (const std::string& part : parts) {
    EXPECT_NE(errors[0].find(part), std::string::npos) << "want '" << part << "'\n" << result.told();
  }
  for (const std::string& line : ProgramResult::lines(result.err)) {
    const bool is_ours = line.rfind("tessera: ", 0) == 0 || line.rfind("step ", 0) == 0;
    EXPECT_TRUE(is_ours) << "a stray line: " << line << "\n" << result.told();
  }
  for (const char* noise : {"MPI_ABORT", "Primary job", "terminate called", "frame #", "Segmentation"}) {
    EXPECT_EQ(result.err.find(noise), std::string::npos) << result.told();
  }
  EXPECT_EQ(result.out.find("error["), std::string::npos) << result.told();
}

}  // namespace tessera::testing

#include "tessera/train/run/requeued_starts.h"

#include <filesystem>
#include <system_error>

#include <nlohmann/json.hpp>

#include "tessera/comm/agreed_work.h"
#include "tessera/core/environment.h"
#include "tessera/core/error.h"
#include "tessera/io/file.h"
#include "tessera/io/json_values.h"
#include "tessera/train/run/beside_output.h"

namespace tessera::train {
namespace {

constexpr int64_t kMostStarts = 3;

std::string file_of(const std::string& output_dir) { return beside_output(output_dir, "requeued"); }

// Returns what the last start has noted; an empty object where there is nothing of use.
nlohmann::json noted_in(const std::string& path) {
  constexpr int64_t kMostBytes = 4096;
  nlohmann::json noted;
  try {
    if (io::exists(path)) noted = nlohmann::json::parse(io::read_file(path, kMostBytes), nullptr, false);
  } catch (const Error&) {
    // A file that cannot be read is as good as none: counting starts anew.
  }
  return noted.is_object() ? noted : nlohmann::json::object();
}

}  // namespace

void count_requeued_start(const std::string& output_dir, int64_t step, comm::Communicator& world) {
  const auto job = environment::get("SLURM_JOB_ID"), restart = environment::get("SLURM_RESTART_COUNT");
  comm::AgreedWork work({&world}, "count the starts of the job");
  work.run_on_first([&] {
    if (!job || !restart || *restart == "0") return;
    const std::string path = file_of(output_dir);
    nlohmann::json own = {{"job", *job}, {"restart", *restart}, {"step", step}, {"starts", 1}};
    const nlohmann::json noted = noted_in(path);
    const auto has_same = [&](const char* key) { return noted.contains(key) && noted[key] == own[key]; };
    const auto starts = noted.contains("starts") ? io::integer_of(noted["starts"]) : std::nullopt;
    if (has_same("job") && has_same("step") && starts)
      own["starts"] = *starts + (has_same("restart") ? 0 : 1);
    if (own["starts"] > kMostStarts) {
      const std::string place = step == 0 ? "the beginning" : "checkpoint-" + std::to_string(step);
      throw Error(ErrorKind::Checkpoint, "CRASH-LOOP",
                  "job " + *job + " was requeued " + *restart + " times, and its last " +
                      std::to_string(kMostStarts) + " starts from " + place +
                      " ended without a newer checkpoint")
          .in(output_dir)
          .hint(
              "give the job more time, or save more often (save_steps); a job that is submitted again "
              "resumes");
    }
    io::make_directories(io::parent_path(path));
    io::write_file_atomic(path, own.dump() + "\n");
  });
  work.finish();
}

void forget_requeued_starts(const std::string& output_dir) {
  std::error_code ignored;
  std::filesystem::remove(file_of(output_dir), ignored);
}

}  // namespace tessera::train

#include "tessera/cli/restarts.h"

#include <exception>
#include <optional>
#include <set>
#include <sys/stat.h>
#include <utility>

#include "tessera/checkpoint/manifest.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/io/checkpoint_folders.h"
#include "tessera/io/file.h"

namespace tessera::cli {
namespace {

// Identifies a checkpoint by the inode and time of its manifest, since a new checkpoint may take the name of
// an old one.
using Made = std::pair<ino_t, int64_t>;

Made made(const std::string& output_dir, const std::string& name) {
  struct stat status = {};
  if (stat(checkpoint::manifest_path(io::join_path(output_dir, name)).c_str(), &status) != 0) return {};
  return {status.st_ino, status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec};
}

// The checkpoints that a restart of this job may go on from. Without auto_resume_from_checkpoints,
// checkpoints that lay in the folder before the job belong to another run.
class OwnCheckpoints {
 public:
  explicit OwnCheckpoints(const config::CheckpointConfig& keys) : output_dir_(keys.output_dir) {
    if (keys.auto_resume_from_checkpoints && keys.resume_from_checkpoint.empty()) return;
    for (const auto& found : io::list_checkpoints(output_dir_)) others_.insert(made(output_dir_, found.name));
  }
  // Returns the name of the newest checkpoint; "" when there is none.
  std::string newest() const {
    for (const auto& found : io::list_checkpoints(output_dir_)) {
      if (!others_.contains(made(output_dir_, found.name))) return found.name;
    }
    return "";
  }

 private:
  const std::string output_dir_;
  std::set<Made> others_;
};

// The end of one start. `error` is the exception that it threw, which nobody has told yet.
struct End {
  JobEnd job;
  std::exception_ptr error;
  std::string text;

  int give() const {
    if (error != nullptr) std::rethrow_exception(error);
    return job.exit_code;
  }
};

End end_of(const std::function<JobEnd()>& start) {
  End end;
  try {
    end.job = start();
    end.text = "the job ended with exit code " + std::to_string(end.job.exit_code);
  } catch (const Error& error) {
    end.error = std::current_exception();
    end.job.exit_code = exit_code(error.kind());
    // The line about a restart must not look like an error, so the error's code and hint are cut off.
    end.text = error.message();
    end.text.resize(std::min(end.text.size(), end.text.find(". hint: ")));
  }
  return end;
}

bool will_come_again(int code) {
  for (const ErrorKind kind :
       {ErrorKind::Config, ErrorKind::Data, ErrorKind::Model, ErrorKind::Checkpoint, ErrorKind::Numerics}) {
    if (code == exit_code(kind)) return true;
  }
  return false;
}

}  // namespace

// [Note: restarts]
// `from` is the checkpoint that the next start goes on from ("" = the beginning), and `starts` counts the
// starts from it. A newer checkpoint after a start is progress: the count begins again, however often the job
// failed before. Without progress, kMostStarts starts end in a CRASH-LOOP, even if restarts are left: a
// checkpoint from which the job always fails would use them up for nothing. Ends that will come again, and
// ends that were asked for, are given at once.
int run_with_restarts(const config::Recipe& recipe, int64_t max_restarts,
                      const std::function<JobEnd(const std::vector<std::string>& more_keys)>& start) {
  if (!recipe.saves_checkpoints()) {
    throw Error(ErrorKind::Config, "RESTARTS", "--max-restarts needs a recipe that saves checkpoints")
        .need("save_steps, saves_per_epoch, save_strategy or save_minutes")
        .hint("a restart resumes from the newest checkpoint");
  }
  const OwnCheckpoints checkpoints(recipe);
  constexpr int64_t kMostStarts = 3;  // starts in a row from one checkpoint
  std::string from = checkpoints.newest();
  for (int64_t restarts = 0, starts = 1;; ++restarts, ++starts) {
    std::vector<std::string> more_keys;
    // The newest checkpoint must win over the one that the recipe names, which only the first start goes on
    // from.
    if (!from.empty()) {
      more_keys.emplace_back("auto_resume_from_checkpoints=true");
      if (!recipe.resume_from_checkpoint.empty()) more_keys.emplace_back("resume_from_checkpoint=null");
    }
    const End end = end_of([&] { return start(more_keys); });
    if (end.job.exit_code == 0 || end.job.was_asked || will_come_again(end.job.exit_code)) return end.give();
    const std::string newest = checkpoints.newest();
    if (newest != from) starts = 0;  // the next start, counted by the loop, is the first from `newest`
    from = newest;
    const std::string place = from.empty() ? "the beginning" : io::join_path(recipe.output_dir, from);
    if (starts >= kMostStarts) {
      throw Error(ErrorKind::Checkpoint, "CRASH-LOOP",
                  std::to_string(starts) + " starts from " + place + " ended without a newer checkpoint")
          .got(end.text)
          .hint(from.empty() ? "" : "to resume from an older checkpoint, move this one away");
    }
    if (restarts >= max_restarts) {
      log::warn("no restart is left of " + std::to_string(max_restarts));
      return end.give();
    }
    log::warn("restart " + std::to_string(restarts + 1) + " of " + std::to_string(max_restarts) + ", from " +
              place + ": " + end.text);
  }
}

}  // namespace tessera::cli

// The folder that a run leaves, put in place as a whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::io {

// What a run reads, and must not overwrite.
struct ResultInput {
  std::string what;  // "the base model"
  std::string path;  // a file or a folder; empty, or not there (unless is_made): not looked at
  // A folder of which all files are read, those of a result below it too.
  bool reads_all = false;
  // The run makes it where it is missing, and leaves it there for the next one.
  bool is_made = false;
};

struct ResultOptions {
  bool overwrites = false;       // take the place of an older result
  std::string how_to_overwrite;  // what the user writes to have that, for the hint of the refusal
  std::vector<ResultInput> inputs;
  // Take the place of what a run has left that had checkpoints there, which this one goes on from.
  bool continues = false;
};

// A result is a commit. All of a run's files are written in a folder beside the final one,
// "<path>.tessera-partial", which takes its place in one step; until then an older result is whole and
// untouched. What a killed run has left is cleared away by the next run into the same folder; a complete
// result that could not be put in place is "<path>.tessera-complete", which no run touches.
//
// Only files that results consist of are ever removed (result_files.h): a folder that holds others is never
// replaced. While it lives, the object holds the lock "<path>.tessera-lock".
class ResultFolder {
 public:
  // Checks the place and locks it. Changes nothing but this: missing parents are made, the lock is laid
  // beside it, and a result that a killed run had moved aside is put back where there is none. Throws
  // Error(Config) where the folder
  //  - "OUTPUT-LOCKED": is in use by another run,
  //  - "OUTPUT-INPUT": is or holds what the run reads, or lies in a folder that it reads whole,
  //  - "OUTPUT-MOUNT": is a mount point,
  //  - "OUTPUT-USED": is not empty and may not be replaced,
  //  - "OUTPUT-FOREIGN": or what is to be cleared away beside it, holds files that are no result's;
  // and Error(Storage) where it cannot be written.
  ResultFolder(const std::string& path, ResultOptions options);
  // Without commit() what was written is removed, except for what keep_unfinished() names.
  ~ResultFolder();
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;

  // Clears away what earlier runs left, and makes the folder to write into; staging() is its path. Checks the
  // place as the constructor did, for what has come there since.
  void begin();
  // Throws Error(Storage, "NO-SPACE") unless there is space for `num_bytes` more of files. For use after
  // begin(), when what earlier runs left takes none any more.
  void require_space(int64_t num_bytes) const;
  const std::string& staging() const { return staging_; }
  // For whoever has to remove the lock of a process that is ended by a signal.
  const std::string& lock_path() const { return lock_path_; }
  // Top-level names that stay in staging() when the run ends without commit(): its logs.
  void keep_unfinished(std::vector<std::string> names) { kept_ = std::move(names); }
  // Everything to disk, and into place. An older result is replaced, and then removed. After an exception the
  // older one is in place, and the new one stays whole in staging(), by now a name that no run clears away
  // and that the error tells.
  // What the folder holds under the names `stays`, such as the run's checkpoints, is a part of the new
  // result.
  void commit(const std::vector<std::string>& stays = {});

 private:
  void lock();
  void put_back();
  void put_stays_back();
  void check_target() const;
  void place();
  bool keep_complete();
  void unlock() noexcept;

  std::string given_, path_, staging_, aside_, lock_path_;
  ResultOptions options_;
  std::vector<std::string> kept_;
  int lock_ = -1;
  bool has_begun_ = false, is_placed_ = false, keeps_all_ = false;
};

}  // namespace tessera::io

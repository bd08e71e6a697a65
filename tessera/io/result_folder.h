// The folder that a run leaves, put in place as a whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/io/run_inputs.h"

namespace tessera::io {

struct ResultOptions {
  bool overwrites = false;       // the new result may take the place of an older one
  std::string how_to_overwrite;  // what the user writes to allow that; the hint of the refusal tells it
  std::vector<ResultInput> inputs;
  // This run goes on from the checkpoints that an earlier run has left in the folder, and may take its place.
  // Other files and folders that lie beside the checkpoints then stay in the new result.
  bool continues = false;
};

// A result appears as a whole. All of a run's files are written in a folder beside the final one,
// "<path>.tessera-partial", which takes its place in one step; until then an older result is whole and
// untouched. What a killed run has left is cleared away by the next run into the same folder; a complete
// result that could not be put in place is "<path>.tessera-complete", which no run touches.
//
// Only files that results consist of are ever removed (result_files.h): a folder that holds others is never
// replaced. While it lives, the object holds the lock "<path>.tessera-lock".
class ResultFolder {
 public:
  // Checks the place and locks it. Changes only this: missing parents are made, the lock file is laid beside
  // the folder, and what a killed run had moved aside is put back: a result if there is none, the names that
  // stay (see commit()), and checkpoints of the folder. Throws Error(Config) if the folder
  //  - "OUTPUT-LOCKED": is in use by another run,
  //  - "OUTPUT-INPUT": is or holds what the run reads, or lies in a folder that it reads whole,
  //  - "OUTPUT-MOUNT": is a mount point,
  //  - "OUTPUT-USED": is not empty and may not be replaced,
  //  - "OUTPUT-FOREIGN": holds files that are no result's, or what is to be cleared away beside it does;
  // and Error(Storage) if it cannot be written.
  ResultFolder(const std::string& path, ResultOptions options);
  // Removes what was written unless commit() was called, except for what keep_unfinished() names, and
  // releases the lock.
  ~ResultFolder();
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;

  // Does the constructor's check (Error "OUTPUT-INPUT") for inputs that are known only now.
  void check_inputs(const std::vector<ResultInput>& inputs) const;
  // Checks the place as the constructor did, for what has come there since. Then clears away what earlier
  // runs left, and makes the folder to write into, whose path is staging().
  void begin();
  // Throws Error(Storage, "NO-SPACE") unless `num_bytes` more bytes of files fit on the disk. Call it after
  // begin(), which frees the space of what earlier runs left.
  void require_space(int64_t num_bytes) const;
  const std::string& staging() const { return staging_; }
  // Path of the lock file, for a signal handler that ends the process and must remove the file first.
  const std::string& lock_path() const { return lock_path_; }
  // Sets the top-level names, those of the logs, that stay in staging() when the run ends without commit().
  void keep_unfinished(std::vector<std::string> names) { kept_ = std::move(names); }
  // Says that the checkpoints that lie at the final place by now are this run's own
  // (ResultOptions::continues).
  void set_continues() { options_.continues = true; }
  // Flushes everything to the disk, and puts it in place. An older result is replaced, and then removed. What
  // the folder at the final place holds under the names `stays`, such as the run's checkpoints, becomes a
  // part of the new result.
  //
  // After an exception the older result is in place, and the new one stays whole beside it, as
  // "<path>.tessera-complete" (or, if even that rename failed, still as "<path>.tessera-partial"); the error
  // tells the name, and no run clears the first one away. Only if the names `stays` could not be moved at the
  // end is the new result in place: the error says so, and the next run moves them.
  void commit(const std::vector<std::string>& stays = {});

 private:
  void lock();
  void put_back();
  void put_stays_back();
  void check_target() const;
  bool keeps_others() const;
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

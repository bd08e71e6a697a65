// Holds the files to which a run adds as it goes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/io/log_file.h"

namespace tessera::train {

// The logs of a run. A file that cannot be written (disk full, folder gone) is reported, once for all of
// them, and never stops the training. A file holds only whole records.
class RunLogs {
 public:
  // `kept` is what a checkpoint kept of the files, by the names they have there (`kept_as`): the files begin
  // with that.
  explicit RunLogs(std::string folder, std::map<std::string, std::string> kept = {})
      : folder_(std::move(folder)), kept_(std::move(kept)) {}

  // Starts `folder`/`name`, which checkpoints keep as `kept_as`, with what a checkpoint kept of it, if
  // anything. The folder in which it lies is made. The file belongs to this object. Throws Error(Storage).
  io::LogFile& open(const std::string& name, const std::string& kept_as);
  // Appends a record to a file of open().
  void append(io::LogFile& file, std::string_view record);
  // Writes `folder`/`name` as a whole, which checkpoints do not keep. Returns false where it cannot be
  // written, which is reported as for append().
  bool write(const std::string& name, std::string_view bytes);
  // Returns the name, of those that a checkpoint kept, which begins with `prefix`; empty for none.
  std::string kept_name(const std::string& prefix) const;
  // Returns what a checkpoint kept under `name`; "" for nothing.
  std::string kept(const std::string& name) const;
  // Writes all files again where somebody has removed one, and returns whether that was so. For the end of a
  // run: records that are written afterwards do not reach them. Throws Error(Storage).
  bool put_back();
  // Returns what a checkpoint keeps: names and bytes. Throws Error(Storage).
  std::vector<std::pair<std::string, std::string>> contents() const;

 private:
  void warn(const std::string& path);

  std::string folder_;
  std::map<std::string, std::string> kept_;
  std::vector<std::unique_ptr<io::LogFile>> files_;
  std::vector<std::string> kept_as_;  // name of each file in checkpoints
  bool has_warned_ = false;
};

}  // namespace tessera::train

// The files to which a run adds as it goes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/io/log_file.h"

namespace tessera::train {

// One that cannot be written (disk full, folder gone) is reported, once for all of them, and never stops the
// training; it holds whole records alone.
class RunLogs {
 public:
  explicit RunLogs(std::string folder) : folder_(std::move(folder)) {}

  // Starts `folder`/`name` anew; the folder it lies in is made. The file is this object's. Throws
  // Error(Storage).
  io::LogFile& open(const std::string& name);
  void append(io::LogFile& file, std::string_view record);
  // Writes all files again where somebody has removed one, and says whether. For the end of a run: what is
  // written afterwards does not reach them. Throws Error(Storage).
  bool put_back();

 private:
  std::string folder_;
  std::vector<std::unique_ptr<io::LogFile>> files_;
  bool has_warned_ = false;
};

}  // namespace tessera::train

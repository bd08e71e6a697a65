// The files to which a run adds as it goes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/io/log_file.h"

namespace tessera::train {

// One that cannot be written (disk full, folder gone) is reported, once for all of them, and never stops the
// training; it holds whole records alone.
class RunLogs {
 public:
  // `kept`: what checkpoints keep of the files, by the names they have there; they begin with that.
  explicit RunLogs(std::string folder, std::map<std::string, std::string> kept = {})
      : folder_(std::move(folder)), kept_(std::move(kept)) {}

  // Starts `folder`/`name` anew, which checkpoints keep as `kept_as`; the folder it lies in is made. The file
  // is this object's. Throws Error(Storage).
  io::LogFile& open(const std::string& name, const std::string& kept_as);
  void append(io::LogFile& file, std::string_view record);
  // The name that begins so of what a checkpoint kept; empty for none.
  std::string kept_name(const std::string& prefix) const;
  // Writes all files again where somebody has removed one, and says whether. For the end of a run: what is
  // written afterwards does not reach them. Throws Error(Storage).
  bool put_back();
  // What a checkpoint keeps: names and bytes. Throws Error(Storage).
  std::vector<std::pair<std::string, std::string>> contents() const;

 private:
  std::string folder_;
  std::map<std::string, std::string> kept_;
  std::vector<std::unique_ptr<io::LogFile>> files_;
  std::vector<std::string> kept_as_;  // of each file
  bool has_warned_ = false;
};

}  // namespace tessera::train

// A log that grows by whole records, whatever the disk does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::io {

class LogFile {
 public:
  // Starts the file anew. Throws Storage.
  explicit LogFile(std::string path);
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  ~LogFile();

  // Appends the record, which readers see at once. False where it cannot be written (disk full): then nothing
  // of it stays, and a later record can follow when there is space again.
  bool append(std::string_view record) noexcept;
  const std::string& path() const { return path_; }
  bool is_empty() const { return size_ == 0; }
  int64_t size() const { return size_; }  // bytes
  // All records, also where somebody has removed the file. Throws Storage.
  std::string text() const;
  // Whether path() still names this file.
  bool is_in_place() const;
  // Writes the file again under its path, with all of its records, where somebody has removed it. For the
  // end: later records do not reach it. Throws Storage.
  void put_back() const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;       // of the whole records
  bool has_rest_ = false;  // part of a record behind them that could not be cut off
};

}  // namespace tessera::io

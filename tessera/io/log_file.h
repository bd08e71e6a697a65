// A log that grows by whole records, whatever the disk does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::io {

// Says what becomes of the records that a file has already.
enum class OldRecords {
  Emptied,
  Kept,  // and the file is locked against others that would keep and continue it
};

class LogFile {
 public:
  // Makes the file, or takes the one that is there. Throws Storage, and E-CONFIG-OUTPUT-LOCKED where another
  // process continues the same file.
  explicit LogFile(std::string path, OldRecords old = OldRecords::Emptied);
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  ~LogFile();

  // Appends the record, which readers see at once. Returns false if it cannot be written (disk full): the log
  // then goes on without it, and a later record can follow when there is space again.
  bool append(std::string_view record) noexcept;
  // Takes away what stands behind the first `size` bytes. Throws Storage.
  void cut(int64_t size);
  const std::string& path() const { return path_; }
  bool is_empty() const { return size_ == 0; }
  int64_t size() const { return size_; }  // bytes
  // Returns all records, also if somebody has removed the file. Throws Storage.
  std::string text() const;
  // Returns whether path() still names this file.
  bool is_in_place() const;
  // Writes the file again under its path, with all of its records, if somebody has removed it. This is for
  // the end of a run: later records do not reach the new file. Throws Storage.
  void put_back() const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;       // bytes of the whole records
  bool has_rest_ = false;  // the file ends in a part of a record that could not be cut off
};

}  // namespace tessera::io

// Files on disk: exact ranged reads, whole-file reads with a cap, and writes that appear at once or
// not at all. Every failure is an Error of kind Storage that names the path and the cause.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/error.h"

namespace tessera::io {

// Makes the Storage error for an errno value. Its code names the cause: E-STORAGE-NO-SPACE (ENOSPC, EDQUOT),
// -PERMISSION (EACCES, EPERM), -READ-ONLY (EROFS), -IO (EIO), -NOT-FOUND (ENOENT), -NOT-A-DIRECTORY,
// -IS-A-DIRECTORY, -TOO-MANY-FILES, -TOO-LARGE (EFBIG), -LINK-LOOP, -EXISTS, -SYSTEM (any other).
Error storage_error(int error_number, std::string_view action, const std::string& path);

// A file opened for reading. Reads are positional, so one File may be used by several threads.
class File {
 public:
  File() = default;
  // Throws Storage when the path cannot be opened or is not a regular file: E-STORAGE-NOT-A-FILE for pipes,
  // devices and sockets, which are not even opened.
  static File open(const std::string& path);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  // Reads exactly `num_bytes` at `offset`. Throws Storage: E-STORAGE-SHORT-READ when the file ends
  // before (it shrank since it was opened), or the system's error, with the byte offset.
  void read_at(int64_t offset, void* destination, int64_t num_bytes) const;
  // Size in bytes at the time when the file was opened.
  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  int descriptor_ = -1;
  int64_t size_ = 0;
  std::string path_;
};

// Returns the whole file. Throws Storage; E-STORAGE-TOO-LARGE when it holds more than `max_bytes`, before
// anything is read. Pipes and devices are refused.
std::string read_file(const std::string& path, int64_t max_bytes);

// A file under construction: a temporary "<path>.tmp.<pid>-<number>" in the folder of `path`, which takes
// its place by commit(). Without commit() the destructor removes the temporary and `path` is untouched.
// An existing file's permission bits are kept. write_at may be called from several threads.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  // Reserves the space of a file of `num_bytes` (its later size unless writes go beyond), so that a
  // full disk is found before the work is done. Bytes not written read as zero.
  void reserve(int64_t num_bytes);
  void write_at(int64_t offset, const void* data, int64_t num_bytes);
  // Writes behind the last append(). Must not be used together with write_at().
  void append(const void* data, int64_t num_bytes);
  void append(std::string_view text) { append(text.data(), static_cast<int64_t>(text.size())); }
  // Flushes the data to the disk, renames the temporary to `path`, and flushes the folder. After an exception
  // `path` still holds the old file, except when only the last of these steps failed.
  void commit();

  // path() is where the finished file will be, temporary_path() where its bytes are until then.
  const std::string& path() const { return path_; }
  const std::string& temporary_path() const { return temporary_path_; }

 private:
  void discard() noexcept;

  std::string path_, temporary_path_;
  int descriptor_ = -1;
  int64_t append_offset_ = 0;
};

// Writes `bytes` to `path` through an AtomicFile: readers see the old file or the new one.
void write_file_atomic(const std::string& path, std::string_view bytes);

// Makes a folder and all missing ones above it, like mkdir -p. Throws Storage, e.g. E-STORAGE-NOT-A-DIRECTORY
// naming the part that is a file.
void make_directories(const std::string& path);
// Removes one file. A file that does not exist is no error.
void remove_file(const std::string& path);
// Makes renames and removals inside the folder durable. Throws Storage.
void sync_directory(const std::string& path);
// Returns whether the path names something that exists. Links are followed.
bool exists(const std::string& path);
// Returns the names of the regular files in the folder that end in `suffix`, sorted; none if the folder is
// not there. Throws Storage if it cannot be read.
std::vector<std::string> list_files(const std::string& folder, std::string_view suffix);

// Returns the number of bytes that an ordinary user can still write on the file system of `path`, or of its
// nearest existing parent. Throws Storage.
int64_t free_space(const std::string& path);

// Returns "folder/name", or `name` alone when the folder is empty or `name` is absolute.
std::string join_path(const std::string& folder, const std::string& name);
// Returns the folder part of a path, which is "." when there is none.
std::string parent_path(const std::string& path);

}  // namespace tessera::io

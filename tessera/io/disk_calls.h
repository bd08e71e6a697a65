// The system calls that change a disk or read from it, in one place, so that tests can fail or stop each of
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tessera::io::disk {

// Each returns what the system call of its name returns, with errno set; interrupted calls are repeated.
// `path` is what the call, or the descriptor, is about.

// O_WRONLY | O_CREAT | O_CLOEXEC and `more_flags`; a descriptor, or -1.
int open_new(const std::string& path, int more_flags);
int64_t write(int descriptor, const std::string& path, const void* data, int64_t num_bytes, int64_t offset);
int64_t read(int descriptor, const std::string& path, void* data, int64_t num_bytes, int64_t offset);
int allocate(int descriptor, const std::string& path, int64_t num_bytes);
int truncate(int descriptor, const std::string& path, int64_t num_bytes);
int flush(int descriptor, const std::string& path);
int change_mode(int descriptor, const std::string& path, uint32_t mode);
int make_folder(const std::string& path);
int remove_file(const std::string& path);
int remove_folder(const std::string& path);
// A file or an empty folder at `to` is replaced.
int rename(const std::string& from, const std::string& to);
// Puts each in the other's place in one step. EINVAL, ENOSYS or ENOTSUP where the file system cannot.
int exchange(const std::string& one, const std::string& other);

// For tests: called before each of these but read() with the call's name and its path. What it returns
// becomes errno of a call that is then not made; 0 lets the call through. Not for use while other threads
// write.
using Hook = std::function<int(std::string_view call, const std::string& path)>;
void set_hook(Hook hook);

// For tests: called before each read(), with its path and the bytes that are wanted. What it returns is the
// number of bytes to read instead, 0 as at the end of a file; below 0, it is the negative errno of a call
// that is then not made. Set while nobody reads; called by all threads that do.
using ReadHook = std::function<int64_t(const std::string& path, int64_t num_bytes)>;
void set_read_hook(ReadHook hook);

}  // namespace tessera::io::disk

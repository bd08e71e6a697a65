// The system calls that change a disk, in one place, so that tests can fail or stop each of them.
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

// For tests: called before each of these with the call's name and its path. What it returns becomes errno of
// a call that is then not made; 0 lets the call through. Not for use while other threads write.
using Hook = std::function<int(std::string_view call, const std::string& path)>;
void set_hook(Hook hook);

}  // namespace tessera::io::disk

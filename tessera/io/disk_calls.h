// The system calls that change a disk or read from it, in one place, so that tests can fail or stop each of
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tessera::io::disk {

// Each function returns what the system call of its name returns, with errno set, and repeats a call that a
// signal interrupted. `path` names the file that the call or the descriptor is about; only the hooks use it
// there.

// Opens with O_WRONLY | O_CREAT | O_CLOEXEC | `more_flags`. Returns a descriptor, or -1.
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
// Renames a file or folder. A file or an empty folder at `to` is replaced.
int rename(const std::string& from, const std::string& to);
// Exchanges two files or folders in one step. Fails with EINVAL, ENOSYS or ENOTSUP if the file system cannot
// do that.
int exchange(const std::string& one, const std::string& other);

// For tests: installs a hook that is called before each of these calls except read(), with the call's name
// and its path. If the hook returns 0, the call goes on; any other value becomes the errno of the call, which
// is then not made. Must not be used while other threads write.
using Hook = std::function<int(std::string_view call, const std::string& path)>;
void set_hook(Hook hook);

// For tests: installs a hook that is called before each read(), with its path and the number of bytes wanted.
// The hook returns the number of bytes to read instead, where 0 looks like the end of the file; a negative
// value is the negated errno of a call that is then not made. Must not be set while somebody reads. All
// threads that read call the hook.
using ReadHook = std::function<int64_t(const std::string& path, int64_t num_bytes)>;
void set_read_hook(ReadHook hook);

}  // namespace tessera::io::disk

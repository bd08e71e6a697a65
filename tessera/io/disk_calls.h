// The system calls that change a disk or read from it, in one place, so that tests can fail or stop each of
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

struct io_uring_params;

namespace tessera::io::disk {

// Each function returns what the system call of its name returns, with errno set, and repeats a call that a
// signal interrupted. `path` names the file that the call or the descriptor is about; only the hooks use it
// there.

// Opens with O_WRONLY | O_CREAT | O_CLOEXEC | `more_flags`. Returns a descriptor, or -1.
int open_new(const std::string& path, int more_flags);
int64_t write(int descriptor, const std::string& path, const void* data, int64_t num_bytes, int64_t offset);
int64_t read(int descriptor, const std::string& path, void* data, int64_t num_bytes, int64_t offset);
// Opens a file without a name in the folder, for reading and writing, with `more_flags` (O_DIRECT or 0): the
// file goes with the process. Where the file system knows no such files, one is made and its name removed at
// once. Returns a descriptor, or -1. Its hooks are "open_direct" and "open_nameless".
int open_nameless(const std::string& folder, int more_flags);
int allocate(int descriptor, const std::string& path, int64_t num_bytes);
// Makes an io_uring of so many entries. Returns a descriptor, or -1.
int make_ring(const std::string& path, uint32_t entries, io_uring_params* parameters);
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

// For tests: installs a hook that is called before each range of a spill file is moved (transfer_engine.h),
// with "read" or "write", the path of the file and the number of bytes. The hook returns the number of bytes
// to move instead, where 0 looks like the end of the file, or the negated errno of a call that is then not
// made. Several threads may call it. Must not be set while ranges are moved.
using TransferHook =
    std::function<int64_t(std::string_view call, const std::string& path, int64_t num_bytes)>;
void set_transfer_hook(TransferHook hook);
// Returns what the hook says; `num_bytes` where there is none.
int64_t bytes_to_move(std::string_view call, const std::string& path, int64_t num_bytes);

}  // namespace tessera::io::disk

// Checks what several ranks on this machine need, before the launcher is started.
#pragma once

#include <cstdint>

namespace tessera::cli {

// Throws Error(Config), or Error(Memory) for address space, if a limit is too low for `nproc` ranks: open
// files, size of files, processes and threads, address space, the loopback network interface.
void check_launch(int64_t nproc);

// Returns how many bytes the launcher and the transport of `nproc` ranks keep in temporary files.
int64_t session_bytes(int64_t nproc);

}  // namespace tessera::cli

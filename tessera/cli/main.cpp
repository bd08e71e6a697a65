#include "tessera/cli/before_main.h"
#include "tessera/cli/program.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Sanitizers are not ready before the initialisers, so builds with one leave this out.
[[gnu::section(".preinit_array"),
  gnu::used]] void (*const before_initialisers)(int, char**, char**) = tessera::cli::before_libraries;
#endif

int main(int argc, char** argv) {
  tessera::cli::end_process(tessera::cli::run_program(tessera::cli::own_path(), {argv + 1, argv + argc}));
}

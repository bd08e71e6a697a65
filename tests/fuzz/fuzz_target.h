// Helpers of the fuzz targets. A target is a file <format>_fuzz.cpp with LLVMFuzzerTestOneInput(). It is
// linked with libFuzzer in the preset fuzz, and with replay.cpp in all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <sys/mman.h>

#include <unistd.h>

#include "tessera/core/error.h"

namespace tessera::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Runs `read`, which may accept its input or refuse it with an Error. An Error of kind Internal, and any
// exception that is no Error, is a defect and ends the program; `place` stands in the message.
template <class Read>
void take_or_refuse(const char* place, Read&& read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Internal) return;
    std::fprintf(stderr, "%s: %s\n", place, error.what());
    std::abort();
  }
}

// The input as a file that lies in memory only.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : descriptor_(memfd_create("fuzz", 0)) {
    if (descriptor_ < 0 ||
        write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      std::perror("memfd_create");
      std::exit(2);
    }
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Changes a small file in every way in which one byte can be changed.
#pragma once

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tessera/core/error.h"

#include "tests/io/allocation_meter.h"

namespace tessera::testing {

struct Mutations {
  int accepted = 0, refused = 0;
};

// Gives each of the file's first `count` bytes every value in turn and calls open(), which must accept the
// file or throw Error(Model), and must allocate little.
template <class Open>
Mutations mutate_every_byte(const std::string& path, const std::string& original, size_t count, Open open) {
  Mutations found;
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  for (size_t i = 0; i < count; ++i) {
    for (int value = 0; value < 256 && !::testing::Test::HasFailure(); ++value) {
      file.seekp(static_cast<std::streamoff>(i)).put(static_cast<char>(value)).flush();
      const size_t before = allocated_bytes;
      try {
        open();
        ++found.accepted;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::Model) << error.what();
        ++found.refused;
      }
      EXPECT_LT(allocated_bytes - before, 100'000u) << "byte " << i << " = " << value;
    }
    file.seekp(static_cast<std::streamoff>(i)).put(original[i]).flush();
  }
  return found;
}

}  // namespace tessera::testing

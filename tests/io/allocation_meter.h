// Counts the bytes that a program asks of operator new. allocation_meter.cpp belongs into a program that
// includes this.
#pragma once

#include <atomic>
#include <cstddef>

namespace tessera::testing {

// Bytes that the program has asked for so far.
extern std::atomic<size_t> allocated_bytes;

}  // namespace tessera::testing

// MPI types for messages of any length.
#pragma once

#include <cstdint>

#include "tessera/comm/mpi/mpi_check.h"

namespace tessera::comm::detail {

// `num_bytes` bytes as one element, so that messages above 2 GiB need no counts above INT_MAX.
class ByteBlock {
 public:
  explicit ByteBlock(int64_t num_bytes) {
    constexpr int64_t kChunk = int64_t{1} << 20;
    const int64_t num_chunks = num_bytes / kChunk;
    TESSERA_MPI_CHECK(MPI_Type_contiguous(static_cast<int>(kChunk), MPI_BYTE, &chunk_));
    int lengths[2] = {static_cast<int>(num_chunks), static_cast<int>(num_bytes % kChunk)};
    MPI_Aint offsets[2] = {0, static_cast<MPI_Aint>(num_chunks * kChunk)};
    MPI_Datatype types[2] = {chunk_, MPI_BYTE};
    TESSERA_MPI_CHECK(MPI_Type_create_struct(2, lengths, offsets, types, &type_));
    TESSERA_MPI_CHECK(MPI_Type_commit(&type_));
  }
  ~ByteBlock() {
    MPI_Type_free(&type_);
    MPI_Type_free(&chunk_);
  }
  ByteBlock(const ByteBlock&) = delete;
  ByteBlock& operator=(const ByteBlock&) = delete;
  MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype chunk_ = MPI_DATATYPE_NULL, type_ = MPI_DATATYPE_NULL;
};

// Calls f(count, type): up to 256 MiB with that many MPI_BYTE, above it with one block. The block may be
// freed after the call, since MPI keeps a type that is in use until the operation has ended.
template <class F>
void with_bytes(int64_t num_bytes, F f) {
  constexpr int64_t kPlainLimit = int64_t{1} << 28;
  if (num_bytes <= kPlainLimit) {
    f(static_cast<int>(num_bytes), MPI_BYTE);
  } else {
    const ByteBlock block(num_bytes);
    f(1, block.type());
  }
}

}  // namespace tessera::comm::detail

#include "tessera/device/pinned_memory.h"

#include <set>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/device/device.h"

namespace tessera {
namespace {

// The sizes are those of a model's tiles, none a power of two. The largest one comes first, last, or among
// the others.
TEST(PinnedArenaTest, TensorsLieApartInFewPiecesThatWasteLittle) {
  for (const int64_t largest : {0, 40, 21}) {
    std::vector<std::vector<int64_t>> shapes;
    for (int64_t i = 0; i <= 40; ++i) {
      shapes.push_back(i == largest ? std::vector<int64_t>{3000, 33} : std::vector<int64_t>{70 + i % 3, 300});
    }
    shapes.push_back({0, 4});
    shapes.push_back({1});
    int64_t num_bytes = 0;
    for (const auto& shape : shapes) num_bytes += 4 * c10::multiply_integers(shape);
    PinnedArena arena(kHost, num_bytes);
    std::vector<at::Tensor> tensors;
    std::set<const void*> pieces;
    int64_t taken = 0;
    for (const auto& shape : shapes) {
      const at::ScalarType type = tensors.size() % 2 == 0 ? at::kFloat : at::kInt;
      const at::Tensor tensor = arena.empty(shape, type);
      EXPECT_EQ(tensor.sizes().vec(), shape);
      EXPECT_EQ(tensor.scalar_type(), type);
      EXPECT_TRUE(tensor.is_contiguous());
      tensor.fill_(static_cast<int64_t>(tensors.size()));
      const auto piece_bytes = static_cast<int64_t>(tensor.storage().nbytes());
      EXPECT_EQ(piece_bytes & (piece_bytes - 1), 0) << piece_bytes;
      if (pieces.insert(tensor.storage().data()).second) taken += piece_bytes;
      tensors.push_back(tensor);
    }
    for (size_t i = 0; i < tensors.size(); ++i)
      EXPECT_TRUE(tensors[i].eq(static_cast<int64_t>(i)).all().item<bool>()) << i;
    EXPECT_LE(pieces.size(), 12U);
    EXPECT_LE(taken, num_bytes + num_bytes / 4);
  }
}

TEST(HostMemoryTest, WhatDoesNotFitIsRefusedBeforeItIsAskedFor) {
  EXPECT_NO_THROW(require_host_memory(0, "HOST-X", "tiles", "none"));
  try {
    require_host_memory(int64_t{1} << 60, "HOST-X", "the tiles", "take fewer");
    FAIL() << "an exabyte";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-MEMORY-HOST-X");
    EXPECT_NE(std::string(error.what()).find("the tiles do not fit the host's memory"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera

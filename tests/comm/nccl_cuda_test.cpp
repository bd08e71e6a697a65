// Tests of NCCL itself on a GPU: with a group of one rank, and with two processes that pretend to be on two
// machines.
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/comm/nccl/gather_parts.h"
#include "tessera/comm/nccl/nccl_group.h"
#include "tessera/comm/reduce.h"

#include "tests/comm/collectives.h"
#include "tests/testing/cuda_device.h"
#include "tests/testing/run_program.h"
#include "tests/testing/temp_folder.h"

namespace tessera::comm {
namespace {

using testing::awkward_values;

constexpr char kIdFile[] = "TESSERA_TEST_NCCL_ID", kRank[] = "TESSERA_TEST_NCCL_RANK";

detail::NcclContext context() {
  const at::Device device = testing::cuda_device();
  return {device, detail::NcclLibrary::require(), std::make_shared<detail::Watchdog>(device)};
}

at::Tensor expected_sum(int64_t ranks, int64_t count, at::ScalarType type) {
  const auto wide = type == at::kBFloat16 ? at::kFloat : type;
  at::Tensor sum = awkward_values(0, count, type).to(wide);
  for (int64_t rank = 1; rank < ranks; ++rank) sum.add_(awkward_values(rank, count, type));
  return sum.to(type);
}

detail::Call call_of(const char* what) {
  detail::Call call;
  call.description = what;
  call.timeout = std::chrono::seconds(60);
  return call;
}

// Checks everything that a backend asks of a group, with operations in flight on memory that is freed
// meanwhile.
void check_group(detail::NcclGroup& group) {
  const int64_t n = group.size(), rank = group.rank();
  const at::TensorOptions options(testing::cuda_device());
  const detail::Call call = call_of("the test");
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const int64_t count : {1, 1001, 3'000'000}) {
      const at::Tensor reduced = awkward_values(rank, count, type).to(options.device());
      group.run(call, {reduced}, [&] { detail::all_reduce(group, reduced, ReduceOp::Sum); })->wait();
      EXPECT_TRUE(at::equal(reduced.to(kHost), expected_sum(n, count, type))) << c10::toString(type) << count;

      const at::Tensor whole = awkward_values(rank, n * count, type).to(options.device());
      const at::Tensor piece = at::empty({count}, options.dtype(type));
      group
          .run(call, {whole, piece},
               [&] {
                 detail::reduce_scatter(group, {{whole, piece, even_pieces(n * count, n)}}, type,
                                        ReduceOp::Sum);
               })
          ->wait();
      EXPECT_TRUE(
          at::equal(piece.to(kHost), expected_sum(n, n * count, type).narrow(0, rank * count, count)));

      const at::Tensor gathered = at::empty({n * count}, options.dtype(type));
      const std::vector<int64_t> bytes(static_cast<size_t>(n), static_cast<int64_t>(piece.nbytes()));
      auto work = [&] {
        const at::Tensor own = awkward_values(rank, count, type).to(options.device());
        return group.run(call, {gathered, own},
                         [&] { group.all_gather(gathered.mutable_data_ptr(), own.const_data_ptr(), bytes); });
      }();
      const at::Tensor in_between = at::full({count}, -1.0, options.dtype(type));
      work->wait();
      for (int64_t r = 0; r < n; ++r) {
        EXPECT_TRUE(
            at::equal(gathered.narrow(0, r * count, count).to(kHost), awkward_values(r, count, type)));
      }
      work->wait_host();
      EXPECT_TRUE(work->is_done());
    }
  }
  // There are two rounds, since registered memory that is dropped is freed when the next is made.
  for (int round = 0; round < 2; ++round) {
    const at::Tensor slot = group.registered_bytes(n * 4096);
    ASSERT_TRUE(slot.defined());
    const at::Tensor values = slot.view(at::kFloat), own = values.narrow(0, rank * 1024, 1024);
    own.copy_(awkward_values(rank, 1024, at::kFloat));
    const std::vector<int64_t> bytes(static_cast<size_t>(n), 4096);
    group.run(call, {slot}, [&] { group.all_gather(slot.mutable_data_ptr(), own.const_data_ptr(), bytes); })
        ->wait();
    for (int64_t r = 0; r < n; ++r) {
      EXPECT_TRUE(at::equal(values.narrow(0, r * 1024, 1024).to(kHost), awkward_values(r, 1024, at::kFloat)));
    }
  }
  // Pieces of several lengths are gathered as one padded gather, or as broadcasts.
  for (const int64_t longest : {1000, 3'000'000}) {
    std::vector<GatherPart> parts;
    for (int i = 0; i < 4; ++i) {
      std::vector<int64_t> counts(static_cast<size_t>(n), longest);
      counts.back() -= n > 1 ? 7 : 0;
      const at::Tensor input = awkward_values(rank, counts[static_cast<size_t>(rank)], at::kFloat);
      parts.push_back(
          {at::empty({n * longest - (n > 1 ? 7 : 0)}, options), input.to(options.device()), counts});
    }
    group.run(call, {}, [&] { detail::gather_parts(group, parts); })->wait();
    for (const GatherPart& part : parts) {
      int64_t begin = 0;
      for (int64_t r = 0; r < n; ++r) {
        const int64_t count = part.counts[static_cast<size_t>(r)];
        EXPECT_TRUE(
            at::equal(part.output.narrow(0, begin, count).to(kHost), awkward_values(r, count, at::kFloat)));
        begin += count;
      }
    }
  }
  const at::Tensor told = at::full({5}, static_cast<double>(rank), options);
  group.run(call, {told}, [&] { group.broadcast(told.mutable_data_ptr(), told.nbytes(), n - 1); })->wait();
  EXPECT_EQ(told.sum().item<float>(), 5.0f * static_cast<float>(n - 1));
}

TEST(NcclCudaTest, OneRank) {
  TESSERA_NEEDS_CUDA();
  const detail::NcclContext own = context();
  std::printf("NCCL %s\n", version_text(own.library->version()).c_str());
  detail::NcclGroup group(own, own.library->make_id(), 1, 0, call_of("the start"));
  check_group(group);
}

// The next test runs this one, in a process of its own.
TEST(NcclCudaTest, DISABLED_OneOfTwoProcesses) {
  const char *path = std::getenv(kIdFile), *number = std::getenv(kRank);
  ASSERT_TRUE(path != nullptr && number != nullptr);
  const int rank = std::atoi(number);
  const detail::NcclContext own = context();
  detail::NcclId id;
  const std::string ready = std::string(path) + ".ready";
  if (rank == 0) {
    id = own.library->make_id();
    std::ofstream(path, std::ios::binary).write(id.bytes.data(), std::ssize(id.bytes));
    std::ofstream(ready).put('1');
  }
  for (int i = 0; i < 3000 && !std::filesystem::exists(ready); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::ifstream(path, std::ios::binary).read(id.bytes.data(), std::ssize(id.bytes));
  detail::NcclGroup group(own, id, 2, rank, call_of("the start"));
  check_group(group);
}

// NVIDIA does not promise that one GPU serves two ranks. If NCCL refuses, the test says so.
TEST(NcclCudaTest, TwoProcessesOnOneGpu) {
  TESSERA_NEEDS_CUDA();
  const testing::TempFolder folder;
  std::array<testing::ProgramResult, 2> results;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      testing::RunOptions options;
      options.environment = {{kIdFile, folder.path() + "/id"},
                             {kRank, std::to_string(rank)},
                             {"NCCL_HOSTID", "machine" + std::to_string(rank)},
                             {"NCCL_SOCKET_IFNAME", "lo"}};
      results[static_cast<size_t>(rank)] =
          testing::run_command({"/proc/self/exe", "--gtest_also_run_disabled_tests",
                                "--gtest_filter=NcclCudaTest.DISABLED_OneOfTwoProcesses"},
                               options);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const testing::ProgramResult& result : results) {
    const std::string told = result.told();
    if (told.find("ncclCommInitRank failed") != std::string::npos)
      GTEST_SKIP() << testing::skip::kPermission << ": " << told;
    EXPECT_EQ(result.exit_code, 0) << told;
  }
}

}  // namespace
}  // namespace tessera::comm

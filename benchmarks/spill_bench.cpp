// Measures how fast optimizer states go to and from a drive (io/spill_file.h), against plain direct reads and
// writes of the same drive in the same run. The arguments are a folder on the drive, the size of the file in
// MiB, and the number of rounds. Prints one JSON object: the medians, in MB/s.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tessera/core/median.h"
#include "tessera/core/process_stats.h"
#include "tessera/io/disk_calls.h"
#include "tessera/io/file.h"
#include "tessera/io/spill_file.h"

namespace {

using tessera::Timer;
using tessera::io::AlignedMemory;
using tessera::io::SpillFile;
using tessera::io::SpillOptions;
using tessera::io::Transfer;

constexpr int64_t kBlock = int64_t{16} << 20;
constexpr int64_t kBuffers = 4;

// Direct reads and writes of one thread, one block after another.
class Plain {
 public:
  Plain(const std::string& folder, int64_t num_bytes)
      : folder_(folder), num_bytes_(num_bytes), memory_(kBlock) {
    std::memset(memory_.bytes().data(), 1, memory_.bytes().size());
    descriptor_ = tessera::io::disk::open_nameless(folder, O_DIRECT);
    if (descriptor_ < 0 || tessera::io::disk::allocate(descriptor_, folder, num_bytes) != 0)
      throw tessera::io::storage_error(errno, "cannot make a file for direct I/O", folder);
  }
  ~Plain() { ::close(descriptor_); }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;

  double seconds(bool is_write) {
    const Timer timer;
    for (int64_t offset = 0; offset < num_bytes_; offset += kBlock) {
      const auto moved = is_write ? ::pwrite(descriptor_, memory_.bytes().data(), kBlock, offset)
                                  : ::pread(descriptor_, memory_.bytes().data(), kBlock, offset);
      if (moved != kBlock) throw tessera::io::storage_error(EIO, "cannot move a block", folder_);
    }
    return timer.seconds();
  }

 private:
  const std::string folder_;
  const int64_t num_bytes_;
  AlignedMemory memory_;
  int descriptor_ = -1;
};

// The file of offloaded states.
class Spilled {
 public:
  Spilled(const std::string& folder, int64_t num_bytes, const SpillOptions& options) {
    std::vector<std::span<char>> memories;
    for (int64_t i = 0; i < kBuffers; ++i) {
      buffers_.emplace_back(kBlock);
      std::memset(buffers_.back().bytes().data(), 1, kBlock);
      memories.push_back(buffers_.back().bytes());
    }
    file_ = std::make_unique<SpillFile>(folder, num_bytes, options, memories);
  }
  const std::string& text() const { return file_->text(); }

  // Moves every block one way, as many at a time as there are buffers.
  double seconds(bool is_write) {
    const Timer timer;
    std::vector<Transfer> transfers(kBuffers);
    for (int64_t number = 0; number * kBlock < file_->size(); ++number) {
      const auto buffer = static_cast<size_t>(number % kBuffers);
      file_->wait(transfers[buffer]);
      const auto bytes = buffers_[buffer].bytes();
      transfers[buffer] =
          is_write ? file_->start_write(number * kBlock, bytes) : file_->start_read(number * kBlock, bytes);
    }
    for (Transfer& transfer : transfers) file_->wait(transfer);
    return timer.seconds();
  }

  // Reads every block and writes it back, as an update does that computes nothing.
  double update_seconds() {
    const Timer timer;
    std::vector<Transfer> transfers(kBuffers);
    const int64_t count = file_->size() / kBlock;
    const auto read = [&](int64_t number) {
      const auto buffer = static_cast<size_t>(number % kBuffers);
      file_->wait(transfers[buffer]);
      transfers[buffer] = file_->start_read(number * kBlock, buffers_[buffer].bytes());
    };
    for (int64_t number = 0; number < std::min<int64_t>(2, count); ++number) read(number);
    for (int64_t number = 0; number < count; ++number) {
      const auto buffer = static_cast<size_t>(number % kBuffers);
      file_->wait(transfers[buffer]);
      transfers[buffer] = file_->start_write(number * kBlock, buffers_[buffer].bytes());
      if (number + 2 < count) read(number + 2);
    }
    for (Transfer& transfer : transfers) file_->wait(transfer);
    return timer.seconds();
  }

 private:
  std::vector<AlignedMemory> buffers_;
  std::unique_ptr<SpillFile> file_;
};

int run(const std::string& folder, int64_t num_bytes, int64_t rounds) {
  Plain plain(folder, num_bytes);
  Spilled ring(folder, num_bytes, {}), threads(folder, num_bytes, {.tries_ring = false});
  struct Row {
    const char* name;
    std::function<double()> seconds;
    int64_t bytes;
    std::vector<double> rates = {};
  };
  std::vector<Row> rows = {
      {"plain_write", [&] { return plain.seconds(true); }, num_bytes},
      {"plain_read", [&] { return plain.seconds(false); }, num_bytes},
      {"write", [&] { return ring.seconds(true); }, num_bytes},
      {"read", [&] { return ring.seconds(false); }, num_bytes},
      {"update", [&] { return ring.update_seconds(); }, 2 * num_bytes},
      {"threads_write", [&] { return threads.seconds(true); }, num_bytes},
      {"threads_read", [&] { return threads.seconds(false); }, num_bytes},
      {"threads_update", [&] { return threads.update_seconds(); }, 2 * num_bytes},
  };
  // The first round writes the space that was only reserved, and does not count. The rows take turns, so that
  // a drive that slows down slows all of them.
  for (int64_t round = 0; round <= rounds; ++round) {
    for (Row& row : rows) {
      const double rate = 1e-6 * static_cast<double>(row.bytes) / row.seconds();
      if (round > 0) row.rates.push_back(rate);
    }
  }
  nlohmann::ordered_json json = {{"engine", ring.text()}, {"other_engine", threads.text()}};
  for (const Row& row : rows) json[row.name] = tessera::median(row.rates);
  const auto rate = [&](const char* name) { return json[name].get<double>(); };
  // A plain update reads everything and then writes it.
  json["plain_update"] = 2.0 / (1.0 / rate("plain_read") + 1.0 / rate("plain_write"));
  json["read_ratio"] = rate("read") / rate("plain_read");
  json["write_ratio"] = rate("write") / rate("plain_write");
  json["update_ratio"] = rate("update") / rate("plain_update");
  std::printf("%s\n", json.dump(1).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: spill_bench FOLDER MIB ROUNDS\n");
    return 2;
  }
  try {
    const int64_t mebibytes = std::max<int64_t>(64, std::atoll(argv[2])) / 16 * 16;
    return run(argv[1], mebibytes << 20, std::max<int64_t>(1, std::atoll(argv[3])));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

// Measures the speed of checkpoints beside that of the disk: the parameters and AdamW states of a model are
// saved, read back and checked against their hashes, and the same bytes are written and read as one plain
// file. Both run by turns, on one rank. The arguments are a folder on the disk to measure, the number of
// parameters, and the number of turns. Prints one JSON object with the seconds of the best turn.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tessera/checkpoint/background_save.h"
#include "tessera/checkpoint/sharded_checkpoint.h"
#include "tessera/checkpoint/tile_hash.h"
#include "tessera/core/error.h"
#include "tessera/core/process_stats.h"
#include "tessera/io/file.h"

namespace {

namespace fs = std::filesystem;
using tessera::checkpoint::StateTensor;

constexpr int64_t kPieceBytes = int64_t{16} << 20;
constexpr int64_t kColumns = 1024, kMatrixRows = 4096;

// Returns the parameters and both moments of AdamW, in float32, as matrices of 16 MiB.
std::vector<StateTensor> carried(int64_t num_parameters) {
  std::vector<StateTensor> tensors;
  for (const char* kind : {"parameter/", "optimizer/exp_avg/", "optimizer/exp_avg_sq/"}) {
    for (int64_t left = num_parameters / kColumns, number = 0; left > 0; left -= kMatrixRows, ++number) {
      const int64_t rows = std::min(left, kMatrixRows);
      const tessera::parallel::Layout layout({rows, kColumns}, tessera::DType::F32, {});
      tensors.push_back(tessera::checkpoint::state_tensor(kind + std::to_string(number), layout, {},
                                                          at::randn({rows, kColumns})));
    }
  }
  return tensors;
}

// Writes as `dd` does, with the flush that a checkpoint has too.
void plain_write(const std::string& path, const std::vector<StateTensor>& tensors) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  for (const StateTensor& tensor : tensors) {
    const at::Tensor values = tensor.get();
    const auto* bytes = static_cast<const char*>(values.const_data_ptr());
    for (int64_t at = 0, size = static_cast<int64_t>(values.nbytes()); at < size; at += kPieceBytes) {
      const auto part = static_cast<size_t>(std::min(kPieceBytes, size - at));
      if (::write(file, bytes + at, part) != static_cast<ssize_t>(part)) std::abort();
    }
  }
  if (::fsync(file) != 0) std::abort();
  ::close(file);
}

void plain_read(const std::string& path, at::Tensor buffer) {
  const int file = ::open(path.c_str(), O_RDONLY);
  while (::read(file, buffer.mutable_data_ptr(), kPieceBytes) > 0) {
  }
  ::close(file);
}

// Drops a file from the page cache, so that the next read comes from the disk.
void forget(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  ::fdatasync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

void run(const std::string& folder, int64_t num_parameters, int turns) {
  const auto tensors = carried(num_parameters);
  const int64_t num_bytes = tessera::checkpoint::checkpoint_bytes(tensors);
  const auto world = tessera::comm::Communicator::single();
  tessera::checkpoint::BackgroundSave saving(*world);
  saving.reserve(tensors);
  const at::Tensor buffer = at::empty({kPieceBytes}, at::kByte);
  const std::string plain = folder + "/plain", checkpoint = folder + "/checkpoint-1";
  std::map<std::string, double> best;
  const auto measure = [&](const std::string& name, const std::function<void()>& work) {
    const tessera::Timer timer;
    work();
    const double seconds = timer.seconds();
    const auto [place, is_first] = best.try_emplace(name, seconds);
    if (!is_first) place->second = std::min(place->second, seconds);
  };
  const tessera::checkpoint::CheckpointNotes notes = {1, "bench", {}, {}};
  for (int turn = 0; turn < turns; ++turn) {
    fs::remove(plain);
    measure("plain_write_s", [&] { plain_write(plain, tensors); });
    fs::remove_all(checkpoint);
    measure("save_s", [&] { saving.save(tensors, notes, folder, [] {}); });
    // Plain reads take the checkpoint's own file, and the turns alternate which of the two reads comes first:
    // below the page cache the machine's disk may have a cache of its own, which knows what has been read
    // before.
    const std::string file = checkpoint + "/rank-00000.safetensors";
    const auto read_plainly = [&] {
      forget(file);
      measure("plain_read_s", [&] { plain_read(file, buffer); });
    };
    if (turn % 2 == 0) read_plainly();
    forget(file);
    // A run that resumes does the same: it checks all values against their hashes, then reads them into the
    // tensors.
    measure("verify_s", [&] { tessera::checkpoint::ShardedCheckpoint::open(checkpoint)->verify(0, 1); });
    if (turn % 2 == 1) read_plainly();
    measure("load_s",
            [&] { load_checkpoint(*tessera::checkpoint::ShardedCheckpoint::open(checkpoint), tensors); });
    fs::remove_all(checkpoint);
    measure("copy_s", [&] { saving.start(tensors, notes, folder, [] {}); });
    saving.wait();
  }
  measure("hash_s", [&] {
    tessera::checkpoint::TileHash hash;
    for (const StateTensor& tensor : tensors) {
      const at::Tensor values = tensor.get();
      hash.add(values.const_data_ptr(), static_cast<int64_t>(values.nbytes()));
    }
    if (hash.text().empty()) std::abort();
  });
  nlohmann::ordered_json result = {{"bytes", num_bytes}};
  for (const auto& [name, seconds] : best) result[name] = seconds;
  std::puts(result.dump().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("checkpoint_bench FOLDER PARAMETERS TURNS\n", stderr);
    return 2;
  }
  try {
    run(argv[1], std::atoll(argv[2]), std::atoi(argv[3]));
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "checkpoint_bench: %s\n", error.what());
    return tessera::exit_code(error.kind());
  }
  return 0;
}

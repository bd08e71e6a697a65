// Tests that any layout loads a checkpoint, and that a checkpoint is whole or absent whatever happens to its
// files.
#include "tessera/checkpoint/sharded_checkpoint.h"

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <random>
#include <sys/wait.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tessera/checkpoint/save_checkpoint.h"
#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/io/checkpoint_folders.h"
#include "tessera/io/disk_calls.h"
#include "tessera/io/file.h"
#include "tessera/parallel/box_part.h"

#include "tests/io/expect_error.h"
#include "tests/testing/random.h"
#include "tests/testing/temp_folder.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using parallel::AxisPlacement;
using parallel::Layout;
using parallel::Placement;
using testing::expect_error;
using ::testing::HasSubstr;

// The tensors of a run on some mesh.
struct Tensors {
  std::vector<int64_t> mesh;  // sizes of the axes
  std::vector<Layout> layouts;

  int64_t ranks() const { return std::accumulate(mesh.begin(), mesh.end(), int64_t{1}, std::multiplies<>()); }
};

std::string name_of(size_t number) { return "tensor." + std::to_string(number); }

// Returns the whole tensor `number`, with values that differ by element, tensor and `version`.
at::Tensor whole_value(const Layout& layout, size_t number, int64_t version) {
  const int64_t count = std::max<int64_t>(layout.numel(), 1);
  return (at::arange(count, at::kDouble) + static_cast<double>(1000 * number) + 0.25 * version)
      .view(layout.shape())
      .to(to_scalar_type(layout.dtype()));
}

// Returns the state tensors of a rank with the values of `version`; for version -1 the rank has no values
// yet.
std::vector<StateTensor> tensors_of(const Tensors& tensors, int64_t rank, int64_t version) {
  std::vector<int64_t> coordinates(tensors.mesh.size());
  for (size_t a = tensors.mesh.size(); a-- > 0; rank /= tensors.mesh[a])
    coordinates[a] = rank % tensors.mesh[a];
  std::vector<StateTensor> result;
  for (size_t i = 0; i < tensors.layouts.size(); ++i) {
    const Layout& layout = tensors.layouts[i];
    const auto box = layout.local_box(coordinates);
    at::Tensor tile = version < 0 ? at::full(box.size, 7, to_scalar_type(layout.dtype()))
                                  : parallel::box_part(whole_value(layout, i, version), box).clone();
    result.push_back(state_tensor(name_of(i), layout, coordinates, tile.contiguous()));
  }
  return result;
}

CheckpointNotes notes_of(int64_t step) {
  return {step, "a-run", {{"note", step}}, {{"metrics.jsonl", "step " + std::to_string(step) + "\n"}}};
}

void save(const Tensors& tensors, int64_t step, const std::string& folder) {
  comm::run_fake_ranks(static_cast<int>(tensors.ranks()), [&](const auto& world) {
    save_checkpoint(tensors_of(tensors, world->rank(), step), notes_of(step), folder, *world);
  });
}

// Expects that every rank of `tensors` reads exactly the values of `version`.
void expect_values(const Tensors& tensors, const ShardedCheckpoint& checkpoint, int64_t version) {
  for (int64_t rank = 0; rank < tensors.ranks(); ++rank) {
    const auto want = tensors_of(tensors, rank, version), got = tensors_of(tensors, rank, -1);
    load_checkpoint(checkpoint, got);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_TRUE(at::equal(got[i].get(), want[i].get())) << want[i].name << " on rank " << rank;
  }
}

std::shared_ptr<const ShardedCheckpoint> open_step(const std::string& folder, int64_t step) {
  return ShardedCheckpoint::open(folder + "/checkpoint-" + std::to_string(step));
}

struct Shape {
  std::vector<int64_t> sizes;
  DType dtype;
};

class RandomLayouts {
 public:
  explicit RandomLayouts(uint64_t seed) : random_(seed) {}
  int64_t below(int64_t limit) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit)); }

  std::vector<Shape> shapes() {
    std::vector<Shape> shapes = {{{}, DType::F32}};
    for (int i = 0; i < 6; ++i) {
      Shape shape{{}, below(3) == 0 ? DType::F64 : below(2) == 0 ? DType::BF16 : DType::F32};
      for (int64_t dims = 1 + below(3); dims > 0; --dims) shape.sizes.push_back(1 + below(9));
      shapes.push_back(shape);
    }
    return shapes;
  }
  // Returns tensors on one to three axes of one to three ranks. Each axis cuts a dim of a tensor, or copies
  // it.
  Tensors tensors(const std::vector<Shape>& shapes) {
    Tensors tensors;
    for (int64_t axes = 1 + below(3); axes > 0; --axes) tensors.mesh.push_back(1 + below(3));
    for (const Shape& shape : shapes) {
      std::vector<AxisPlacement> axes;
      for (size_t a = 0; a < tensors.mesh.size(); ++a) {
        Placement placement = Placement::replicate();
        if (!shape.sizes.empty() && below(4) != 0)
          placement = Placement::shard(below(static_cast<int64_t>(shape.sizes.size())), 1 + below(3));
        // Some ranks hold the whole tensor, and the others hold nothing of it.
        std::vector<int64_t> holders;
        for (int64_t rank = 0; rank < tensors.mesh[a]; ++rank) {
          if (below(2) == 0) holders.push_back(rank);
        }
        if (!shape.sizes.empty() && !holders.empty() && below(4) == 0)
          placement = Placement::held_by(holders);
        axes.push_back({"axis" + std::to_string(a), tensors.mesh[a], placement});
      }
      tensors.layouts.emplace_back(shape.sizes, shape.dtype, axes);
    }
    return tensors;
  }

 private:
  std::mt19937_64 random_;
};

TEST(ShardedCheckpointTest, AnyLayoutLoadsAnyOther) {
  const uint64_t seed = testing::Random::told(testing::Random::new_seed());
  RandomLayouts random(seed);
  for (int round = 0; round < 25; ++round) {
    const auto shapes = random.shapes();
    const Tensors a = random.tensors(shapes), b = random.tensors(shapes);
    const testing::TempFolder folder;
    save(a, 1, folder / "a");
    const auto first = open_step(folder / "a", 1);
    expect_values(b, *first, 1);
    // B reads A's checkpoint and writes one; A must read the same values from both.
    comm::run_fake_ranks(static_cast<int>(b.ranks()), [&](const auto& world) {
      const auto tensors = tensors_of(b, world->rank(), -1);
      load_checkpoint(*first, tensors);
      save_checkpoint(tensors, notes_of(2), folder / "b", *world);
    });
    const auto second = open_step(folder / "b", 2);
    expect_values(a, *second, 1);
    for (int64_t rank = 0; rank < 3; ++rank) second->verify(rank, 3);
    // Every element is written once.
    int64_t elements = 0, written = 0;
    for (const auto& tensor : second->manifest().tensors) {
      elements += tensor.layout.numel();
      for (const auto& tile : tensor.tiles) written += tile.box.numel();
    }
    EXPECT_EQ(written, elements);
  }
}

const Layout kRows({10, 3}, DType::F32,
                   {{"copies", 2, Placement::replicate()}, {"rows", 2, Placement::shard(0)}});
const Tensors kTwoByTwo = {{2, 2}, {kRows, kRows, Layout({}, DType::F32, {{"copies", 2}, {"rows", 2}})}};
const Tensors kTwo = {{2},
                      {Layout({10, 3}, DType::F32, {{"rows", 2, Placement::shard(0)}}),
                       Layout({5}, DType::F64, {{"rows", 2, Placement::shard(0)}})}};

TEST(ShardedCheckpointTest, CopiesShareTheWork) {
  const testing::TempFolder folder;
  save(kTwoByTwo, 3, folder.path());
  std::set<std::string> files;
  const auto checkpoint = open_step(folder.path(), 3);
  for (const auto& [name, bytes] : checkpoint->manifest().files) files.insert(name);
  EXPECT_EQ(files, (std::set<std::string>{"rank-00000.safetensors", "rank-00001.safetensors",
                                          "rank-00002.safetensors", "rank-00003.safetensors"}));
  EXPECT_EQ(io::read_file(folder / "latest", 100), "checkpoint-3\n");
}

TEST(ShardedCheckpointTest, ARankReadsTheBytesItNeedsAndNothingElse) {
  const testing::TempFolder folder;
  save(kTwo, 1, folder.path());
  const auto checkpoint = open_step(folder.path(), 1);
  fs::remove(folder / "checkpoint-1/rank-00001.safetensors");
  const at::Tensor rows = at::zeros({2, 2});
  checkpoint->read(name_of(0), {{3, 1}, {2, 2}}, rows);
  EXPECT_TRUE(at::equal(rows, whole_value(kTwo.layouts[0], 0, 1).narrow(0, 3, 2).narrow(1, 1, 2)));
  EXPECT_THROW(checkpoint->read(name_of(0), {{4, 0}, {2, 3}}, at::zeros({2, 3})), Error);
}

TEST(ShardedCheckpointTest, GivesParametersTheirValues) {
  const testing::TempFolder folder;
  save(kTwo, 1, folder.path());
  const auto source = checkpoint_source(open_step(folder.path(), 1), "tensor.");
  EXPECT_TRUE(source->holds("1"));
  EXPECT_FALSE(source->holds("2"));
  const at::Tensor values = at::zeros({5}, at::kFloat);
  source->read("1", {{0}, {5}}, values);
  EXPECT_TRUE(at::equal(values, whole_value(kTwo.layouts[1], 1, 1).to(at::kFloat)));
}

TEST(ShardedCheckpointTest, OtherTensorsAreTold) {
  const testing::TempFolder folder;
  save(kTwo, 1, folder.path());
  const auto checkpoint = open_step(folder.path(), 1);
  Tensors other = {{1}, {Layout({10, 4}, DType::F32, {{"rows", 1}})}};
  expect_error(ErrorKind::Checkpoint,
               {"E-CKPT-TENSORS", "1 of another shape: tensor.0", "1 not used by this run: tensor.1"},
               [&] { load_checkpoint(*checkpoint, tensors_of(other, 0, -1)); });
  other.layouts = {kTwo.layouts[0], kTwo.layouts[1], Layout({2}, DType::F32, {{"rows", 1}})};
  other.mesh = {1};
  for (Layout& layout : other.layouts) layout = Layout(layout.shape(), layout.dtype(), {{"rows", 1}});
  expect_error(ErrorKind::Checkpoint, {"E-CKPT-TENSORS", "1 missing: tensor.2"},
               [&] { load_checkpoint(*checkpoint, tensors_of(other, 0, -1)); });
}

void change_byte(const std::string& path, int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  if (at < 0) at += static_cast<int64_t>(fs::file_size(path));
  file.seekg(at);
  const char byte = static_cast<char>(file.get() ^ 4);
  file.seekp(at);
  file.put(byte);
}

// A checkpoint is not loaded if any bit is flipped, or a file is missing, cut off, longer, or from another
// checkpoint.
TEST(ShardedCheckpointTest, DamageIsFound) {
  const testing::TempFolder folder;
  const auto checked = [&] { open_step(folder.path(), 1)->verify(0, 1); };
  const std::string home = folder / "checkpoint-1/";
  const auto anew = [&] {
    fs::remove_all(home);
    save(kTwo, 1, folder.path());
    checked();
  };
  for (const char* file :
       {"rank-00000.safetensors", "rank-00001.safetensors", "manifest.json", "metrics.jsonl"}) {
    SCOPED_TRACE(file);
    anew();
    const auto size = static_cast<int64_t>(fs::file_size(home + file));
    for (int64_t at = 0; at < size; at += std::max<int64_t>(1, size / 97)) {
      SCOPED_TRACE(at);
      change_byte(home + file, at);
      expect_error(ErrorKind::Checkpoint, {file}, checked);
      change_byte(home + file, at);
    }
    checked();
    fs::resize_file(home + file, static_cast<uintmax_t>(size - 2));
    expect_error(ErrorKind::Checkpoint, {file}, checked);
    fs::resize_file(home + file, static_cast<uintmax_t>(size + 1));
    expect_error(ErrorKind::Checkpoint, {file}, checked);
    // A loss of power leaves a file that was not flushed with its size, and zeros.
    fs::resize_file(home + file, static_cast<uintmax_t>(size / 2));
    fs::resize_file(home + file, static_cast<uintmax_t>(size));
    expect_error(ErrorKind::Checkpoint, {file}, checked);
    fs::remove(home + file);
    expect_error(ErrorKind::Checkpoint, {file}, checked);
  }
  anew();
  fs::rename(home + "rank-00000.safetensors", home + "swap");
  fs::rename(home + "rank-00001.safetensors", home + "rank-00000.safetensors");
  fs::rename(home + "swap", home + "rank-00001.safetensors");
  expect_error(ErrorKind::Checkpoint, {"E-CKPT-DAMAGED"}, checked);
}

TEST(ShardedCheckpointTest, AnotherFormatIsRefused) {
  const testing::TempFolder folder;
  save(kTwo, 1, folder.path());
  const std::string path = folder / "checkpoint-1/manifest.json";
  const std::string written = io::read_file(path, 1 << 20);
  std::string text;
  for (const char* other : {"1", "3"}) {
    text = written;
    text.replace(text.find("\"version\":2"), 11, std::string("\"version\":") + other);
    io::write_file_atomic(path, text);
    expect_error(ErrorKind::Checkpoint, {"E-CKPT-VERSION", std::string("got ") + other, "need 2"},
                 [&] { open_step(folder.path(), 1); });
  }
}

// A manifest whose checksum is right is still no manifest if its entries have other types.
TEST(ShardedCheckpointTest, EntriesOfOtherTypesAreDamage) {
  const testing::TempFolder folder;
  save(kTwo, 1, folder.path());
  const Manifest sound = read_manifest(folder / "checkpoint-1");
  const auto expect_refused = [&](const Manifest& manifest) {
    io::write_file_atomic(folder / "checkpoint-1/manifest.json", manifest_text(manifest));
    expect_error(ErrorKind::Checkpoint, {"E-CKPT-MANIFEST"}, [&] { open_step(folder.path(), 1); });
  };
  for (const nlohmann::json& entry :
       {nlohmann::json("text"), nlohmann::json(3), nlohmann::json::array(),
        nlohmann::json({{"bytes", "7"}, {"hash", "x"}}), nlohmann::json({{"bytes", 7}, {"hash", 7}})}) {
    Manifest other = sound;
    other.others.begin()->second = entry;
    expect_refused(other);
  }
  for (const nlohmann::ordered_json& state : {nlohmann::ordered_json("text"), nlohmann::ordered_json()}) {
    Manifest other = sound;
    other.state = state;
    expect_refused(other);
  }
}

TEST(ShardedCheckpointTest, FoldersAreOrderedByNumberAndLinksAreNone) {
  const testing::TempFolder folder;
  for (const char* name : {"checkpoint-9", "checkpoint-10", "checkpoint-010", "checkpoint-", "checkpoint-1x",
                           "checkpoint-11.tessera-partial", "notes"})
    fs::create_directories(folder / name);
  fs::create_directory_symlink(folder / "notes", folder / "checkpoint-12");
  io::write_file_atomic(folder / "checkpoint-13", "");
  std::vector<std::string> names;
  for (const auto& found : io::list_checkpoints(folder.path())) names.push_back(found.name);
  EXPECT_EQ(names, (std::vector<std::string>{"checkpoint-10", "checkpoint-9"}));
  EXPECT_TRUE(io::list_checkpoints(folder / "nothing").empty());
  io::clear_partial_checkpoints(folder.path());
  EXPECT_FALSE(fs::exists(folder / "checkpoint-11.tessera-partial"));
}

// Returns the step of the newest checkpoint of `folder`, after checking that it is whole; -1 if there is
// none.
int64_t newest(const std::string& folder) {
  const auto found = io::list_checkpoints(folder);
  if (found.empty()) return -1;
  const auto checkpoint = ShardedCheckpoint::open(folder + "/" + found.front().name);
  checkpoint->verify(0, 1);
  EXPECT_EQ(checkpoint->manifest().step, found.front().step);
  EXPECT_EQ(checkpoint->other_file("metrics.jsonl"), "step " + std::to_string(found.front().step) + "\n");
  expect_values(kTwo, *checkpoint, found.front().step);
  return found.front().step;
}

void clear_away(const std::string& folder, int64_t step) {
  fs::remove_all(folder + "/checkpoint-" + std::to_string(step));
}

// Two ranks are killed before each of the disk calls of a save.
TEST(ShardedCheckpointTest, AKilledSaveLeavesTheOlderOneOrTheNewOne) {
  const testing::TempFolder folder;
  save(kTwo, 5, folder.path());
  bool has_ended = false, has_seen_new = false;
  int stop = 0;
  for (; !has_ended; ++stop) {
    SCOPED_TRACE("killed at call " + std::to_string(stop + 1));
    const pid_t child = fork();
    if (child == 0) {
      std::atomic<int> calls = 0;
      io::disk::set_hook([&](std::string_view, const std::string&) {
        if (++calls == stop + 1) _exit(9);
        return 0;
      });
      save(kTwo, 6, folder.path());
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    has_ended = WEXITSTATUS(status) == 0;
    const int64_t found = newest(folder.path());
    ASSERT_TRUE(found == 5 || found == 6) << found;
    has_seen_new = has_seen_new || found == 6;
    if (!has_ended) clear_away(folder.path(), 6);
  }
  EXPECT_TRUE(has_seen_new);
  EXPECT_GT(stop, 20);
  EXPECT_EQ(newest(folder.path()), 6);
  EXPECT_EQ(folder.entries(), (std::vector<std::string>{"checkpoint-5", "checkpoint-6", "latest"}));
}

// The disk fails at each call, once or from then on: every rank gets an error, and the older checkpoint is
// whole.
TEST(ShardedCheckpointTest, AFailedSaveIsToldToAllAndLeavesTheOlderOne) {
  log::set_quiet(true);
  for (const int cause : {ENOSPC, EIO}) {
    for (const bool goes_on : {false, true}) {
      const testing::TempFolder folder;
      save(kTwo, 5, folder.path());
      bool has_failed = true;
      for (int stop = 1; has_failed; ++stop) {
        SCOPED_TRACE("failing from call " + std::to_string(stop) + (goes_on ? " on" : ""));
        std::atomic<int> calls = 0, failures = 0, told = 0;
        io::disk::set_hook([&](std::string_view, const std::string&) {
          const int call = ++calls;
          const bool fails = goes_on ? call >= stop : call == stop;
          failures += fails ? 1 : 0;
          return fails ? cause : 0;
        });
        comm::run_fake_ranks(2, [&](const auto& world) {
          try {
            save_checkpoint(tensors_of(kTwo, world->rank(), 6), notes_of(6), folder.path(), *world);
          } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::Storage) << error.what();
            ++told;
          }
        });
        io::disk::set_hook(nullptr);
        has_failed = failures > 0;
        EXPECT_TRUE(told == 0 || told == 2) << told;
        const int64_t found = newest(folder.path());
        ASSERT_TRUE(found == 5 || found == 6) << found;
        // Only the removal of leftovers may fail without an error.
        EXPECT_TRUE(told != 0 || found == 6);
        clear_away(folder.path(), 6);
      }
    }
  }
  log::set_quiet(false);
}

// The disk fails, or gives nothing, at each of the reads of a load: an error names the file and the byte,
// and no wrong values are loaded. If it gives fewer bytes than it is asked for, reading goes on.
TEST(ShardedCheckpointTest, AReadThatFailsIsToldWithItsPlace) {
  const testing::TempFolder folder;
  save(kTwo, 5, folder.path());
  const auto load = [&] {
    const auto checkpoint = open_step(folder.path(), 5);
    checkpoint->verify(0, 1);
    expect_values(kTwo, *checkpoint, 5);
  };
  struct Fault {
    const char* code;
    std::function<int64_t(int64_t num_bytes)> result;
  };
  const Fault faults[] = {{"E-STORAGE-IO", [](int64_t) { return -EIO; }},
                          {"E-STORAGE-SHORT-READ", [](int64_t) { return 0; }},
                          {"", [](int64_t num_bytes) { return (num_bytes + 1) / 2; }}};
  for (const Fault& fault : faults) {
    int stop = 1;
    for (bool has_failed = true; has_failed; ++stop) {
      SCOPED_TRACE(std::string(fault.code) + " at read " + std::to_string(stop));
      std::string path;
      int reads = 0;
      io::disk::set_read_hook([&](const std::string& read_path, int64_t num_bytes) {
        if (++reads != stop) return num_bytes;
        path = read_path;
        return fault.result(num_bytes);
      });
      if (fault.code[0] == '\0') {
        load();
      } else {
        try {
          load();
          EXPECT_TRUE(path.empty()) << "the fault at " << path << " is not told";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), fault.code) << error.what();
          EXPECT_THAT(error.what(), HasSubstr(path + ": byte "));
        }
      }
      io::disk::set_read_hook(nullptr);
      has_failed = !path.empty();
    }
    EXPECT_GT(stop, 10);
  }
}

TEST(ShardedCheckpointTest, ASaveReplacesOneOfItsStep) {
  const testing::TempFolder folder;
  save(kTwo, 5, folder.path());
  change_byte(folder / "checkpoint-5/rank-00000.safetensors", -1);
  save(kTwo, 5, folder.path());
  EXPECT_EQ(newest(folder.path()), 5);
  EXPECT_EQ(folder.entries(), (std::vector<std::string>{"checkpoint-5", "latest"}));
  io::remove_checkpoint(folder.path(), "checkpoint-5");
  EXPECT_EQ(folder.entries(), (std::vector<std::string>{"latest"}));
}

}  // namespace
}  // namespace tessera::checkpoint

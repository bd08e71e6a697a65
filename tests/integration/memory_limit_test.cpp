// Tests that a run whose memory is limited from outside is refused before it starts, and goes through with
// its optimizer states on a drive.
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/vfs.h>

#include <linux/magic.h>

#include "tests/integration/fixture.h"
#include "tests/testing/skip.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

// A control group of the memory controller, of version 1 or 2, for processes that join it.
class MemoryGroup {
 public:
  explicit MemoryGroup(int64_t bytes) {
    const std::string name = "tessera-test-" + std::to_string(getpid());
    for (const auto& [root, limit] : {std::pair("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                                      std::pair("/sys/fs/cgroup", "memory.max")}) {
      std::error_code problem;
      const fs::path folder = fs::path(root) / name;
      if (!fs::create_directory(folder, problem)) continue;
      if (write(folder / limit, std::to_string(bytes))) {
        folder_ = folder;
        return;
      }
      fs::remove(folder, problem);
    }
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  ~MemoryGroup() {
    std::error_code ignored;
    if (!folder_.empty()) fs::remove(folder_, ignored);
  }

  bool is_there() const { return !folder_.empty(); }
  // Makes the process that calls it, and those that it starts, a member.
  bool join() const { return write(folder_ / "cgroup.procs", std::to_string(getpid())); }

 private:
  static bool write(const fs::path& file, const std::string& text) {
    std::ofstream stream(file);
    return static_cast<bool>(stream << text << std::flush);
  }

  fs::path folder_;
};

// Files in memory would count against the limit.
class MemoryLimitTest : FilesOnADrive, public ProgramTest {};

// 33.6 million parameters: 128 MiB of weights and 257 MiB of states.
TEST_F(MemoryLimitTest, StatesOnADriveFitWhereAllTogetherDoNot) {
  const MemoryGroup group(int64_t{500} << 20);
  if (!group.is_there()) GTEST_SKIP() << skip::kPermission << ": control groups of one's own";
  struct statfs system = {};
  if (statfs(here.path().c_str(), &system) != 0 || system.f_type == TMPFS_MAGIC)
    GTEST_SKIP() << skip::kPermission << ": files here are memory";
  fs::create_directory(here / "wide");
  write_text(here / "wide/config.json",
             R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512,
                 "intermediate_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 8,
                 "num_key_value_heads": 8, "vocab_size": 264, "max_position_embeddings": 256,
                 "rms_norm_eps": 1e-5, "tie_word_embeddings": true})");
  write_text(here / "wide.yaml",
             "base_model: wide\nrandom_init: true\ndatasets: [{path: rows.jsonl}]\nlearning_rate: 1.0e-4\n"
             "sequence_len: 32\nmax_steps: 2\noutput_dir: limited\n");
  write_text(here / "rows.jsonl", tiny_rows(4));
  fs::create_directory(here / "drive");
  RunOptions limited;
  limited.prepare = [&group] {
    if (!group.join()) _exit(kCannotPrepare);
  };
  const ProgramResult refused = run({"train", "wide.yaml"}, limited);
  EXPECT_EQ(refused.exit_code, 10) << refused.told();
  EXPECT_NE(refused.err.find("E-MEMORY-CANNOT-FIT"), std::string::npos) << refused.told();
  EXPECT_FALSE(fs::exists(here / "limited"));
  const ProgramResult result = run({"train", "wide.yaml", "offload_optimizer_device=nvme",
                                    "offload_optimizer_nvme_path=" + (here / "drive")},
                                   limited);
  EXPECT_EQ(result.exit_code, 0) << result.told();
  EXPECT_NE(result.err.find("optimizer states on the drive"), std::string::npos) << result.told();
  EXPECT_TRUE(fs::exists(here / "limited/model.safetensors"));
}

}  // namespace
}  // namespace tessera::testing

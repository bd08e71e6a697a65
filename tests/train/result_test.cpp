// Kills a run, or a merge, over an older result at each of its disk calls.
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <sys/wait.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tessera/config/load_recipe.h"
#include "tessera/core/log.h"
#include "tessera/io/disk_calls.h"
#include "tessera/models/common/base_model.h"
#include "tessera/peft/merge.h"
#include "tessera/train/run/trainer.h"

#include "tests/testing/can_exchange.h"
#include "tests/testing/extent.h"
#include "tests/testing/skip.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_model.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;
using Tree = std::map<std::string, std::string>;

// Returns the files of a folder, without what differs from run to run: the names and contents of logs hold
// times.
Tree tree_of(const std::string& folder) {
  Tree tree;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = fs::relative(entry.path(), folder);
    if (name.starts_with("runs/")) {
      tree["runs/events"] += "one";
    } else if (entry.is_regular_file()) {
      tree[name] = name == "metrics.jsonl" ? "" : io::read_file(entry.path(), 1 << 24);
    }
  }
  return tree;
}

// Runs `work` in a process that ends with exit code 9 before its disk call number `stop`, if it gets there.
// Returns the exit code.
int run_stopped(int stop, const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    log::set_quiet(true);
    int calls = 0;
    if (stop > 0) {
      io::disk::set_hook([&](std::string_view, const std::string&) {
        if (++calls == stop) _exit(9);
        return 0;
      });
    }
    try {
      work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// All computations run in child processes: this process never starts LibTorch's threads, so it can fork.
class ResultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::can_exchange_folders()) GTEST_SKIP() << testing::skip::kExchange;
    testing::TinyModel tiny;
    tiny.layers = 1;
    testing::write_tiny_model(here_ / "model", tiny);
    // The older base model has files that the newer one lacks.
    fs::copy(here_ / "model", here_ / "older");
    testing::write_text(here_ / "older/generation_config.json", "{\"eos_token_id\": 257}");
    testing::write_text(here_ / "older/chat_template.jinja", "old {{ messages }}");
    testing::write_text(here_ / "rows.jsonl", testing::tiny_rows(4));
  }

  void train_into_out(const std::string& base, const std::string& more) const {
    const std::string text =
        "base_model: " + here_ / base + "\ndatasets:\n  - path: " + here_ / "rows.jsonl" +
        "\nlearning_rate: 1e-2\nmax_steps: 1\noverwrite_output_dir: true\noutput_dir: " + here_ / "out" +
        "\n" + more;
    config::Recipe recipe = config::parse_recipe(text, here_ / "recipe.yaml");
    train(recipe, comm::Communicator::single());
  }
  std::function<void()> full(const std::string& base) const {
    return [this, base] { train_into_out(base, ""); };
  }
  std::function<void()> lora(const std::string& base) const {
    return [this, base] { train_into_out(base, "adapter: lora\nlora_target_linear: true\n"); };
  }

  // Expects that `newer`, stopped at any disk call over the result of `older`, leaves one of the two
  // results, and that the next run cleans up. Of the calls about a third are drawn, and always the first and
  // the last one.
  void kill_everywhere(const std::function<void()>& older, const std::function<void()>& newer) const {
    ASSERT_EQ(run_stopped(0, newer), 0);
    const Tree want_new = tree_of(here_ / "out");
    ASSERT_EQ(run_stopped(0, older), 0);
    const Tree want_old = tree_of(here_ / "out");
    ASSERT_NE(want_old, want_new);
    fs::copy(here_ / "out", here_ / "kept", fs::copy_options::recursive);
    testing::Random random;
    bool has_ended = false, has_seen_new = false, skips_calls = false;
    int stop = 0, last_kill = 0;
    while (!has_ended) {
      stop = last_kill + (skips_calls ? static_cast<int>(random.in(1, 5)) : 1);
      SCOPED_TRACE("killed at call " + std::to_string(stop));
      const int code = run_stopped(stop, newer);
      ASSERT_TRUE(code == 0 || code == 9) << code;
      has_ended = code == 0 && stop == last_kill + 1;
      // The run has fewer calls than that. Those that were skipped since the last kill come now, one by one,
      // so that the last call is among them.
      if (code == 0) skips_calls = false;
      if (code == 9) {
        if (last_kill == 0) skips_calls = !testing::runs_all_cases();
        last_kill = stop;
      }
      const Tree found = tree_of(here_ / "out");
      ASSERT_TRUE(found == want_old || found == want_new) << "a mix";
      has_seen_new = has_seen_new || found == want_new;
      if (found != want_new) continue;
      // Put the older result back for the next stop, beside what the killed run has left.
      fs::remove_all(here_ / "out");
      fs::copy(here_ / "kept", here_ / "out", fs::copy_options::recursive);
    }
    EXPECT_TRUE(has_seen_new);
    EXPECT_GT(stop, 40);
    ASSERT_EQ(run_stopped(0, newer), 0);
    EXPECT_EQ(tree_of(here_ / "out"), want_new);
    for (const std::string& name : here_.entries())
      EXPECT_EQ(name.find("tessera-"), std::string::npos) << name;
    fs::remove_all(here_ / "kept");
  }

  testing::TempFolder here_;
};

TEST_F(ResultTest, AFullRunOverAnAdapter) { kill_everywhere(lora("older"), full("model")); }

TEST_F(ResultTest, AnAdapterOverAFullRun) {
  kill_everywhere(full("older"), lora("model"));
  EXPECT_EQ((std::set<std::string>{"adapter_config.json", "adapter_model.safetensors", "metrics.jsonl",
                                   "recipe.yaml", "runs/events", "special_tokens_map.json", "tokenizer.json",
                                   "tokenizer_config.json"}),
            [&] {
              std::set<std::string> names;
              for (const auto& [name, text] : tree_of(here_ / "out")) names.insert(name);
              return names;
            }());
}

TEST_F(ResultTest, AMergeOverAFullRun) {
  ASSERT_EQ(run_stopped(0, lora("model")), 0);
  fs::rename(here_ / "out", here_ / "adapter");
  kill_everywhere(full("older"), [&] {
    peft::merge_adapter(models::folder_tensors(here_ / "model"), here_ / "adapter", here_ / "out", true);
  });
}

}  // namespace
}  // namespace tessera::train

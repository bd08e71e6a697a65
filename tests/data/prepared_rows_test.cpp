#include "tessera/data/prepared_rows.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <sys/wait.h>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/data/prepare.h"
#include "tessera/io/disk_calls.h"

#include "tests/data/expect_error.h"
#include "tests/data/prompt_fixture.h"
#include "tests/testing/temp_folder.h"

namespace tessera::data {
namespace {

using ::testing::HasSubstr;

class PreparedRowsTest : public ::testing::Test {
 protected:
  PreparedRowsTest() {
    config_.source_folder = folder_.path();
    config_.sequence_len = 64;
    config_.dataset_prepared_path = folder_ / "prepared";
    write_rows("tile ");
    config_.datasets.push_back(dataset_of({{"path", "a.jsonl"}, {"type", "completion"}}));
  }

  void write_rows(const std::string& word) const {
    std::string text;
    for (int i = 0; i < 20; ++i) text += "{\"text\": \"" + word + std::to_string(i) + "\"}\n\n";
    folder_.write("a.jsonl", text);
  }

  // Returns the rows, and in `is_kept` whether they came from the kept file.
  PreparedData prepare(bool* is_kept = nullptr, const std::string& fingerprint = "tokenizer",
                       std::optional<int64_t> now = std::nullopt) {
    ::testing::internal::CaptureStderr();
    PreparedData data =
        prepare_data(config_, small_tokenizer(), nullptr, {.tokenizer_fingerprint = fingerprint, .now = now});
    told_ = ::testing::internal::GetCapturedStderr();
    if (is_kept != nullptr) *is_kept = told_.find("prepared rows taken from") != std::string::npos;
    return data;
  }

  std::vector<std::string> kept() const {
    std::vector<std::string> paths;
    if (!std::filesystem::exists(config_.dataset_prepared_path)) return paths;
    for (const auto& entry : std::filesystem::directory_iterator(config_.dataset_prepared_path))
      if (entry.is_directory()) paths.push_back(entry.path().string());
    return paths;
  }

  testing::TempFolder folder_;
  config::DataConfig config_;
  std::string told_;
};

std::vector<Row> rows_of(const PreparedData& data) {
  std::vector<Row> rows;
  for (const int64_t row : data.train.rows) rows.push_back(data.train.store->row(row));
  return rows;
}

std::string read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

void expect_same(const PreparedData& a, const PreparedData& b) {
  const auto left = rows_of(a), right = rows_of(b);
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].input_ids, right[i].input_ids);
    EXPECT_EQ(left[i].labels, right[i].labels);
  }
  for (const auto field : {&DatasetStats::records, &DatasetStats::blank_lines, &DatasetStats::tokens,
                           &DatasetStats::label_tokens, &DatasetStats::end_labels, &DatasetStats::longest})
    EXPECT_EQ(a.train_stats[0].*field, b.train_stats[0].*field);
  EXPECT_EQ(a.train_stats[0].path, b.train_stats[0].path);
  EXPECT_EQ(a.train_stats[0].details(), b.train_stats[0].details());
}

TEST_F(PreparedRowsTest, TheNextRunTakesThem) {
  bool is_kept = true;
  const PreparedData first = prepare(&is_kept);
  EXPECT_FALSE(is_kept);
  ASSERT_EQ(kept().size(), 1u);
  const PreparedData second = prepare(&is_kept);
  EXPECT_TRUE(is_kept) << told_;
  expect_same(first, second);
  // The counts of what the type noticed are kept with the rows.
  folder_.write("a.jsonl", R"({"messages": [{"role": "user", "content": "a", "mood": "good"},)"
                           R"( {"role": "assistant", "content": "b"}]})");
  config_.datasets[0] =
      dataset_of({{"path", "a.jsonl"}, {"type", "chat_template"}, {"chat_template", "chatml"}});
  const PreparedData chat = prepare(&is_kept);
  EXPECT_FALSE(is_kept);
  EXPECT_EQ(chat.train_stats[0].unread_fields, (std::map<std::string, int64_t>{{"mood", 1}}));
  expect_same(chat, prepare(&is_kept));
  EXPECT_TRUE(is_kept) << told_;
  EXPECT_THAT(told_, HasSubstr("mood (1 messages)"));
  write_rows("tile ");
  config_.datasets[0] = dataset_of({{"path", "a.jsonl"}, {"type", "completion"}});
  // Nothing is kept if the recipe names no folder.
  config_.dataset_prepared_path.clear();
  expect_same(first, prepare(&is_kept));
  EXPECT_FALSE(is_kept);
}

TEST_F(PreparedRowsTest, WhateverShapesRowsMakesThemAnew) {
  prepare();
  bool is_kept = true;
  write_rows("other ");
  const auto text = rows_of(prepare(&is_kept));
  EXPECT_FALSE(is_kept);
  write_rows("tile ");
  prepare(&is_kept, "another tokenizer");
  EXPECT_FALSE(is_kept);
  const std::vector<std::function<void(config::DataConfig&)>> changes = {
      [](config::DataConfig& r) { r.sequence_len = 32; },
      [](config::DataConfig& r) { r.min_sample_len = 3; },
      [](config::DataConfig& r) { r.train_on_inputs = true; },
      [](config::DataConfig& r) { r.excess_length_strategy = config::ExcessLength::Truncate; },
      [](config::DataConfig& r) { r.datasets[0].split = "train[:5]"; },
      [](config::DataConfig& r) { r.datasets[0].field = "text2"; }};
  const config::DataConfig original = config_;
  for (size_t i = 0; i < changes.size(); ++i) {
    config_ = original;
    changes[i](config_);
    try {
      prepare(&is_kept);
      EXPECT_FALSE(is_kept) << i;
    } catch (const Error&) {
      ::testing::internal::GetCapturedStderr();  // a field does not exist: rows were not taken from the file
    }
  }
  // Keys that change no row do not lead to a new preparation.
  config_ = original;
  config_.shuffle_merged_datasets = false;
  config_.max_bad_lines = 5;
  prepare(&is_kept);
  EXPECT_TRUE(is_kept);
}

TEST_F(PreparedRowsTest, ATemplateWithTheDateIsOfItsDay) {
  constexpr int64_t kNoon = 20000 * int64_t{86400} + 43200, kHour = 3600;
  folder_.write("chats.jsonl",
                R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})");
  const auto use_template = [&](const std::string& start) {
    config_.datasets = {dataset_of(
        {{"path", "chats.jsonl"},
         {"type", "chat_template"},
         {"chat_template", "jinja"},
         {"chat_template_jinja", start + "{% for m in messages %}{{ m['content'] }};{% endfor %}"}})};
  };
  bool is_kept = true;
  use_template("{{ strftime_now('%d %b') }} ");
  const auto first = rows_of(prepare(&is_kept, "tokenizer", kNoon));
  EXPECT_FALSE(is_kept);
  prepare(&is_kept, "tokenizer", kNoon + 11 * kHour);
  EXPECT_TRUE(is_kept) << "the same day";
  const auto next = rows_of(prepare(&is_kept, "tokenizer", kNoon + 13 * kHour));
  EXPECT_FALSE(is_kept);
  EXPECT_NE(first.at(0).input_ids, next.at(0).input_ids) << "rows say their own day";

  use_template("");
  prepare(&is_kept, "tokenizer", kNoon);
  EXPECT_FALSE(is_kept);
  prepare(&is_kept, "tokenizer", kNoon + 13 * kHour);
  EXPECT_TRUE(is_kept);
}

// Damage of the index is found at the start, and the rows are made again. Damage of a row is found when it
// is used.
TEST_F(PreparedRowsTest, DamageIsNeverTakenForRows) {
  const PreparedData first = prepare();
  const std::string path = kept().at(0) + "/000000.rows";
  const std::string sound = read_text(path);
  std::mt19937 random(7);
  int64_t made_again = 0, refused = 0;
  for (int i = 0; i < 200; ++i) {
    std::string damaged = sound;
    const size_t at = random() % damaged.size();
    if (i % 3 == 0) {
      damaged.resize(at);
    } else if (i % 3 == 1) {
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    } else {
      damaged += damaged.substr(0, at);
    }
    if (damaged == sound) continue;
    // The damaged rows go into a new file, since the first one is still mapped.
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary) << damaged;
    bool is_kept = true;
    const PreparedData again = prepare(&is_kept);
    if (is_kept) {
      ++refused;
      EXPECT_THAT(error_text("E-STORAGE-DAMAGED-ROWS", [&] { rows_of(again); }), HasSubstr(path)) << i;
      continue;
    }
    ++made_again;
    EXPECT_THAT(told_, HasSubstr("are damaged and are prepared again"));
    expect_same(first, again);
  }
  EXPECT_GT(made_again, 100);
  EXPECT_GT(refused, 10);
  std::filesystem::remove(path);
  expect_same(first, prepare());
  bool is_kept = false;
  expect_same(first, prepare(&is_kept));
  EXPECT_TRUE(is_kept);
}

// Tests of preparations that are killed at any of their disk calls, or in which any of these fails.
class DiskFaultTest : public PreparedRowsTest {
 protected:
  PreparedData prepare_in_chunks() {
    return prepare_data(config_, small_tokenizer(), nullptr,
                        {.tokenizer_fingerprint = "tokenizer", .chunk_bytes = 120});
  }
};

TEST_F(DiskFaultTest, AKilledProcessLeavesOnlyWhatIsWhole) {
  const PreparedData whole = prepare_in_chunks();
  ASSERT_EQ(kept().size(), 1u);
  const auto num_chunks =
      std::ranges::count_if(std::filesystem::directory_iterator(kept()[0]),
                            [](const auto& entry) { return entry.path().extension() == ".rows"; });
  ASSERT_GT(num_chunks, 2);
  int64_t kills = 0;
  for (bool was_killed = true; was_killed; ++kills) {
    std::filesystem::remove_all(config_.dataset_prepared_path);
    const pid_t child = ::fork();
    if (child == 0) {
      int64_t calls = 0;
      io::disk::set_hook([&](std::string_view, const std::string&) {
        if (calls++ == kills) ::_exit(9);
        return 0;
      });
      log::set_quiet(true);
      prepare_in_chunks();
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    was_killed = WEXITSTATUS(status) == 9;
    expect_same(whole, prepare_in_chunks());
    for (const auto& entry : std::filesystem::recursive_directory_iterator(config_.dataset_prepared_path)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("complete")) continue;  // leftovers of this file are only a few bytes
      EXPECT_EQ(name.find(".tmp."), std::string::npos) << name << " after kill " << kills;
    }
  }
  EXPECT_GT(kills, 3 * num_chunks);
}

TEST_F(DiskFaultTest, AFullDiskIsNoReasonToStop) {
  const PreparedData whole = prepare_in_chunks();
  int64_t faults = 0;
  for (bool has_failed = true; has_failed; ++faults) {
    std::filesystem::remove_all(config_.dataset_prepared_path);
    int64_t calls = 0;
    io::disk::set_hook([&](std::string_view call, const std::string&) {
      const bool fails = calls++ == faults && call != "remove_file";
      return fails ? ENOSPC : 0;
    });
    ::testing::internal::CaptureStderr();
    const PreparedData rows = prepare_in_chunks();
    const std::string told = ::testing::internal::GetCapturedStderr();
    io::disk::set_hook(nullptr);
    has_failed = calls > faults;
    expect_same(whole, rows);
  }
  EXPECT_GT(faults, 10);
}

TEST_F(DiskFaultTest, ProcessesShareTheWork) {
  const PreparedData whole = prepare_in_chunks();
  std::filesystem::remove_all(config_.dataset_prepared_path);
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    log::set_quiet(true);
    const PreparedData rows = prepare_in_chunks();
    ::_exit(rows_of(rows).size() == rows_of(whole).size() ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  expect_same(whole, prepare_in_chunks());
  EXPECT_EQ(kept().size(), 1u);
}

TEST_F(PreparedRowsTest, SeveralProcessesAtATime) {
  const PreparedData first = prepare();
  std::filesystem::remove_all(config_.dataset_prepared_path);
  ::testing::internal::CaptureStderr();
  std::vector<PreparedData> results(6);
  {
    std::vector<std::jthread> threads;
    for (PreparedData& result : results) {
      threads.emplace_back([&] {
        for (int i = 0; i < 5; ++i)
          result = prepare_data(config_, small_tokenizer(), nullptr, {.tokenizer_fingerprint = "tokenizer"});
      });
    }
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr().find("warning"), std::string::npos);
  for (const PreparedData& result : results) expect_same(first, result);
  EXPECT_EQ(kept().size(), 1u);
}

TEST_F(PreparedRowsTest, AFolderThatCannotBeIsNoReasonToStop) {
  folder_.write("prepared", "a file");
  EXPECT_EQ(prepare().train.size(), 20);
  EXPECT_THAT(told_, HasSubstr("prepared rows cannot be stored; training continues"));
  config_.on_bad_line = "skip";
  config_.dataset_prepared_path = folder_ / "other";
  folder_.write("a.jsonl", "{\"text\": \"good\"}\nbad\n");
  for (int run = 0; run < 2; ++run) {
    EXPECT_EQ(prepare().train.size(), 1);
    EXPECT_THAT(told_, HasSubstr("skipped 1 bad of 2 records; the first: ")) << "told of in every run";
  }
  config_.max_bad_lines = 0;
  EXPECT_THAT(
      error_text(
          "E-DATA-TOO-MANY-BAD-LINES",
          [&] { prepare_data(config_, small_tokenizer(), nullptr, {.tokenizer_fingerprint = "tokenizer"}); }),
      HasSubstr("a.jsonl:2:"));
}

}  // namespace
}  // namespace tessera::data

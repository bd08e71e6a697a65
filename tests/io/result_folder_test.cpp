#include "tessera/io/result_folder.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tessera/io/checkpoint_folders.h"
#include "tessera/io/disk_calls.h"
#include "tessera/io/file.h"
#include "tessera/io/log_file.h"
#include "tessera/io/output_file.h"
#include "tessera/io/result_files.h"

#include "tests/testing/can_exchange.h"
#include "tests/testing/skip.h"
#include "tests/testing/temp_folder.h"

namespace tessera::io {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempFolder;

constexpr const char* kKey = "overwrite_output_dir: true";

// The files of a folder: contents by path below it.
using Tree = std::map<std::string, std::string>;

Tree tree_of(const std::string& folder) {
  Tree tree;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) tree[fs::relative(entry.path(), folder)] = read_file(entry.path(), 1 << 20);
  }
  return tree;
}

const Tree kOldResult = {{"config.json", "old config"},
                         {"model-00001-of-00002.safetensors", "old 1"},
                         {"model-00002-of-00002.safetensors", "old 2"},
                         {"model.safetensors.index.json", "old index"},
                         {"chat_template.jinja", "old template"},
                         {"additional_chat_templates/tool_use.jinja", "old template for tools"},
                         {"generation_config.json", "old generation"},
                         {"metrics.jsonl", "old line\n"},
                         {"runs/events.out.tfevents.1.2", "old events"}};
const Tree kNewResult = {{"adapter_config.json", "new config"},
                         {"adapter_model.safetensors", "new weights"},
                         {"metrics.jsonl", "new line\n"},
                         {"runs/events.out.tfevents.3.4", "new events"}};

void write_tree(const std::string& folder, const Tree& tree) {
  for (const auto& [name, text] : tree) {
    fs::create_directories(fs::path(folder + "/" + name).parent_path());
    std::ofstream(folder + "/" + name) << text;
  }
}

ResultOptions overwriting() { return {.overwrites = true, .how_to_overwrite = kKey, .inputs = {}}; }
ResultOptions careful() { return {.overwrites = false, .how_to_overwrite = kKey, .inputs = {}}; }

// Does what a run does with its result folder, through disk calls that a test can stop.
void run_once(const std::string& path, const Tree& tree, const ResultOptions& options,
              const std::vector<std::string>& stays = {}) {
  ResultFolder result(path, options);
  result.begin();
  result.keep_unfinished({"metrics.jsonl", "runs"});
  make_directories(join_path(result.staging(), "runs"));
  for (const auto& [name, text] : tree) {
    const std::string file = join_path(result.staging(), name);
    if (name == "metrics.jsonl" || name.starts_with("runs/")) {
      LogFile(file).append(text);
    } else {
      write_file_atomic(file, text);
    }
  }
  result.commit(stays);
}

std::string code_of(const std::function<void()>& work, std::string* text = nullptr) {
  try {
    work();
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.code();
  }
  return "";
}

TEST(ResultFolder, LeavesTheResultAlone) {
  const TempFolder folder;
  run_once(folder / "a/b/out/", kNewResult, careful());
  EXPECT_EQ(tree_of(folder / "a/b/out"), kNewResult);
  EXPECT_EQ(tree_of(folder.path()).size(), kNewResult.size()) << "nothing beside it";
  EXPECT_THAT(folder.entries(), ElementsAre("a"));
}

TEST(ResultFolder, TakesThePlaceOfAnEmptyFolder) {
  const TempFolder folder;
  fs::create_directory(folder / "out");
  fs::permissions(folder / "out", fs::perms::owner_all | fs::perms::group_read);
  run_once(folder / "out", kNewResult, careful());
  EXPECT_EQ(tree_of(folder / "out"), kNewResult);
  EXPECT_EQ(fs::status(folder / "out").permissions(), fs::perms::owner_all | fs::perms::group_read);
}

TEST(ResultFolder, ReplacesAnOlderResultAsAWholeWhenToldTo) {
  const TempFolder folder;
  write_tree(folder / "out", kOldResult);
  std::string text;
  EXPECT_EQ(code_of([&] { ResultFolder(folder / "out", careful()); }, &text), "E-CONFIG-OUTPUT-USED");
  EXPECT_THAT(text, HasSubstr("already contains a result"));
  EXPECT_THAT(text, HasSubstr(kKey));
  EXPECT_EQ(tree_of(folder / "out"), kOldResult);
  EXPECT_THAT(folder.entries(), ElementsAre("out"));

  run_once(folder / "out", kNewResult, overwriting());
  EXPECT_EQ(tree_of(folder / "out"), kNewResult);
  EXPECT_THAT(folder.entries(), ElementsAre("out"));
}

TEST(ResultFolder, NeverReplacesAFolderWithOtherFiles) {
  for (const char* name : {"notes.txt", "checkpoint-10/model.safetensors",
                           "runs/Nov22_host/events.out.tfevents.1.2", "pytorch_model.bin", "runs/notes"}) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    Tree tree = kOldResult;
    tree[name] = "mine";
    write_tree(folder / "out", tree);
    std::string text;
    EXPECT_EQ(code_of([&] { ResultFolder(folder / "out", overwriting()); }, &text),
              "E-CONFIG-OUTPUT-FOREIGN");
    EXPECT_THAT(text, HasSubstr(std::string(name).substr(0, 5)));
    EXPECT_EQ(tree_of(folder / "out"), tree);
  }
  const TempFolder folder;
  write_tree(folder.path(), {{"elsewhere/weights", "mine"}});
  fs::create_directory(folder / "out");
  fs::create_symlink("../elsewhere/weights", folder / "out/model.safetensors");
  EXPECT_EQ(code_of([&] { ResultFolder(folder / "out", overwriting()); }), "E-CONFIG-OUTPUT-FOREIGN");
}

TEST(ResultFolder, FilesOfOthersStayBesideCheckpointsThatARunGoesOnFrom) {
  const TempFolder folder;
  Tree tree = {{"checkpoint-3/manifest.json", "3"}, {"model-3/config.json", "mine"}, {"notes.txt", "mine"}};
  write_tree(folder / "out", tree);
  std::filesystem::create_symlink("nowhere", folder / "out/gone");
  ResultOptions options = careful();
  options.continues = true;
  run_once(folder / "out", kNewResult, options);
  tree.erase("checkpoint-3/manifest.json");
  tree.insert(kNewResult.begin(), kNewResult.end());
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "out/gone"));
  std::filesystem::remove(folder / "out/gone");
  EXPECT_EQ(tree_of(folder / "out"), tree);
  EXPECT_THAT(folder.entries(), ElementsAre("out"));
  write_tree(folder / "out", {{"checkpoint-3/manifest.json", "3"}, {"checkpoint-3/mine", "mine"}});
  EXPECT_EQ(code_of([&] { ResultFolder(folder / "out", options); }), "E-CONFIG-OUTPUT-FOREIGN");
}

TEST(ResultFolder, AResultIsSetAsideFromItsCheckpoints) {
  const TempFolder folder;
  Tree tree = kOldResult;
  tree["checkpoint-3/manifest.json"] = tree["latest"] = tree["notes.txt"] = "x";
  write_tree(folder / "out", tree);
  EXPECT_TRUE(set_result_aside(folder / "out"));
  Tree want = {{"checkpoint-3/manifest.json", "x"}, {"latest", "x"}, {"notes.txt", "x"}};
  for (const auto& [name, text] : kOldResult) want["older-result/" + name] = text;
  EXPECT_EQ(tree_of(folder / "out"), want);
  EXPECT_FALSE(set_result_aside(folder / "out"));
  EXPECT_EQ(tree_of(folder / "out"), want);
  EXPECT_THAT(foreign_files(folder / "out"), ElementsAre("notes.txt"));
}

// Returns the code with which an output file is refused; "" if it may be written.
std::string output_code(const TempFolder& folder, const std::string& path, bool overwrites = false) {
  return code_of([&] {
    check_output_file(
        {.path = folder / path,
         .named_by = "--out",
         .inputs = {{"the model", folder / "model"}, {"the rows", folder / "rows.jsonl"}, {"none", ""}},
         .is_earlier_output = begins_with("PAGE"),
         .overwrites = overwrites});
  });
}

TEST(OutputFile, IsNeverAnInputNorUnaskedAnotherFile) {
  const TempFolder folder;
  write_tree(folder.path(), {{"model/weights", "w"},
                             {"model/page", "PAGE 1"},
                             {"rows.jsonl", "PAGE of rows"},
                             {"page", "PAGE 1"},
                             {"mine", "PAG"},
                             {"empty", ""}});
  fs::create_symlink("model/weights", folder / "link");
  fs::create_hard_link(folder / "rows.jsonl", folder / "again");
  fs::create_directory(folder / "folder");
  for (const bool overwrites : {false, true}) {
    for (const char* free : {"new", "page", "empty", "model/new", "model/page", "no/such/folder"})
      EXPECT_EQ(output_code(folder, free, overwrites), "") << free;
    for (const char* input : {"model/weights", "link", "rows.jsonl", "again", "model/../rows.jsonl"})
      EXPECT_EQ(output_code(folder, input, overwrites), "E-CONFIG-OUTPUT-INPUT") << input;
    EXPECT_EQ(output_code(folder, "folder", overwrites), "E-CONFIG-OUTPUT-USED");
  }
  EXPECT_EQ(output_code(folder, "mine"), "E-CONFIG-OUTPUT-USED");
  EXPECT_EQ(output_code(folder, "mine", true), "");
}

TEST(ResultFolder, RefusesToReplaceWhatTheRunReads) {
  const TempFolder folder;
  write_tree(folder.path(),
             {{"base/config.json", "x"}, {"work/recipe.yaml", "x"}, {"work/data/rows.jsonl", "x"}});
  fs::create_symlink("base", folder / "link");
  const auto code = [&](const std::string& output, const std::string& input) {
    ResultOptions options = overwriting();
    options.inputs = {{"the base model", ""}, {"the base model", folder / input}};
    return code_of([&] { ResultFolder(folder / output, options); });
  };
  EXPECT_EQ(code("base", "base"), "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(code("base/", "base/config.json"), "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(code("link", "base"), "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(code("base", "link"), "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(code("base/../base", "link/config.json"), "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(code("work", "work/recipe.yaml"), "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(code("work", "work/data/rows.jsonl"), "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(code(".", "base"), "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(code("work/out", "work/recipe.yaml"), "");
  EXPECT_EQ(code("work/out", "work/data"), "");
  ResultOptions whole = overwriting();
  whole.inputs = {{"a dataset", folder / "work/data", true}};
  EXPECT_EQ(code_of([&] { ResultFolder(folder / "work/data/deep/out", whole); }), "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(code_of([&] { ResultFolder(folder / "work/out", whole); }), "");
  EXPECT_EQ(code("bas", "base"), "");
  EXPECT_EQ(code("out", "base"), "");
  EXPECT_THAT(folder.entries(), ElementsAre("base", "link", "work"));
  // A ".." after a link leads to the parent of the link's target, not of the link.
  fs::create_symlink("work/data", folder / "deep");
  EXPECT_EQ(code("deep/../data", "work/data"), "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(code("deep/..", "work/recipe.yaml"), "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(code("work", "deep/../recipe.yaml"), "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(code("deep/../base", "base"), "");
}

TEST(ResultFolder, RefusesToReplaceWhatTheRunReadsByAnotherName) {
  const TempFolder folder;
  write_tree(folder.path(), {{"disk/base/config.json", "x"}, {"disk/data/rows.jsonl", "x"}});
  fs::create_directory(folder / "mirror");
  if (mount((folder / "disk").c_str(), (folder / "mirror").c_str(), nullptr, MS_BIND, nullptr) != 0)
    GTEST_SKIP() << testing::skip::kPermission << ": mounts";
  const auto code = [&](const std::string& output, const std::string& input, bool reads_all = false) {
    ResultOptions options = overwriting();
    options.inputs = {{"an input", folder / input, reads_all}};
    return code_of([&] { ResultFolder(folder / output, options); });
  };
  const std::string is = code("mirror/base", "disk/base"),
                    holds = code("mirror/data", "disk/data/rows.jsonl"),
                    lies_in = code("mirror/data/a/out", "disk/data", true),
                    apart = code("mirror/out", "disk/base");
  umount((folder / "mirror").c_str());
  EXPECT_EQ(is, "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(holds, "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(lies_in, "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(apart, "");
}

TEST(ResultFolder, RefusesToHoldWhatTheRunMakes) {
  const TempFolder folder;
  const auto code = [&](const std::string& output, const std::string& made) {
    ResultOptions options = overwriting();
    options.inputs = {{.what = "the prepared rows", .path = folder / made, .is_made = true}};
    return code_of([&] { ResultFolder(folder / output, options); });
  };
  EXPECT_EQ(code("out", "out"), "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(code("out", "out/a/prepared"), "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(code("out/", "./out/prepared/"), "E-CONFIG-OUTPUT-INPUT");
  EXPECT_TRUE(folder.entries().empty());
  EXPECT_EQ(code("out", "prepared"), "");
  EXPECT_EQ(code("out", "output"), "");
  EXPECT_EQ(code("made/out", "made"), "") << "rows and results may share a folder above";
}

TEST(ResultFolder, WritesThroughALinkToAFolder) {
  const TempFolder folder;
  write_tree(folder / "disk/real", kOldResult);
  fs::create_symlink("disk/real", folder / "out");
  run_once(folder / "out", kNewResult, overwriting());
  EXPECT_TRUE(fs::is_symlink(folder / "out"));
  EXPECT_EQ(tree_of(folder / "disk/real"), kNewResult);
}

TEST(ResultFolder, RefusesWhatIsNoFolder) {
  const TempFolder folder;
  folder.write("file", "x");
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  fs::create_symlink("nowhere", folder / "dangling");
  EXPECT_EQ(code_of([&] { ResultFolder(folder / "file", overwriting()); }), "E-STORAGE-NOT-A-DIRECTORY");
  EXPECT_EQ(code_of([&] { ResultFolder(folder / "file/out", overwriting()); }), "E-STORAGE-NOT-A-DIRECTORY");
  EXPECT_EQ(code_of([&] { ResultFolder(folder / "fifo", overwriting()); }), "E-STORAGE-NOT-A-DIRECTORY");
  EXPECT_EQ(code_of([&] { ResultFolder("/dev/null", overwriting()); }), "E-STORAGE-NOT-A-DIRECTORY");
  EXPECT_EQ(code_of([&] { ResultFolder(folder / "dangling", overwriting()); }), "E-STORAGE-NOT-FOUND");
  EXPECT_EQ(code_of([&] { ResultFolder("", overwriting()); }), "E-CONFIG-OUTPUT");
  EXPECT_EQ(code_of([&] { ResultFolder(folder / std::string(250, 'n'), overwriting()); }),
            "E-STORAGE-SYSTEM");
  EXPECT_THAT(folder.entries(), ElementsAre("dangling", "fifo", "file"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(ResultFolder, RefusesAMountPoint) {
  const TempFolder folder;
  fs::create_directory(folder / "out");
  if (mount("none", (folder / "out").c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << testing::skip::kPermission << ": mounts";
  const std::string code = code_of([&] { ResultFolder(folder / "out", overwriting()); });
  const std::string below = code_of([&] { run_once(folder / "out/run", {{"config.json", "x"}}, careful()); });
  umount((folder / "out").c_str());
  EXPECT_EQ(code, "E-CONFIG-OUTPUT-MOUNT");
  EXPECT_EQ(below, "");
}

TEST(ResultFolder, TwoRunsIntoOneFolderAreRefused) {
  const TempFolder folder;
  write_tree(folder / "out", kOldResult);
  fs::create_symlink("out", folder / "link");
  {
    ResultFolder first(folder / "out", overwriting());
    std::string text;
    EXPECT_EQ(code_of([&] { ResultFolder(folder / "link", overwriting()); }, &text),
              "E-CONFIG-OUTPUT-LOCKED");
    EXPECT_THAT(text, HasSubstr("process " + std::to_string(getpid())));
    first.begin();
    EXPECT_EQ(code_of([&] { ResultFolder(folder / "out", overwriting()); }), "E-CONFIG-OUTPUT-LOCKED");
    EXPECT_TRUE(fs::exists(first.staging())) << "the first run's";
  }
  EXPECT_THAT(folder.entries(), ElementsAre("link", "out"));
  run_once(folder / "out", kNewResult, overwriting());
}

TEST(ResultFolder, ARunThatFailsLeavesItsLogsUntilTheNextOne) {
  const TempFolder folder;
  write_tree(folder / "out", kOldResult);
  {
    ResultFolder result(folder / "out", overwriting());
    result.begin();
    result.keep_unfinished({"metrics.jsonl", "runs"});
    write_tree(result.staging(), kNewResult);
  }
  EXPECT_EQ(tree_of(folder / "out"), kOldResult);
  EXPECT_EQ(tree_of(folder / "out.tessera-partial"),
            (Tree{{"metrics.jsonl", "new line\n"}, {"runs/events.out.tfevents.3.4", "new events"}}));
  run_once(folder / "out", kNewResult, overwriting());
  EXPECT_EQ(tree_of(folder / "out"), kNewResult);
  EXPECT_THAT(folder.entries(), ElementsAre("out"));
}

TEST(ResultFolder, FilesThatAppearMeanwhileAreNotLost) {
  const TempFolder folder;
  ResultFolder result(folder / "out", overwriting());
  result.begin();
  write_tree(result.staging(), kNewResult);
  write_tree(folder / "out", {{"notes.txt", "mine"}});
  std::string text;
  EXPECT_EQ(code_of([&] { result.commit(); }, &text), "E-CONFIG-OUTPUT-FOREIGN");
  EXPECT_THAT(text, HasSubstr(result.staging()));
  EXPECT_EQ(tree_of(folder / "out"), (Tree{{"notes.txt", "mine"}}));
  EXPECT_EQ(tree_of(result.staging()), kNewResult);
}

TEST(ResultFolder, WhatAppearsBeforeTheBeginningIsRefusedThere) {
  const TempFolder folder;
  {
    ResultFolder result(folder / "out", careful());
    write_tree(folder / "out", kOldResult);
    EXPECT_EQ(code_of([&] { result.begin(); }), "E-CONFIG-OUTPUT-USED");
  }
  EXPECT_EQ(tree_of(folder / "out"), kOldResult);
  EXPECT_THAT(folder.entries(), ElementsAre("out"));
}

TEST(ResultFolder, ACompleteResultThatCannotBePutInPlaceIsKept) {
  const TempFolder folder;
  write_tree(folder / "out", kOldResult);
  std::string text;
  for (const char* kept : {"out.tessera-complete", "out.tessera-complete-2", "out.tessera-complete-3"}) {
    SCOPED_TRACE(kept);
    disk::set_hook([](std::string_view call, const std::string&) { return call == "exchange" ? EIO : 0; });
    const std::string code = code_of([&] { run_once(folder / "out", kNewResult, overwriting()); }, &text);
    disk::set_hook(nullptr);
    EXPECT_EQ(code, "E-STORAGE-IO");
    EXPECT_THAT(text, HasSubstr(std::string(kept) + ": "));
    EXPECT_EQ(tree_of(folder / "out"), kOldResult);
    EXPECT_EQ(tree_of(folder / kept), kNewResult);
  }
  const Tree third = {{"config.json", "third"}};
  run_once(folder / "out", third, overwriting());
  EXPECT_EQ(tree_of(folder / "out"), third);
  EXPECT_THAT(folder.entries(),
              ElementsAre("out", "out.tessera-complete", "out.tessera-complete-2", "out.tessera-complete-3"));
  for (const char* kept : {"out.tessera-complete", "out.tessera-complete-2", "out.tessera-complete-3"})
    EXPECT_EQ(tree_of(folder / kept), kNewResult);
}

TEST(ResultFolder, ACompleteResultThatCannotBeRenamedEitherIsTold) {
  const TempFolder folder;
  write_tree(folder / "out", kOldResult);
  disk::set_hook([](std::string_view call, const std::string& path) {
    return call == "exchange" || (call == "rename" && path.ends_with("-complete")) ? EIO : 0;
  });
  std::string text;
  EXPECT_EQ(code_of([&] { run_once(folder / "out", kNewResult, overwriting()); }, &text), "E-STORAGE-IO");
  disk::set_hook(nullptr);
  EXPECT_THAT(text, HasSubstr("out.tessera-partial, which the next run deletes"));
  EXPECT_EQ(tree_of(folder / "out.tessera-partial"), kNewResult);
}

TEST(ResultFolder, TwoRenamesReplaceAResultWhereFoldersCannotBeExchanged) {
  for (const int cause : {EINVAL, ENOSYS, EOPNOTSUPP, EXDEV}) {
    SCOPED_TRACE(cause);
    const TempFolder folder;
    write_tree(folder / "out", kOldResult);
    disk::set_hook([&](std::string_view call, const std::string&) { return call == "exchange" ? cause : 0; });
    const std::string code = code_of([&] { run_once(folder / "out", kNewResult, overwriting()); });
    disk::set_hook(nullptr);
    EXPECT_EQ(code, "");
    EXPECT_EQ(tree_of(folder / "out"), kNewResult);
    EXPECT_THAT(folder.entries(), ElementsAre("out"));
  }
}

TEST(ResultFolder, ClearsAwayNothingButResults) {
  for (const char* left : {"out.tessera-partial", "out.tessera-old"}) {
    SCOPED_TRACE(left);
    const TempFolder folder;
    const Tree tree = {{"model.safetensors", "half"}, {"notes.txt", "mine"}};
    write_tree(folder / left, tree);
    write_tree(folder / "out", kOldResult);
    std::string text;
    EXPECT_EQ(code_of([&] { ResultFolder(folder / "out", overwriting()); }, &text),
              "E-CONFIG-OUTPUT-FOREIGN");
    EXPECT_THAT(text, HasSubstr("notes.txt"));
    EXPECT_EQ(tree_of(folder / left), tree);
    EXPECT_EQ(tree_of(folder / "out"), kOldResult);
  }
}

TEST(ResultFolder, ClearsAwayNothingBehindALink) {
  for (const char* left : {"out.tessera-partial", "out.tessera-old"}) {
    SCOPED_TRACE(left);
    const TempFolder folder;
    write_tree(folder / "elsewhere", kOldResult);
    fs::create_directory_symlink("elsewhere", folder / left);
    for (int times = 0; times < 2; ++times) {
      std::string text;
      EXPECT_EQ(code_of([&] { ResultFolder(folder / "out", overwriting()); }, &text),
                "E-CONFIG-OUTPUT-FOREIGN");
      EXPECT_THAT(text, HasSubstr(left));
      write_tree(folder / "out", kOldResult);
    }
    EXPECT_TRUE(fs::is_symlink(folder / left));
    EXPECT_EQ(tree_of(folder / "elsewhere"), kOldResult);
  }
}

TEST(ResultFolder, AnOlderResultThatWasMovedAsideIsPutBackOverAnEmptyFolder) {
  for (const bool has_empty : {false, true}) {
    const TempFolder folder;
    write_tree(folder / "out.tessera-old", kOldResult);
    if (has_empty) fs::create_directory(folder / "out");
    EXPECT_EQ(code_of([&] { ResultFolder(folder / "out", careful()); }), "E-CONFIG-OUTPUT-USED");
    EXPECT_EQ(tree_of(folder / "out"), kOldResult);
    EXPECT_THAT(folder.entries(), ElementsAre("out"));
  }
}

// This also holds if the folder changes while a run is starting.
TEST(ResultFolder, AResultThatWasMovedAsideIsClearedOnlyBesideAnother) {
  const TempFolder folder;
  write_tree(folder / "out", kNewResult);
  write_tree(folder / "out.tessera-old", kOldResult);
  EXPECT_EQ(code_of([&] { ResultFolder(folder / "out", careful()); }), "E-CONFIG-OUTPUT-USED");
  EXPECT_EQ(tree_of(folder / "out.tessera-old"), kOldResult);
  {
    ResultFolder result(folder / "out", overwriting());
    EXPECT_EQ(tree_of(folder / "out.tessera-old"), kOldResult);
    fs::remove_all(folder / "out");
    write_tree(folder / "out", {{"notes.txt", "mine"}});
    EXPECT_EQ(code_of([&] { result.begin(); }), "E-CONFIG-OUTPUT-FOREIGN");
    EXPECT_EQ(tree_of(folder / "out.tessera-old"), kOldResult);
    fs::remove_all(folder / "out");
    result.begin();
    EXPECT_EQ(tree_of(folder / "out"), kOldResult);
  }
  write_tree(folder / "out.tessera-old", kNewResult);
  run_once(folder / "out", kNewResult, overwriting());
  EXPECT_EQ(tree_of(folder / "out"), kNewResult);
  EXPECT_THAT(folder.entries(), ElementsAre("out"));
}

TEST(ResultFolder, SpaceIsAskedFor) {
  const TempFolder folder;
  ResultFolder result(folder / "a/out", careful());
  result.begin();
  EXPECT_NO_THROW(result.require_space(1));
  std::string text;
  EXPECT_EQ(code_of([&] { result.require_space(int64_t{1} << 60); }, &text), "E-STORAGE-NO-SPACE");
  EXPECT_THAT(text, HasSubstr("free"));
  EXPECT_EQ(code_of([&] { result.require_space(INT64_MAX); }), "E-STORAGE-NO-SPACE");
}

// Runs `work` in a process that ends with exit code 9 before its disk call number `stop`, if it gets there.
// Returns the exit code.
int run_stopped(int stop, bool can_exchange, const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    int calls = 0;
    disk::set_hook([&](std::string_view call, const std::string&) {
      if (++calls == stop) _exit(9);
      return call == "exchange" && !can_exchange ? EINVAL : 0;
    });
    _exit(code_of(work).empty() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// At whatever call a run is killed, the older or the new result is there, complete, and the next run
// succeeds and leaves nothing beside its result.
TEST(ResultFolder, KilledAtEveryCall) {
  if (!testing::can_exchange_folders()) GTEST_SKIP() << testing::skip::kExchange;
  int stop = 0;
  bool has_ended = false, has_seen_new = false;
  while (!has_ended) {
    ++stop;
    SCOPED_TRACE("killed at call " + std::to_string(stop));
    const TempFolder folder;
    write_tree(folder / "out", kOldResult);
    const int code = run_stopped(stop, true, [&] { run_once(folder / "out", kNewResult, overwriting()); });
    has_ended = code == 0;
    ASSERT_TRUE(has_ended || code == 9);
    const Tree found = tree_of(folder / "out");
    EXPECT_TRUE(found == kOldResult || found == kNewResult);
    EXPECT_FALSE(has_seen_new && found == kOldResult) << "the new result was there earlier";
    has_seen_new = has_seen_new || found == kNewResult;
    const Tree third = {{"config.json", "third"}};
    run_once(folder / "out", third, overwriting());
    EXPECT_EQ(tree_of(folder / "out"), third);
    EXPECT_THAT(folder.entries(), ElementsAre("out"));
  }
  EXPECT_GT(stop, 25) << "every call of a run and its clearing away";
}

// If the file system cannot exchange folders, there is a moment without any result. The next run puts the
// older result back before anything else, even if the run is then refused.
TEST(ResultFolder, KilledAtEveryCallWithoutAnExchange) {
  int missing = 0;
  bool has_ended = false;
  for (int stop = 1; !has_ended; ++stop) {
    SCOPED_TRACE("killed at call " + std::to_string(stop));
    const TempFolder folder;
    write_tree(folder / "out", kOldResult);
    const int code = run_stopped(stop, false, [&] { run_once(folder / "out", kNewResult, overwriting()); });
    has_ended = code == 0;
    ASSERT_TRUE(has_ended || code == 9);
    if (!fs::exists(folder / "out")) ++missing;
    fs::create_directory(folder / "out");  // a script may do this before the next run
    EXPECT_EQ(code_of([&] { ResultFolder(folder / "out", careful()); }), "E-CONFIG-OUTPUT-USED");
    const Tree found = tree_of(folder / "out");
    EXPECT_TRUE(found == kOldResult || found == kNewResult);
    run_once(folder / "out", kNewResult, overwriting());
    EXPECT_EQ(tree_of(folder / "out"), kNewResult);
    EXPECT_THAT(folder.entries(), ElementsAre("out"));
  }
  EXPECT_EQ(missing, 1);
}

// The files of a run's checkpoints stay, at whatever call the run is killed. They may be moved to the new
// folder and back; the next run finds them in its folder, which is all that it needs to go on from them.
TEST(ResultFolder, CheckpointsStayWhenKilledAtEveryCall) {
  const Tree checkpoints = {{"checkpoint-3/manifest.json", "three"},
                            {"checkpoint-3/rank-00000.safetensors", "weights"},
                            {"checkpoint-6/manifest.json", "six"},
                            {"latest", "checkpoint-6\n"}};
  const ResultOptions continuing = {
      .overwrites = false, .how_to_overwrite = kKey, .inputs = {}, .continues = true};
  const std::vector<std::string> stays = {"checkpoint-3", "checkpoint-6", "latest"};
  const auto with = [&](Tree tree) {
    tree.insert(checkpoints.begin(), checkpoints.end());
    return tree;
  };
  for (const bool can_exchange : {true, false}) {
    if (can_exchange && !testing::can_exchange_folders()) continue;
    bool has_ended = false, has_seen_new = false;
    for (int stop = 1; !has_ended; ++stop) {
      SCOPED_TRACE("killed at call " + std::to_string(stop));
      const TempFolder folder;
      write_tree(folder / "out", with(kOldResult));
      const int code =
          run_stopped(stop, can_exchange, [&] { run_once(folder / "out", kNewResult, continuing, stays); });
      has_ended = code == 0;
      ASSERT_TRUE(has_ended || code == 9);
      { const ResultFolder next(folder / "out", continuing); }
      const Tree found = tree_of(folder / "out");
      EXPECT_TRUE(found == with(kOldResult) || found == with(kNewResult));
      has_seen_new = has_seen_new || found == with(kNewResult);
      run_once(folder / "out", kNewResult, continuing, stays);
      EXPECT_EQ(tree_of(folder / "out"), with(kNewResult));
      EXPECT_THAT(folder.entries(), ElementsAre("out"));
    }
    EXPECT_TRUE(has_seen_new);
  }
}

// A checkpoint that a new one of its step replaces is lost at no call, and what is being removed never comes
// back half.
TEST(ResultFolder, ACheckpointThatIsReplacedOrRemovedIsWholeWhenKilledAtEveryCall) {
  const auto make = [](const TempFolder& folder, const Tree& files) {
    NewCheckpoint made(folder / "out", 3);
    for (const auto& [name, text] : files) write_file_atomic(join_path(made.staging(), name), text);
    made.commit();
  };
  const Tree older = {{"manifest.json", "older"}, {"rank-00000.safetensors", "older weights"}};
  const Tree newer = {{"manifest.json", "newer"}, {"rank-00000.safetensors", "newer weights"}};
  for (const bool removes : {false, true}) {
    int moved_aside = 0;
    bool has_ended = false;
    for (int stop = 1; !has_ended; ++stop) {
      SCOPED_TRACE((removes ? "removal" : "replacement") + (" killed at call " + std::to_string(stop)));
      const TempFolder folder;
      make(folder, older);
      const int code = run_stopped(stop, false, [&] {
        removes ? remove_checkpoint(folder / "out", "checkpoint-3") : make(folder, newer);
      });
      has_ended = code == 0;
      ASSERT_TRUE(has_ended || code == 9);
      moved_aside += list_checkpoints(folder / "out").empty() && !removes ? 1 : 0;
      { const ResultFolder next(folder / "out", overwriting()); }
      const auto found = list_checkpoints(folder / "out");
      ASSERT_TRUE(removes || found.size() == 1) << "it is put back";
      if (!found.empty()) {
        const Tree tree = tree_of(folder / "out/checkpoint-3");
        EXPECT_TRUE(tree == older || (tree == newer && !removes));
      }
    }
    EXPECT_EQ(moved_aside, removes ? 0 : 1);
  }
}

// Only a run that goes on from the checkpoints of a folder may use it.
TEST(ResultFolder, OnlyWhoGoesOnTakesCheckpoints) {
  const TempFolder folder;
  write_tree(folder / "out", {{"checkpoint-3/manifest.json", "three"}});
  std::string text;
  EXPECT_EQ(code_of([&] { ResultFolder(folder / "out", careful()); }, &text), "E-CONFIG-OUTPUT-USED");
  EXPECT_THAT(text, HasSubstr("resume from its checkpoints"));
  ResultOptions continuing = careful();
  continuing.continues = true;
  EXPECT_EQ(code_of([&] { ResultFolder(folder / "out", continuing); }), "");
  // An incomplete checkpoint of a killed run does not hinder another run.
  write_tree(folder / "first", {{"checkpoint-3.tessera-partial/rank-00000.safetensors", "half"}});
  run_once(folder / "first", kNewResult, careful());
  EXPECT_EQ(tree_of(folder / "first"), kNewResult);
  write_tree(folder / "out", {{"checkpoint-3/notes", "mine"}});
  EXPECT_EQ(code_of([&] { ResultFolder(folder / "out", continuing); }), "E-CONFIG-OUTPUT-FOREIGN");
  write_tree(folder / "other", kOldResult);
  EXPECT_EQ(code_of([&] { ResultFolder(folder / "other", continuing); }), "E-CONFIG-OUTPUT-USED");
}

// The disk fails from its call number `first` on, for `count` calls.
TEST(ResultFolder, FailingAtEveryCall) {
  if (!testing::can_exchange_folders()) GTEST_SKIP() << testing::skip::kExchange;
  for (const int count : {1, 1 << 20}) {
    bool has_ended = false;
    for (int first = 1; !has_ended; ++first) {
      SCOPED_TRACE("failing from call " + std::to_string(first) + " on, " + std::to_string(count) + " calls");
      const TempFolder folder;
      write_tree(folder / "out", kOldResult);
      int calls = 0;
      disk::set_hook([&](std::string_view, const std::string&) {
        ++calls;
        return calls >= first && calls < first + count ? ENOSPC : 0;
      });
      const std::string code = code_of([&] { run_once(folder / "out", kNewResult, overwriting()); });
      disk::set_hook(nullptr);
      has_ended = calls < first;
      const Tree found = tree_of(folder / "out");
      // A line of the logs that could not be written is no error.
      Tree shorter = found;
      shorter["metrics.jsonl"] = kNewResult.at("metrics.jsonl");
      shorter["runs/events.out.tfevents.3.4"] = kNewResult.at("runs/events.out.tfevents.3.4");
      if (code.empty()) {
        EXPECT_EQ(shorter, kNewResult);
      } else {
        EXPECT_EQ(code, "E-STORAGE-NO-SPACE");
        EXPECT_EQ(found, kOldResult);
      }
      const bool is_kept = fs::exists(folder / "out.tessera-complete");
      if (is_kept) {
        Tree kept = tree_of(folder / "out.tessera-complete");
        kept["metrics.jsonl"] = kNewResult.at("metrics.jsonl");
        kept["runs/events.out.tfevents.3.4"] = kNewResult.at("runs/events.out.tfevents.3.4");
        EXPECT_EQ(kept, kNewResult);
      }
      run_once(folder / "out", kNewResult, overwriting());
      EXPECT_EQ(tree_of(folder / "out"), kNewResult);
      EXPECT_EQ(folder.entries().size(), is_kept ? 2u : 1u);
      EXPECT_EQ(fs::exists(folder / "out.tessera-complete"), is_kept);
    }
  }
}

}  // namespace
}  // namespace tessera::io

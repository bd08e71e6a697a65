// The package, as another user runs it: from another folder, in an empty environment.
#include <sys/stat.h>

#include "tests/integration/fixture.h"

namespace tessera::testing {
namespace {

class PackageTest : public ProgramTest {};

TEST_F(PackageTest, AnotherUserRunsItFromAnywhere) {
  const std::string preset = std::filesystem::path(TESSERA_BINARY).parent_path().filename();
  const ProgramResult made =
      run_command({TESSERA_SOURCE_DIR "/scripts/package.sh", "--folder-only", here / "made"},
                  {.timeout_s = 900.0, .environment = {{"TESSERA_PRESET", preset}}});
  ASSERT_EQ(made.exit_code, 0) << made.told();
  std::string package;
  for (const auto& entry : std::filesystem::directory_iterator(here / "made")) {
    ASSERT_TRUE(package.empty()) << "more than the package: " << entry.path();
    package = entry.path();
  }
  for (const char* file : {"bin/tessera", "bin/mpirun", "lib/libtorch_cpu.so", "licenses/torch/LICENSE",
                           "licenses/nvidia_cuda_runtime/License.txt", "licenses/libopenmpi3/copyright",
                           "share/tessera/README.md"}) {
    EXPECT_TRUE(std::filesystem::exists(package + "/" + file)) << file;
  }

  // Elsewhere than it was made, with nothing of this user's in reach.
  const std::string place = here / "a place with spaces";
  std::filesystem::create_directory(place);
  std::filesystem::rename(package, place + "/package");
  ASSERT_EQ(chmod(here.path().c_str(), 0755), 0);
  std::filesystem::create_directory(here / "job");
  for (const char* name : {"model", "rows.jsonl", "recipe.yaml"}) {
    std::filesystem::copy(here / name, here / (std::string("job/") + name),
                          std::filesystem::copy_options::recursive);
  }
  ASSERT_EQ(chmod((here / "job").c_str(), 0777), 0);
  RunOptions options;
  options.folder = here / "job";
  options.has_empty_environment = true;
  options.environment["OMP_NUM_THREADS"] = "1";  // as below
  options.prepare = [] {
    if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(kCannotPrepare);
  };
  const auto as_user = [&](Words arguments) {
    arguments.insert(arguments.begin(), place + "/package/bin/tessera");
    return run_command(arguments, options);
  };
  const ProgramResult version = as_user({"--version"});
  EXPECT_EQ(version.out.rfind("tessera ", 0), 0u) << version.told();
  const ProgramResult trained = as_user({"train", "recipe.yaml", "--nproc", "2"});
  EXPECT_EQ(trained.exit_code, 0) << trained.told();
  EXPECT_EQ(ProgramResult::lines_with(trained.err, "2 rank(s)").size(), 1u) << trained.told();
  const ProgramResult generated =
      as_user({"generate", "--model", "out", "--prompt", "hello", "--max-new-tokens", "4"});
  EXPECT_EQ(generated.exit_code, 0) << generated.told();
  // The same weights as the program that was packed.
  ASSERT_EQ(train({"--nproc", "2"}).exit_code, 0);
  EXPECT_EQ(read_text(here / "job/out/model.safetensors"), read_text(out("model.safetensors")));
}

}  // namespace
}  // namespace tessera::testing

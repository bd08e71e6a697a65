// Tests of the package and the wheel as another user runs them: from another folder, in an empty environment.
#include <sys/stat.h>

#include "tests/integration/fixture.h"
#include "tests/testing/paths.h"

namespace tessera::testing {
namespace {

class PackageTest : public ProgramTest {
 protected:
  // Makes the package and the wheel in `made`. The tool that is named, if any, is replaced by `script`, whose
  // folder is not in the script's PATH.
  ProgramResult make(const std::string& tool = "", const std::string& script = "") const {
    RunOptions options;
    options.timeout_s = 900.0;
    options.environment["TESSERA_PRESET"] = std::filesystem::path(program_path()).parent_path().filename();
    if (!tool.empty()) {
      const std::string folder = here / ("tool-" + tool);
      std::filesystem::create_directories(folder);
      write_text(folder + "/" + tool, "#!/bin/sh\nPATH=${PATH#*:}\n" + script + "\n");
      chmod((folder + "/" + tool).c_str(), 0755);
      options.environment["PATH"] = folder + ":" + std::getenv("PATH");
    }
    return run_command({source_folder() + "/scripts/package.sh", "--wheel", here / "made"}, options);
  }

  // Unpacks the wheel where it would be installed, beside a torch that has the libraries of the package, and
  // returns its program.
  std::string unpack(const std::string& wheel, const std::string& package) const {
    const std::string site = here / "site", torch = site + "/torch/lib/";
    std::filesystem::create_directories(torch);
    for (const char* library : {"libtorch_cpu.so", "libc10.so", "libcudart.so.13", "libcupti.so.13"})
      std::filesystem::create_symlink(package + "/lib/" + library, torch + library);
    const ProgramResult unzipped = run_command({"unzip", "-q", wheel, "-d", site});
    EXPECT_EQ(unzipped.exit_code, 0) << unzipped.told();
    return site + "/tessera_train/bin/tessera";
  }
};

TEST_F(PackageTest, NothingIsMadeWhereSomethingIsMissing) {
  struct Case {
    const char *tool, *script, *told;
  };
  const Case cases[] = {
      {"ldd", R"(ldd "$1"; case "$1" in build/*/tessera) echo "libgone.so.1 => not found" ;; esac)",
       "libgone.so.1, which is not there"},
      // This ldd misses a library only in the finished folder.
      {"ldd", R"(ldd "$1"; case "$1" in */.tmp.*/libexec/mpirun) echo "libgone.so.1 => not found" ;; esac)",
       "libgone.so.1, which is not there"},
      {"ompi_info", "echo path:pkglibdir:/nowhere", "/nowhere/mca_pmix_ext3x.so is missing"}};
  for (const Case& missing : cases) {
    const ProgramResult result = make(missing.tool, missing.script);
    EXPECT_EQ(result.exit_code, 1) << result.told();
    EXPECT_NE(result.err.find(missing.told), std::string::npos) << result.told();
    EXPECT_TRUE(std::filesystem::is_empty(here / "made"));
  }
}

TEST_F(PackageTest, AnotherUserRunsItFromAnywhere) {
  std::filesystem::create_directory(here / "elsewhere");
  std::filesystem::create_directory_symlink("elsewhere", here / "made");
  const ProgramResult made = make();
  ASSERT_EQ(made.exit_code, 0) << made.told();
  std::string package, wheel;
  for (const auto& entry : std::filesystem::directory_iterator(here / "made")) {
    std::string& found = entry.path().extension() == ".whl" ? wheel : package;
    ASSERT_TRUE(found.empty()) << "more than the package and the wheel: " << entry.path();
    found = entry.path();
  }
  ASSERT_NE(wheel, "") << made.told();
  for (const char* file :
       {"bin/tessera", "bin/mpirun", "bin/orted", "lib/libtorch_cpu.so", "licenses/tessera/LICENSE",
        "licenses/torch/LICENSE", "licenses/nvidia_cuda_runtime/License.txt",
        "licenses/libopenmpi3/copyright", "share/tessera/README.md"}) {
    EXPECT_TRUE(std::filesystem::exists(package + "/" + file)) << file;
  }

  // The package is moved from where it was made, and nothing of this user's is within its reach.
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
  options.environment["OMP_NUM_THREADS"] = "1";  // as in the runs below
  options.prepare = become_another_user;
  std::string program = place + "/package/bin/tessera";
  const auto as_user = [&](Words arguments) {
    arguments.insert(arguments.begin(), program);
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
  // The environment points at broken libraries and at the machine's MPI.
  std::filesystem::create_directory(here / "hostile");
  for (const char* library :
       {"libmpi.so.40", "libopen-rte.so.40", "libopen-pal.so.40", "libpmix.so.2", "libtorch_cpu.so"}) {
    write_text(here / (std::string("hostile/") + library), "no library\n");
  }
  options.environment["LD_LIBRARY_PATH"] = here / "hostile";
  for (const char* name : {"OPAL_PREFIX", "PMIX_PREFIX", "OMPI_MCA_mca_base_component_path",
                           "PMIX_MCA_mca_base_component_path"}) {
    options.environment[name] = here / "hostile";
  }
  const ProgramResult again = as_user({"train", "recipe.yaml", "--nproc", "2", "output_dir=again"});
  EXPECT_EQ(again.exit_code, 0) << again.told();
  const std::string result = read_text(here / "job/out/model.safetensors");
  EXPECT_TRUE(read_text(here / "job/again/model.safetensors") == result);
  // The package's mpirun starts its own daemon where a remote shell gets it to, from a path without spaces.
  std::filesystem::rename(place + "/package", here / "package");
  write_text(here / "job/shell", "#!/bin/sh\nshift\nexec env -i PATH=/usr/bin:/bin sh -c \"$*\"\n");
  ASSERT_EQ(chmod((here / "job/shell").c_str(), 0755), 0);
  const Words shell = {"--mca", "plm_rsh_agent", here / "job/shell", "--host", "elsewhere:2"};
  program = here / "package/bin/mpirun";
  options.environment["PATH"] = "/usr/bin:/bin";
  const ProgramResult over_there =
      as_user(with(shell, {here / "package/bin/tessera", "train", "recipe.yaml", "output_dir=over_there"}));
  EXPECT_EQ(over_there.exit_code, 0) << over_there.told();
  EXPECT_TRUE(read_text(here / "job/over_there/model.safetensors") == result);
  program = unpack(wheel, here / "package");
  const ProgramResult by_wheel = as_user({"train", "recipe.yaml", "--nproc", "2", "output_dir=by_wheel"});
  EXPECT_EQ(by_wheel.exit_code, 0) << by_wheel.told();
  EXPECT_TRUE(read_text(here / "job/by_wheel/model.safetensors") == result);
  // The package trains the same weights as the program that was packed.
  ASSERT_EQ(train({"--nproc", "2"}).exit_code, 0);
  EXPECT_TRUE(read_text(out("model.safetensors")) == result);
}

}  // namespace
}  // namespace tessera::testing

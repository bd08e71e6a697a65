// Tests how the program finds a GPU: fake CUDA libraries stand where the loader looks, and note when they are
// opened.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include "tests/integration/fixture.h"
#include "tests/testing/extent.h"
#include "tests/testing/skip.h"

namespace tessera::testing {
namespace {

class DeviceTest : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    if (kHasSanitizer) GTEST_SKIP() << skip::kSanitizer;  // its runtime has read the library paths by then
  }

  enum Libraries { None, Driver, DriverAndTorch };

  // Returns options with an environment in which the loader finds these fakes; `told` holds the variables
  // that control them.
  RunOptions with_fakes(Libraries libraries, std::map<std::string, std::string> told = {}) const {
    RunOptions options;
    std::string path;
    if (libraries != None) path = TESSERA_FAKE_CUDA "/driver";
    if (libraries == DriverAndTorch) path += ":" TESSERA_FAKE_CUDA "/torch";
    options.environment = std::move(told);
    options.environment["LD_LIBRARY_PATH"] = path;
    options.environment["FAKE_CUDA_LOG"] = here / "log";
    return options;
  }
  // Returns the output of `tessera doctor` for a fake device, with these files as NVIDIA's libraries. The
  // output ends before the rates, as the fake device has no memory.
  std::string doctor_with(const std::map<std::string, std::string>& libraries,
                          std::map<std::string, std::string> told = {}) const {
    const std::filesystem::path folder = here / "nvidia";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    for (const auto& [name, file] : libraries) std::filesystem::create_symlink(file, folder / name);
    told["FAKE_TORCH_DEVICES"] = "1";
    RunOptions options = with_fakes(DriverAndTorch, std::move(told));
    options.environment["LD_LIBRARY_PATH"] += ":" + folder.string();
    return run({"doctor"}, options).out;
  }
  // Returns what the fakes have noted since the last call.
  Words noted() const {
    Words lines = ProgramResult::lines(read_text(here / "log"));
    std::filesystem::remove(here / "log");
    return lines;
  }
};

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Words kOpened = {"driver opened", "library opened expandable_segments:True", "LibTorch asks"};

TEST_F(DeviceTest, TheLibraryIsOpenBeforeLibTorchAsksForIt) {
  // LibTorch asks for its CUDA part once: if it had asked too early, the second line would be missing.
  const std::vector<Words> commands = {
      {"train", "recipe.yaml", "device=cuda"},
      {"train", "recipe.yaml", "device=cuda", "--nproc", "2"},
      {"train", "recipe.yaml", "device=cuda:3"},
      {"generate", "--model", "model", "--prompt", "a", "--device", "cuda"},
      {"bench", "train", "--model", "model", "--device", "cuda:1"},
      {"bench", "generate", "--model", "model", "--device", "cuda"},
  };
  Random random;
  for (const Words& command : some_of(commands, 3, random)) {
    SCOPED_TRACE(command[0] + " " + command[1]);
    const ProgramResult result = run(command, with_fakes(DriverAndTorch));
    EXPECT_EQ(noted(), kOpened) << result.told();
    EXPECT_EQ(result.exit_code, 2) << result.told();
    ASSERT_EQ(result.error_lines().size(), 1U) << result.told();
    EXPECT_THAT(result.error_lines()[0], ::testing::AllOf(HasSubstr("error[E-CONFIG-DEVICE]: "),
                                                          HasSubstr("LibTorch finds no device")));
    EXPECT_EQ(ProgramResult::lines(result.err).size(), 1U) << result.told();
  }
}

TEST_F(DeviceTest, AutoOpensItToo) {
  const ProgramResult result = train({}, with_fakes(DriverAndTorch));
  EXPECT_EQ(noted(), kOpened) << result.told();
  EXPECT_EQ(result.exit_code, 0) << "it trains on the CPU, as LibTorch finds no device\n" << result.told();
  const ProgramResult doctor = run({"doctor"}, with_fakes(DriverAndTorch));
  EXPECT_EQ(noted(), kOpened) << doctor.told();
  EXPECT_EQ(doctor.exit_code, 0) << doctor.told();
  EXPECT_THAT(doctor.out, HasSubstr("none: LibTorch finds no device")) << doctor.told();
}

TEST_F(DeviceTest, DoctorTellsWhichLibrariesAreUsed) {
  const std::map<std::string, std::string> stubs = {{"libcudnn.so.9", TESSERA_STUB_CUDNN},
                                                    {"libcublasLt.so.13", TESSERA_STUB_LT},
                                                    {"libnccl.so.2", TESSERA_STUB_NCCL}};
  const std::string all = doctor_with(stubs);
  EXPECT_THAT(all, HasSubstr("\ncuDNN                  9.19.0, for attention over long documents"));
  EXPECT_THAT(all, HasSubstr("\ncuBLASLt               13.1.0, for sums of fp8 products\n"));
  EXPECT_THAT(all, HasSubstr("\nNCCL                   2.28.9, for several ranks\n"));
  EXPECT_THAT(doctor_with(stubs, {{"TESSERA_CUDNN", "0"}}),
              HasSubstr("\ncuDNN                  not used: TESSERA_CUDNN=0\n"));

  const std::string others = doctor_with({{"libcudnn.so.9", TESSERA_STUB_CUDNN_OLDER},
                                          {"libcublasLt.so.13", TESSERA_STUB_NCCL},
                                          {"libnccl.so.2", here.write("empty", "")}});
  EXPECT_THAT(others,
              HasSubstr("\ncuDNN                  not used: libcudnn.so.9 is of version 9.10.2, not of "
                        "9.19.0 or a later 9\n"));
  EXPECT_THAT(others, HasSubstr("\ncuBLASLt               not used: libcublasLt.so.13 has no "
                                "cublasLtGetVersion\n"));
  EXPECT_THAT(others, HasSubstr("/nvidia/libnccl.so.2: file too short\n"));
}

TEST_F(DeviceTest, OnlyWhoAsksForADeviceOpensIt) {
  const std::vector<Words> commands = {
      {"train", "recipe.yaml", "device=cpu"},
      {"generate", "--model", "model", "--prompt", "a", "--device", "cpu", "--max-new-tokens", "2"},
      {"data", "show", "recipe.yaml"},
      {"recipe", "keys"},
      {"debug", "logits", "--model", "model", "--ids", "1,2", "--out", "logits.safetensors"},
  };
  Random random;
  for (const Words& command : some_of(commands, 3, random)) {
    SCOPED_TRACE(command[0]);
    const ProgramResult result = run(command, with_fakes(DriverAndTorch));
    EXPECT_EQ(result.exit_code, 0) << result.told();
    EXPECT_THAT(noted(), IsEmpty()) << result.told();
  }
}

TEST_F(DeviceTest, WhatTheUserSaysOfTheAllocatorStays) {
  run({"doctor"}, with_fakes(DriverAndTorch, {{"PYTORCH_ALLOC_CONF", "backend:native"}}));
  EXPECT_THAT(noted(), ElementsAre("driver opened", "library opened backend:native", "LibTorch asks"));
  run({"doctor"}, with_fakes(DriverAndTorch, {{"PYTORCH_CUDA_ALLOC_CONF", "backend:native"}}));
  EXPECT_THAT(noted(), ElementsAre("driver opened", "library opened -", "LibTorch asks"));
}

TEST_F(DeviceTest, ADriverWithoutADeviceIsNamed) {
  const auto options = with_fakes(DriverAndTorch, {{"FAKE_CUDA_INIT", "100"}, {"CUDA_VISIBLE_DEVICES", "7"}});
  const ProgramResult result = train({"device=cuda"}, options);
  EXPECT_EQ(result.exit_code, 2) << result.told();
  ASSERT_EQ(result.error_lines().size(), 1U) << result.told();
  EXPECT_THAT(result.error_lines()[0],
              HasSubstr("got the NVIDIA driver finds no device: no CUDA-capable device is detected "
                        "(CUDA_VISIBLE_DEVICES='7'), need "));
  EXPECT_THAT(noted(), ElementsAre("driver opened")) << "nothing of LibTorch is opened for nothing";

  const ProgramResult doctor = run({"doctor"}, with_fakes(DriverAndTorch, {{"FAKE_CUDA_DEVICES", "0"}}));
  EXPECT_THAT(doctor.out, HasSubstr("none: the NVIDIA driver finds no device\n"));
  EXPECT_THAT(noted(), ElementsAre("driver opened"));

  const ProgramResult run_alone = train({}, with_fakes(DriverAndTorch, {{"FAKE_CUDA_DEVICES", "0"}}));
  EXPECT_EQ(run_alone.exit_code, 0) << run_alone.told();
  EXPECT_EQ(run_alone.err.find("GPU"), std::string::npos) << "auto says nothing of it\n" << run_alone.told();
}

TEST_F(DeviceTest, ALibTorchWithoutItsCudaPartIsNamed) {
  const ProgramResult probe = run({"doctor"}, with_fakes(Driver));
  // A LibTorch with a CUDA part finds it beside its CPU part, whatever these fakes are; then the test is
  // skipped.
  if (probe.out.find("LibTorch has no CUDA part") == std::string::npos) GTEST_SKIP() << skip::kCudaPart;
  EXPECT_THAT(probe.out,
              HasSubstr("Fake GPU (139 GiB, 132 multiprocessors, compute capability 9.0), not used: "
                        "LibTorch has no CUDA part: libtorch_cuda.so is neither in the loader's search path "
                        "(LD_LIBRARY_PATH) nor in /"));

  const ProgramResult result = train({"device=cuda"}, with_fakes(Driver));
  EXPECT_EQ(result.exit_code, 2) << result.told();
  ASSERT_EQ(result.error_lines().size(), 1U) << result.told();
  EXPECT_THAT(result.error_lines()[0],
              ::testing::AllOf(HasSubstr("LibTorch has no CUDA part"), HasSubstr("./dev setup --cuda")));

  const ProgramResult idle = train({}, with_fakes(Driver));
  EXPECT_EQ(idle.exit_code, 0) << idle.told();
  EXPECT_EQ(
      ProgramResult::lines_with(idle.err, "warning: computing on the CPU, although this machine has Fake GPU")
          .size(),
      1U)
      << "an idle device is told of once\n"
      << idle.told();
}

TEST_F(DeviceTest, AMachineWithoutADriverIsToldWhereItWasLookedFor) {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) GTEST_SKIP() << skip::kNoDriver;
  const ProgramResult result = train({"device=cuda"}, with_fakes(None));
  EXPECT_EQ(result.exit_code, 2) << result.told();
  ASSERT_EQ(result.error_lines().size(), 1U) << result.told();
  EXPECT_THAT(result.error_lines()[0],
              ::testing::AllOf(
                  HasSubstr("the device 'cuda' cannot be used; got no NVIDIA driver: libcuda.so.1 is neither "
                            "in the loader's search path (LD_LIBRARY_PATH, /etc/ld.so.conf) nor in "
                            "/usr/local/nvidia/lib64"),
                  HasSubstr("hint: install NVIDIA's driver")));
  const ProgramResult quiet = train({}, with_fakes(None));
  EXPECT_EQ(quiet.exit_code, 0) << quiet.told();
  for (const char* word : {"GPU", "CUDA", "cuda", "NVIDIA"})
    EXPECT_EQ(quiet.err.find(word), std::string::npos) << quiet.told();
}

TEST_F(DeviceTest, ADeviceByItsNumberIsOneProcesss) {
  for (const Words& command :
       {Words{"train", "recipe.yaml", "device=cuda:1", "--nproc", "2"},
        Words{"generate", "--model", "model", "--prompt", "a", "--device", "cuda:1", "--nproc", "2"}}) {
    const ProgramResult result =
        run(command, with_fakes(DriverAndTorch, {{"FAKE_CUDA_DEVICES", "4"}, {"FAKE_TORCH_DEVICES", "4"}}));
    EXPECT_EQ(result.exit_code, 2) << result.told();
    ASSERT_EQ(result.error_lines().size(), 1U) << result.told();
    EXPECT_THAT(result.error_lines()[0],
                ::testing::AllOf(HasSubstr("a device with a number is for a single process"),
                                 HasSubstr("cuda:1 and 2 ranks")));
  }
  const ProgramResult beyond =
      train({"device=cuda:4"},
            with_fakes(DriverAndTorch, {{"FAKE_CUDA_DEVICES", "4"}, {"FAKE_TORCH_DEVICES", "4"}}));
  EXPECT_EQ(beyond.exit_code, 2) << beyond.told();
  EXPECT_THAT(beyond.err,
              HasSubstr("the device 'cuda:4' cannot be used; got 4 device(s), need cuda:0 to cuda:3"));
}

TEST_F(DeviceTest, ADeviceThatIsFullIsNoDefectOfTheProgram) {
  const ProgramResult result = train({"device=cuda"}, with_fakes(DriverAndTorch, {{"FAKE_TORCH_FULL", "1"}}));
  EXPECT_EQ(result.exit_code, 10) << result.told();
  ASSERT_EQ(result.error_lines().size(), 1U) << result.told();
  EXPECT_THAT(result.error_lines()[0],
              HasSubstr("error[E-MEMORY-ALLOCATION]: out of memory: CUDA out of memory. Tried to allocate"));
}

}  // namespace
}  // namespace tessera::testing

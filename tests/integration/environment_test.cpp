// Tests of machines that lack something: the user reads one line that says what, or the run works without it.
#include <csignal>
#include <cstddef>
#include <cstring>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>

#include "tests/integration/fixture.h"
#include "tests/testing/extent.h"
#include "tests/testing/paths.h"
#include "tests/testing/processes.h"
#include "tests/testing/skip.h"

namespace tessera::testing {
namespace {

constexpr rlim_t kKiB = 1024, kMiB = kKiB * kKiB;

void limit(__rlimit_resource resource, rlim_t soft, rlim_t hard) {
  const rlimit value = {soft, hard};
  if (setrlimit(resource, &value) != 0) _exit(kCannotPrepare);
}

void require(bool is_permitted) {
  if (!is_permitted) _exit(kCannotPrepare);
}

void cover(const char* folder, unsigned long flags) {
  require(mount("none", folder, "tmpfs", flags, nullptr) == 0);
}

// Makes a folder read-only. Its files stay, since the program under test may be among them.
void freeze(const char* folder) {
  require(mount(folder, folder, nullptr, MS_BIND, nullptr) == 0 &&
          mount("none", folder, nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) == 0);
}

void own_mounts() {
  require(unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
}

// Makes calls that change a resource limit succeed without any effect, as in some sandboxes. Limits can be
// read.
void freeze_limits() {
  constexpr unsigned kNewLimit = offsetof(seccomp_data, args) + 2 * sizeof(__u64);
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prlimit64, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNewLimit),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(filter), filter};
  require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
          prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

// Connects to the socket that ranks join, and sends nothing; returns -1 if there is no such socket.
int connect_silently(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const int link = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (connect(link, reinterpret_cast<const sockaddr*>(&address), length) == 0) return link;
  close(link);
  return -1;
}

// Some tests take the folders of memory away.
class EnvironmentTest : FilesOnADrive, public ProgramTest {
 protected:
  static RunOptions prepared(std::function<void()> prepare) {
    RunOptions options;
    options.timeout_s = 120.0;
    options.prepare = std::move(prepare);
    return options;
  }
  static RunOptions with(const std::string& name, const std::string& value) {
    RunOptions options;
    options.environment[name] = value;
    return options;
  }
  ProgramResult train2(const RunOptions& options) const { return train({"--nproc", "2"}, options); }

  // Expects success, and no lines but this program's own.
  static void expect_well(const ProgramResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.told();
    for (const std::string& line : ProgramResult::lines(result.err)) {
      EXPECT_TRUE(line.rfind("tessera: ", 0) == 0 || line.rfind("step ", 0) == 0) << result.told();
    }
    EXPECT_TRUE(result.error_lines().empty()) << result.told();
  }
  // Returns options under which this shell script is found as mpirun.
  RunOptions with_launcher(const std::string& script) const {
    std::filesystem::create_directories(here / "bin");
    write_text(here / "bin/mpirun", "#!/bin/sh\n" + script + "\n");
    chmod((here / "bin/mpirun").c_str(), 0755);
    return with("PATH", (here / "bin") + ":" + std::getenv("PATH"));
  }
};

#define SKIP_UNLESS_PREPARED(result, what) \
  if ((result).exit_code == kCannotPrepare) GTEST_SKIP() << skip::kPermission << ": " << (what)

TEST_F(EnvironmentTest, FewOpenFiles) {
  expect_error(train2(prepared([] { limit(RLIMIT_NOFILE, 24, 24); })), 2, "E-CONFIG-LIMIT",
               {"open files", "got 24", "ulimit -n"});
  // A small soft limit is raised.
  expect_well(train2(prepared([] { limit(RLIMIT_NOFILE, 24, 1024); })));
}

TEST_F(EnvironmentTest, SmallFiles) {
  expect_error(train2(prepared([] { limit(RLIMIT_FSIZE, kMiB, kMiB); })), 2, "E-CONFIG-LIMIT",
               {"size of files", "ulimit -f"});
}

TEST_F(EnvironmentTest, SmallStack) {
  if (kHasSanitizer) GTEST_SKIP() << skip::kSanitizer;
  expect_well(train2(prepared([] { limit(RLIMIT_STACK, 64 * kKiB, RLIM_INFINITY); })));
  expect_error(train2(prepared([] { limit(RLIMIT_STACK, 64 * kKiB, 64 * kKiB); })), 2, "E-CONFIG-LIMIT",
               {"stack", "ulimit -s"});
}

TEST_F(EnvironmentTest, LimitsThatCannotBeRaised) {
  if (kHasSanitizer) GTEST_SKIP() << skip::kSanitizer;
  RunOptions options = prepared([] {
    limit(RLIMIT_STACK, 2 * kMiB, RLIM_INFINITY);
    freeze_limits();
  });
  options.timeout_s = 30.0;
  const ProgramResult result = run({"--version"}, options);
  SKIP_UNLESS_PREPARED(result, "filters of system calls");
  EXPECT_EQ(result.exit_code, 0) << result.told();
  EXPECT_FALSE(result.has_timed_out);
}

TEST_F(EnvironmentTest, SmallAddressSpace) {
  if (kHasSanitizer) GTEST_SKIP() << skip::kSanitizer;
  expect_error(train(Words{}, prepared([] { limit(RLIMIT_AS, 500 * kMiB, 500 * kMiB); })), 10,
               "E-MEMORY-ADDRESS-SPACE", {"ulimit -v"});
  expect_error(train2(prepared([] { limit(RLIMIT_AS, 700 * kMiB, 700 * kMiB); })), 10,
               "E-MEMORY-ADDRESS-SPACE", {"--nproc 2", "ulimit -v"});
}

TEST_F(EnvironmentTest, FewProcesses) {
  const auto few = [](rlim_t count) {
    return prepared([count] {
      limit(RLIMIT_NPROC, count, count);
      if (getuid() != 0) return;
      // The limit does not hold for root, so the program becomes a user who has no processes, and can still
      // read root's files.
      for (const int capability : {CAP_SYS_RESOURCE, CAP_SYS_ADMIN}) {
        require(prctl(PR_CAPBSET_DROP, capability) == 0);
      }
      require(setresuid(65534, 0, 0) == 0);
    });
  };
  const ProgramResult one = train(Words{}, few(1));
  SKIP_UNLESS_PREPARED(one, "another user");
  expect_error(one, 2, "E-CONFIG-THREADS", {"ulimit -u"});
  // The limit is enough for one process of an idle user, and too low for two ranks.
  const ProgramResult two = train2(few(getuid() == 0 ? 6 : 1));
  expect_error(two, 2, "E-CONFIG-THREADS", {"ulimit -u"});
}

TEST_F(EnvironmentTest, NoFolderForTemporaryFiles) {
  const ProgramResult none = train2(prepared([] {
    own_mounts();
    for (const char* folder : {"/dev/shm", "/var/tmp", "/tmp"}) freeze(folder);
  }));
  SKIP_UNLESS_PREPARED(none, "mounts");
  expect_error(none, 6, "E-STORAGE-TEMPORARY", {"/dev/shm (Read-only file system)", "/tmp (", "TMPDIR"});
  RunOptions elsewhere = prepared([] {
    own_mounts();
    freeze("/dev/shm");
  });
  elsewhere.environment["TMPDIR"] = here / "nowhere";
  expect_well(train2(elsewhere));
}

TEST_F(EnvironmentTest, NoProc) {
  const auto hide = [] {
    own_mounts();
    cover("/proc", 0);
  };
  const ProgramResult result = train2(prepared(hide));
  SKIP_UNLESS_PREPARED(result, "mounts");
  expect_well(result);
  EXPECT_EQ(ProgramResult::lines_with(result.err, "/proc is not mounted").size(), 1u) << result.told();
  expect_well(train({"output_dir=single"}, prepared(hide)));
}

TEST_F(EnvironmentTest, NoLoopbackInterface) {
  const ProgramResult result = train2(prepared([] { require(unshare(CLONE_NEWNET) == 0); }));
  SKIP_UNLESS_PREPARED(result, "networks of one's own");
  expect_error(result, 2, "E-CONFIG-LOOPBACK", {"loopback", "ip link set lo up"});
  // One process needs no network.
  expect_well(train(Words{}, prepared([] { require(unshare(CLONE_NEWNET) == 0); })));
}

TEST_F(EnvironmentTest, EmptyEnvironment) {
  RunOptions options;
  options.has_empty_environment = true;
  expect_well(train2(options));
}

TEST_F(EnvironmentTest, WorkingFolderThatIsGone) {
  const std::string recipe = here / "recipe.yaml";
  for (const Words& arguments :
       {Words{"train", recipe}, Words{"train", recipe, "--nproc", "2"}, Words{"doctor"}}) {
    const std::string gone = here / "gone";
    const ProgramResult result =
        run(arguments, prepared([&] {
              require(mkdir(gone.c_str(), 0700) == 0 && chdir(gone.c_str()) == 0 && rmdir(gone.c_str()) == 0);
            }));
    expect_error(result, 2, "E-CONFIG-FOLDER", {"no longer exists"});
  }
}

TEST_F(EnvironmentTest, ClosedStreams) {
  for (const char* nproc : {"1", "2"}) {
    const std::string folder = std::string("closed") + nproc;
    const ProgramResult result = train({"--nproc", nproc, "output_dir=" + folder}, prepared([] {
                                         for (int stream = 0; stream < 3; ++stream) close(stream);
                                       }));
    EXPECT_EQ(result.exit_code, 0);
    // No line of the program went into a file of the run.
    EXPECT_EQ(read_metrics(here / folder).size(), 4u);
    EXPECT_EQ(read_text(here / (folder + "/config.json")).rfind('{', 0), 0u);
  }
}

TEST_F(EnvironmentTest, FullStandardOutput) {
  const ProgramResult result = run({"data", "show", "recipe.yaml"},
                                   prepared([] { dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO); }));
  expect_error(result, 6, "E-STORAGE-OUTPUT", {"standard output"});
}

TEST_F(EnvironmentTest, VariablesWithoutSense) {
  for (const char* value : {"abc", "0", "1000000"}) {
    const ProgramResult result = train2(with("OMP_NUM_THREADS", value));
    expect_well(result);
    EXPECT_EQ(ProgramResult::lines_with(result.err, "OMP_NUM_THREADS").size(), 1u) << result.told();
  }
  RunOptions many;
  many.environment = {{"OMP_STACKSIZE", "abc"}, {"OMP_SCHEDULE", "x"},   {"OMP_WAIT_POLICY", "x"},
                      {"OMP_DYNAMIC", "x"},     {"GOMP_SPINCOUNT", "x"}, {"OMP_THREAD_LIMIT", "0"}};
  const ProgramResult result = train2(many);
  expect_well(result);
  EXPECT_EQ(ProgramResult::lines_with(result.err, "is left out").size(), many.environment.size())
      << result.told();
  const Words names = {"TESSERA_BIND",
                       "TESSERA_SHARED_MEMORY",
                       "TESSERA_START_TIMEOUT",
                       "TESSERA_ISA",
                       "TESSERA_CACHING_ALLOCATOR",
                       "TESSERA_PRODUCTS",
                       "TESSERA_LAUNCHER_OUTPUT"};
  Random random;
  for (const std::string& name : some_of(names, 2, random)) {
    expect_error(train2(with(name, "banana")), 2, "E-CONFIG-ENVIRONMENT", {name, "'banana'"});
  }
}

TEST_F(EnvironmentTest, ThreadsThatCannotStart) {
  RunOptions options;
  options.environment = {{"OMP_NUM_THREADS", "2"}, {"OMP_STACKSIZE", "100000G"}};
  expect_error(train(Words{}, options), 2, "E-CONFIG-THREADS", {"OMP_STACKSIZE=100000G"});
}

// The ranks of one machine start at the same moment, and none of them needs all cores.
TEST_F(EnvironmentTest, RanksOfAnotherLauncherTryTheirShareOfThreads) {
  RunOptions options = prepared([] {
    unsetenv("OMP_NUM_THREADS");
    cpu_set_t usable, two;
    CPU_ZERO(&two);
    require(sched_getaffinity(0, sizeof usable, &usable) == 0);
    for (size_t core = 0; core < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++core) {
      if (CPU_ISSET(core, &usable)) CPU_SET(core, &two);
    }
    require(sched_setaffinity(0, sizeof two, &two) == 0);
  });
  options.folder = here.path();
  // LibTorch would take two threads, even if the two cores are hardware threads of one, and no second thread
  // can start.
  options.environment["MKL_NUM_THREADS"] = "2";
  options.environment["OMP_STACKSIZE"] = "100000G";
  const ProgramResult result =
      run_command(mpirun({"-n", "2", program_path(), "data", "show", "recipe.yaml"}), options);
  EXPECT_EQ(result.exit_code, 0) << result.told();
  EXPECT_TRUE(result.error_lines().empty()) << result.told();
}

TEST_F(EnvironmentTest, LauncherThatFails) {
  const std::string words = "echo '--------'; echo '[host:12] ORTE has no luck in file x.c' >&2; exit 213";
  RunOptions options = with_launcher(words);
  expect_error(train2(options), 2, "E-CONFIG-LAUNCHER",
               {"exit code 213", "'ORTE has no luck in file x.c'", "TESSERA_LAUNCHER_OUTPUT"});
  options.environment["TESSERA_LAUNCHER_OUTPUT"] = "1";
  EXPECT_NE(train2(options).err.find("[host:12] ORTE"), std::string::npos);
  expect_error(train2(with_launcher("kill -9 $$")), 9, "E-PEER-LOST", {"mpirun", "signal 9"});
}

// mpirun does not always say which rank a signal has ended. The link of a rank that has joined then ends
// first, although it may have been another rank.
TEST_F(EnvironmentTest, ARankThatEndsBeforeItJoinsIsNotTakenForAnother) {
  const RunOptions options = with_launcher(
      "PATH=${PATH#*:}; shift 5; mpirun --oversubscribe -n 1 \"$@\" : -n 1 sleep 600 >/dev/null 2>&1 & "
      "sleep 3; kill -9 $(cat /proc/$!/task/$!/children); wait; exit 137");
  const ProgramResult result = train2(options);
  expect_error(result, 9, "E-PEER-LOST", {"a rank was ended by signal 9"});
  EXPECT_EQ(result.err.find("rank 0"), std::string::npos) << result.told();
}

TEST_F(EnvironmentTest, RanksThatDoNotStart) {
  RunOptions options = with_launcher("exec sleep 600");
  options.environment["TESSERA_START_TIMEOUT"] = "0.5";
  expect_error(train2(options), 9, "E-PEER-LAUNCHER",
               {"0 of 2 ranks", "rank 0, rank 1", "TESSERA_START_TIMEOUT=SECONDS"});
}

TEST_F(EnvironmentTest, RanksThatCannotJoin) {
  // The script removes its own folder from PATH, so that it runs the real mpirun.
  RunOptions options = with_launcher("PATH=${PATH#*:}; exec env -u TESSERA_LAUNCHED_BY mpirun \"$@\"");
  // The time to start passes while the ranks run.
  options.environment["TESSERA_START_TIMEOUT"] = "1";
  const ProgramResult result = train({"max_steps=1500", "--nproc", "2"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.told();
  EXPECT_EQ(read_metrics(out()).size(), 1500u);
}

TEST_F(EnvironmentTest, ConnectionThatSaysNothing) {
  int link = -1;
  RunOptions options;
  options.while_running = [&](pid_t root) {
    if (link >= 0 || !std::filesystem::exists(partial("metrics.jsonl"))) return;
    const std::vector<pid_t> ranks = ranks_below(root);
    if (ranks.size() != 2) return;
    link = connect_silently(variable_of(ranks[1], "TESSERA_LAUNCHED_BY"));
    kill(root, SIGTERM);
  };
  const ProgramResult result = train({"max_steps=10000000", "--nproc", "2"}, options);
  EXPECT_GE(link, 0);
  if (link >= 0) close(link);
  EXPECT_FALSE(result.has_timed_out);
  EXPECT_EQ(result.exit_code, 143) << result.told();
}

// A program that lies beside the folders of an installed OpenMPI is not taken for the package.
TEST_F(EnvironmentTest, FolderThatIsNoPackage) {
  std::filesystem::create_directories(here / "prefix/bin");
  std::filesystem::create_directories(here / "prefix/lib/openmpi");
  std::filesystem::copy_file(program_path(), here / "prefix/bin/tessera");
  RunOptions options;
  options.folder = here.path();
  expect_well(run_command({here / "prefix/bin/tessera", "train", "recipe.yaml", "--nproc", "2"}, options));
}

// Whatever ends a job, its temporary files go with it.
TEST_F(EnvironmentTest, NothingIsLeftBehind) {
  enum class Victim { Program, Launcher, Rank };
  struct End {
    Victim victim;
    int signal, exit_code;
    std::string told;
  };
  const std::vector<End> ends = {{Victim::Program, SIGINT, 130, ""},
                                 {Victim::Program, SIGTERM, 143, ""},
                                 {Victim::Launcher, SIGHUP, 9, ""},
                                 {Victim::Launcher, SIGKILL, 9, "signal 9"},
                                 {Victim::Rank, SIGKILL, 9, "rank 1 was ended by signal 9"}};
  Random random;
  for (const End& end : some_of(ends, 1, random)) {
    std::string session;
    std::vector<pid_t> processes;
    RunOptions options;
    options.while_running = [&](pid_t root) {
      if (!session.empty() || !std::filesystem::exists(partial("metrics.jsonl")) ||
          read_text(partial("metrics.jsonl")).empty())
        return;
      const std::vector<pid_t> ranks = ranks_below(root);
      if (ranks.size() != 2) return;
      session = variable_of(ranks[1], "OMPI_MCA_orte_tmpdir_base");
      pid_t launcher = 0;
      for (const auto& [id, command] : processes_below(root)) {
        processes.push_back(id);
        if (command.find("mpirun") != std::string::npos) launcher = id;
      }
      kill(end.victim == Victim::Program    ? root
           : end.victim == Victim::Launcher ? launcher
                                            : ranks[1],
           end.signal);
    };
    const ProgramResult result = train({"max_steps=10000000", "--nproc", "2"}, options);
    ASSERT_FALSE(session.empty()) << result.told();
    EXPECT_EQ(result.exit_code, end.exit_code) << result.told();
    if (!end.told.empty()) expect_error(result, end.exit_code, "E-PEER-LOST", {end.told});
    EXPECT_FALSE(std::filesystem::exists(session)) << session;
    expect_gone(processes);
    std::filesystem::remove_all(partial());
  }
}

TEST_F(EnvironmentTest, NextRunRemovesWhatAKilledOneLeft) {
  std::string session;
  std::vector<pid_t> processes;
  RunOptions options;
  options.while_running = [&](pid_t root) {
    if (!session.empty()) return;
    const std::vector<pid_t> ranks = ranks_below(root);
    if (ranks.size() != 2) return;
    session = variable_of(ranks[1], "OMPI_MCA_orte_tmpdir_base");
    for (const auto& [id, command] : processes_below(root)) processes.push_back(id);
    kill(root, SIGKILL);
  };
  train({"max_steps=10000000", "--nproc", "2"}, options);
  ASSERT_FALSE(session.empty());
  expect_gone(processes);
  expect_well(train({"--nproc", "2", "output_dir=next"}));
  EXPECT_FALSE(std::filesystem::exists(session)) << session;
}

}  // namespace
}  // namespace tessera::testing

// Tests on a Slurm cluster of one machine: runs the batch script of recipes/ as a user submits it.
#include <csignal>

#include "tests/integration/fixture.h"
#include "tests/testing/paths.h"
#include "tests/testing/processes.h"
#include "tests/testing/skip.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

std::string found(const std::string& program) {
  for (const char* folder : {"/usr/sbin/", "/usr/bin/", "/usr/local/sbin/", "/usr/local/bin/"}) {
    if (fs::exists(folder + program)) return folder + program;
  }
  return "";
}

// A daemon of the cluster, which ends with this object.
class Daemon {
 public:
  Daemon(const Words& command, const std::string& log) {
    id_ = fork();
    if (id_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::FILE* file = std::fopen(log.c_str(), "w");
    if (file == nullptr) _exit(126);
    dup2(fileno(file), STDOUT_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execv(words[0], words.data());
    _exit(127);
  }
  ~Daemon() {
    if (id_ <= 0) return;
    kill(id_, SIGTERM);
    for (int wait = 0; wait < 500 && waitpid(id_, nullptr, WNOHANG) == 0; ++wait) usleep(10'000);
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, WNOHANG);
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

 private:
  pid_t id_ = -1;
};

class SlurmTest : public ProgramTest {
 protected:
  void SetUp() override {
    for (const char* program : {"slurmctld", "slurmd", "sbatch", "munged"}) {
      if (found(program).empty()) {
        GTEST_SKIP() << skip::kPermission << ": " << program << " is missing (packages slurm-wlm and munge)";
      }
    }
    if (geteuid() != 0) GTEST_SKIP() << skip::kPermission << ": the daemons of Slurm need root";
    ProgramTest::SetUp();
    start_cluster();
  }
  void TearDown() override {
    if (!daemons_.empty()) slurm({"scancel", "--full", "--user=root"});
    usleep(500'000);
    daemons_.clear();
  }

  ProgramResult slurm(const Words& command) const {
    Words words = command;
    words[0] = found(command[0]);
    return run_command(words,
                       {.timeout_s = 30.0,
                        .environment = {{"SLURM_CONF", here / "slurm.conf"}, {"TESSERA", program_path()}},
                        .folder = here.path()});
  }
  std::string state_of(const std::string& job) const {
    const std::string told = slurm({"scontrol", "show", "job", job}).out;
    const size_t begin = told.find("JobState=");
    return begin == std::string::npos ? "" : told.substr(begin + 9, told.find(' ', begin) - begin - 9);
  }
  std::string daemon_logs() const {
    std::string text;
    for (const char* name : {"munged.log", "slurmctld.log", "slurmd.log"}) {
      text += std::string("--- ") + name + "\n" + read_text(here / name);
    }
    return text;
  }

 private:
  void start_cluster() {
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    const int port = 20000 + static_cast<int>(getpid() % 20000);
    for (const char* folder : {"state", "spool", "munge"}) fs::create_directory(here / folder);
    fs::permissions(here.path(), fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec);
    fs::permissions(here / "munge", fs::perms::owner_all | fs::perms::group_exec | fs::perms::group_read |
                                        fs::perms::others_exec | fs::perms::others_read);
    write_text(here / "munge.key", std::string(64, 'k') + host);
    fs::permissions(here / "munge.key", fs::perms::owner_read | fs::perms::owner_write);
    const std::string socket = here / "munge/socket";
    write_text(
        here / "slurm.conf",
        "ClusterName=test\nSlurmctldHost=" + std::string(host) + "\nAuthType=auth/munge\nAuthInfo=socket=" +
            socket + "\nSlurmUser=root\nSlurmctldPort=" + std::to_string(port) +
            "\nSlurmdPort=" + std::to_string(port + 1) + "\nStateSaveLocation=" + (here / "state") +
            "\nSlurmdSpoolDir=" + (here / "spool") + "\nSlurmctldPidFile=" + (here / "slurmctld.pid") +
            "\nSlurmdPidFile=" + (here / "slurmd.pid") +
            "\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\n"
            "SelectType=select/linear\nSchedulerType=sched/builtin\nReturnToService=2\nJobRequeue=1\n"
            "KillWait=20\nAccountingStorageType=accounting_storage/none\n"
            "JobAcctGatherType=jobacct_gather/none\nNodeName=" +
            host + " CPUs=1 State=UNKNOWN\nPartitionName=all Nodes=" + host + " Default=YES State=UP\n");
    daemons_.push_back(std::make_unique<Daemon>(
        Words{found("munged"), "--foreground", "--force", "--key-file=" + (here / "munge.key"),
              "--socket=" + socket, "--pid-file=" + (here / "munge/pid"),
              "--seed-file=" + (here / "munge/seed"), "--log-file=" + (here / "munge/log")},
        here / "munged.log"));
    for (int wait = 0; wait < 1000 && !fs::exists(socket); ++wait) usleep(10'000);
    daemons_.push_back(std::make_unique<Daemon>(Words{found("slurmctld"), "-D", "-f", here / "slurm.conf"},
                                                here / "slurmctld.log"));
    daemons_.push_back(std::make_unique<Daemon>(Words{found("slurmd"), "-D", "-f", here / "slurm.conf"},
                                                here / "slurmd.log"));
    for (int wait = 0; wait < 300; ++wait) {
      if (slurm({"sinfo", "--noheader", "--format=%T"}).out.starts_with("idle")) return;
      usleep(100'000);
    }
    FAIL() << "the cluster does not come up\n" << daemon_logs();
  }

  std::vector<std::unique_ptr<Daemon>> daemons_;
};

// On SIGTERM the run saves, the job goes back into the queue, and its second run goes on.
TEST_F(SlurmTest, AJobThatIsAskedToStopIsRequeuedAndGoesOn) {
  const std::string script = source_folder() + "/recipes/slurm.sbatch";
  const Words keys = {"max_steps=2000", "save_steps=1000", "overwrite_output_dir=false"};
  train_well(with(keys, {"output_dir=whole", "--nproc", "2"}));
  Words command = {"sbatch", "--parsable", "--begin=now", "--output=job.log", script, "recipe.yaml", "2"};
  command.insert(command.end(), keys.begin(), keys.end());
  command.push_back("max_steps=2000");
  const ProgramResult submitted = slurm(command);
  ASSERT_EQ(submitted.exit_code, 0) << submitted.told();
  const std::string job = ProgramResult::lines(submitted.out).front();

  bool is_asked = false;
  std::string state;
  for (int wait = 0; wait < 2400; ++wait) {
    usleep(100'000);
    if (!is_asked && num_steps() > 5) {
      is_asked = slurm({"scancel", "--batch", "--signal=TERM", job}).exit_code == 0;
      continue;
    }
    state = state_of(job);
    // A requeued job waits two minutes for its nodes to settle, unless it is told to start. Slurm heeds that
    // only when the nodes have ended the job, so it is told again and again.
    if (is_asked && state == "PENDING" && wait % 20 == 0)
      slurm({"scontrol", "update", "JobId=" + job, "StartTime=now"});
    if (state == "COMPLETED" || state == "FAILED") break;
  }
  const std::string told = read_text(here / "job.log");
  EXPECT_TRUE(is_asked);
  ASSERT_EQ(state, "COMPLETED") << told << daemon_logs();
  EXPECT_NE(told.find("stopped after step"), std::string::npos) << told;
  EXPECT_NE(told.find("the job is requeued"), std::string::npos) << told;
  EXPECT_NE(told.find("resuming from"), std::string::npos) << told;
  EXPECT_TRUE(read_text(out("model.safetensors")) == read_text(here / "whole/model.safetensors"));
  EXPECT_EQ(read_metrics(out()).size(), 2000u);
}

// On several machines srun starts the ranks; here it does so on one.
TEST_F(SlurmTest, RanksOfSrunTrainAndOneThatDoesNotComeIsNamed) {
  train_well({"output_dir=whole", "--nproc", "2"});
  const Words srun = {"srun", "--mpi=pmix", "--kill-on-bad-exit=1", "--ntasks=2", "--overcommit"};
  const ProgramResult whole = slurm(with(srun, {program_path(), "train", "recipe.yaml"}));
  ASSERT_EQ(whole.exit_code, 0) << whole.told() << daemon_logs();
  EXPECT_TRUE(read_text(out("model.safetensors")) == read_text(here / "whole/model.safetensors"));

  const std::string command =
      "export TESSERA_START_TIMEOUT=3; [ $SLURM_PROCID = 1 ] && exec sleep 600; exec '" + program_path() +
      "' train recipe.yaml";
  const ProgramResult missing = slurm(with(srun, {"sh", "-c", command}));
  // The exit code is srun's, which is the highest one of its tasks.
  EXPECT_GT(missing.exit_code, 0) << missing.told() << daemon_logs();
  EXPECT_FALSE(missing.has_timed_out) << missing.told();
  EXPECT_NE(missing.err.find("task 0: Exited with exit code 9"), std::string::npos) << missing.told();
  const Words errors = missing.error_lines();
  ASSERT_EQ(errors.size(), 1U) << missing.told();
  for (const char* part :
       {"E-PEER-START", "rank 1 has not started; present are rank 0 (process ", "all 2 ranks"})
    EXPECT_NE(errors[0].find(part), std::string::npos) << missing.told();
}

}  // namespace
}  // namespace tessera::testing

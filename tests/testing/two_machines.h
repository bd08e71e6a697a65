// Two machines on one: each has a network namespace and a host name of its own. Between them lies a wire
// that a test may cut or make lossy, and that counts its bytes.
#pragma once

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "tests/testing/run_program.h"
#include "tests/testing/temp_folder.h"

namespace tessera::testing {

class TwoMachines {
 public:
  // Needs root, the tools of iproute2 and util-linux, and /dev/net/tun; is_up() tells whether all worked.
  TwoMachines() {
    if (geteuid() != 0) return;
    for (size_t m = 0; m < 2; ++m) {
      names_[m] = "tessera-" + std::to_string(getpid()) + "-" + (m == 0 ? "a" : "b");
      if (!ip({"netns", "add", names_[m]})) return;
      is_made_[m] = true;
      ends_[m] = tap_in(names_[m]);
      if (ends_[m] < 0 || !ip({"-n", names_[m], "addr", "add", address(m) + "/24", "dev", kDevice}) ||
          !ip({"-n", names_[m], "link", "set", kDevice, "up"}) ||
          !ip({"-n", names_[m], "link", "set", "lo", "up"}))
        return;
    }
    const std::string agent = folder_.write("agent", "#!/bin/sh\nshift\nexec ip netns exec " + names_[1] +
                                                         " unshare --uts sh -c \"hostname machine-b; $*\"\n");
    chmod(agent.c_str(), 0755);
    wire_ = std::thread([this] { carry(); });
    is_up_ = true;
  }
  ~TwoMachines() {
    is_ending_ = true;
    if (wire_.joinable()) wire_.join();
    for (size_t m = 0; m < 2; ++m) {
      if (ends_[m] >= 0) close(ends_[m]);
      if (is_made_[m]) ip({"netns", "del", names_[m]});
    }
  }
  TwoMachines(const TwoMachines&) = delete;
  TwoMachines& operator=(const TwoMachines&) = delete;

  bool is_up() const { return is_up_; }
  // Returns the command line of an mpirun on machine-a that runs `command` on four ranks: two there, then
  // two on machine-b.
  Words on_four_ranks(const Words& command) const {
    Words words = {
        "ip", "netns", "exec", names_[0], "unshare", "--uts", "sh", "-c", "hostname machine-a; exec \"$@\"",
        "sh"};
    const Words launch = mpirun({"-n",
                                 "4",
                                 "--map-by",
                                 "slot",
                                 "--host",
                                 address(0) + ":2," + address(1) + ":2",
                                 "--mca",
                                 "plm_rsh_agent",
                                 folder_ / "agent",
                                 "--mca",
                                 "pml",
                                 "ob1",
                                 "--mca",
                                 "btl",
                                 "tcp,self,vader",
                                 "--mca",
                                 "btl_tcp_if_include",
                                 kDevice,
                                 "--mca",
                                 "oob_tcp_if_include",
                                 kDevice});
    words.insert(words.end(), launch.begin(), launch.end());
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }

  // Returns the processes that run on either machine.
  std::vector<pid_t> processes() const {
    std::vector<pid_t> found;
    for (const std::string& name : names_) {
      for (const std::string& id : ProgramResult::lines(run_command({"ip", "netns", "pids", name}).out))
        found.push_back(std::stoi(id));
    }
    return found;
  }

  // Bytes of all frames that machine-a has sent to machine-b and that were not lost.
  int64_t bytes_sent() const { return bytes_sent_; }
  // Packets lost in both directions.
  int64_t packets_lost() const { return packets_lost_; }
  // Loses this part of the packets from now on, in both directions; 1 cuts the wire.
  void lose(double part) { loss_ = part; }

 private:
  static constexpr const char* kDevice = "wire";

  static std::string address(size_t machine) { return "10.213.77." + std::to_string(1 + machine); }
  static bool ip(Words words) {
    words.insert(words.begin(), "ip");
    return run_command(words).exit_code == 0;
  }
  // Makes a network device in that namespace and returns the file through which this process reads and writes
  // its frames; -1 if that fails.
  static int tap_in(const std::string& name) {
    int file = -1;
    std::thread([&] {
      const int space = open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
      if (space < 0 || setns(space, CLONE_NEWNET) != 0) return;
      close(space);
      file = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
      ifreq request = {};
      std::strncpy(request.ifr_name, kDevice, IFNAMSIZ - 1);
      request.ifr_flags = IFF_TAP | IFF_NO_PI;
      if (file >= 0 && ioctl(file, TUNSETIFF, &request) != 0) {
        close(file);
        file = -1;
      }
    }).join();
    return file;
  }

  void carry() {
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> even(0.0, 1.0);
    std::array<char, 65536> frame;
    while (!is_ending_) {
      std::array<pollfd, 2> waits = {pollfd{ends_[0], POLLIN, 0}, pollfd{ends_[1], POLLIN, 0}};
      poll(waits.data(), waits.size(), 50);
      for (size_t m = 0; m < 2; ++m) {
        for (ssize_t size; (size = read(ends_[m], frame.data(), frame.size())) > 0;) {
          if (even(random) < loss_) {
            ++packets_lost_;
            continue;
          }
          if (m == 0) bytes_sent_ += size;
          (void)!write(ends_[1 - m], frame.data(), static_cast<size_t>(size));
        }
      }
    }
  }

  const TempFolder folder_;
  std::array<std::string, 2> names_;
  std::array<bool, 2> is_made_ = {};
  std::array<int, 2> ends_ = {-1, -1};
  bool is_up_ = false;
  std::atomic<bool> is_ending_ = false;
  std::atomic<double> loss_ = 0.0;
  std::atomic<int64_t> bytes_sent_ = 0, packets_lost_ = 0;
  std::thread wire_;
};

}  // namespace tessera::testing

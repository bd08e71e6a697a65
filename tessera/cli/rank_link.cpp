#include "tessera/cli/rank_link.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <fcntl.h>
#include <unistd.h>

#include "tessera/core/environment.h"
#include "tessera/core/host_name.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"
#include "tessera/train/run/run_signals.h"

namespace tessera::cli {
namespace {

constexpr char kVariable[] = "TESSERA_LAUNCHED_BY";
constexpr int kStarted = -1;    // message "this rank has met the others"; no exit code is negative
constexpr int kNumStreams = 3;  // standard output, error and input

int link_of_this_rank = -1;

// [Note: link between a rank and its starter]
// The process that starts the ranks listens on a Unix socket, whose name the ranks find in
// TESSERA_LAUNCHED_BY. A rank connects and sends messages of one int each: first its number, then kStarted
// when it has met the others, and at last its exit code, or train::kEndedByOthers. The starter answers the
// number with its standard streams, as descriptors, and from then on the rank has joined. A socket that is
// closed without an exit code tells that its rank was killed or crashed. SOCK_SEQPACKET keeps messages whole.

// Returns the address for a name in the abstract namespace: it is no file, so it needs no folder and leaves
// nothing behind.
sockaddr_un address_of(const std::string& name, socklen_t& length) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof address.sun_path - 1));
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

// One message: an int, with room for the streams (descriptors) that are sent along.
struct StreamsMessage {
  int value = 0;
  iovec part = {&value, sizeof value};
  alignas(cmsghdr) char control[CMSG_SPACE(kNumStreams * sizeof(int))] = {};
  msghdr message = {};

  StreamsMessage() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  StreamsMessage(const StreamsMessage&) = delete;
  StreamsMessage& operator=(const StreamsMessage&) = delete;
};

bool send_streams(int socket) {
  const int streams[kNumStreams] = {STDOUT_FILENO, STDERR_FILENO, STDIN_FILENO};
  StreamsMessage sent;
  cmsghdr* const header = CMSG_FIRSTHDR(&sent.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof streams);
  std::memcpy(CMSG_DATA(header), streams, sizeof streams);
  return sendmsg(socket, &sent.message, MSG_NOSIGNAL) == sizeof sent.value;
}

bool receive_streams(int socket, int (&streams)[kNumStreams]) {
  StreamsMessage received;
  if (recvmsg(socket, &received.message, MSG_CMSG_CLOEXEC) != sizeof received.value) return false;
  const cmsghdr* const header = CMSG_FIRSTHDR(&received.message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof streams))
    return false;
  std::memcpy(streams, CMSG_DATA(header), sizeof streams);
  return true;
}

}  // namespace

RankLinks::RankLinks() {
  unsigned char random[12];
  if (getrandom(random, sizeof random, 0) != sizeof random) return;
  std::string name = "tessera-";
  for (const unsigned char byte : random) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  socklen_t length = 0;
  const sockaddr_un address = address_of(name, length);
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ < 0) return;
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(listener_, SOMAXCONN) != 0) {
    close(listener_);
    listener_ = -1;
    return;
  }
  environment::set(kVariable, name);
}

RankLinks::~RankLinks() {
  for (const auto& [socket, rank] : ranks_) close(socket);
  if (listener_ >= 0) close(listener_);
}

std::vector<int> RankLinks::descriptors() const {
  std::vector<int> found;
  if (listener_ >= 0) found.push_back(listener_);
  for (const auto& [socket, rank] : ranks_) found.push_back(socket);
  return found;
}

void RankLinks::accept_ranks() {
  while (listener_ >= 0) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) return;
    ucred peer = {};
    socklen_t length = sizeof peer;
    // Every user of the machine may connect to an abstract name, so others than this user are turned away.
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid()) {
      ranks_[socket].process = peer.pid;
    } else {
      close(socket);
    }
  }
}

bool RankLinks::take(int socket, Rank& rank) {
  for (;;) {
    int value = 0;
    const ssize_t length = recv(socket, &value, sizeof value, 0);
    if (length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
    if (length != sizeof value) return false;
    // The first message is the rank's number; see [Note: link between a rank and its starter].
    if (!rank.number) {
      if (!send_streams(socket)) return false;
      rank.number = value;
      ++num_joined_;
      processes_[value] = rank.process;
    } else if (value == kStarted) {
      num_started_ += rank.has_started ? 0 : 1;
      rank.has_started = true;
    } else {
      rank.has_told = true;
      if (value == train::kEndedByOthers) {
        if (!ended_) ended_ = RankEnd{*rank.number, rank.process, std::nullopt};
      } else if (value != 0 && !first_failure_) {
        first_failure_ = RankEnd{*rank.number, rank.process, value};
      }
    }
  }
}

void RankLinks::update() {
  accept_ranks();
  std::vector<int> ended;
  for (auto& [socket, rank] : ranks_) {
    if (!take(socket, rank)) ended.push_back(socket);
  }
  // A rank that fails tells so before the launcher ends the others, but sockets are read one after the other:
  // the end of a rank that was ended may be read in a pass that came too early to the failed rank's socket.
  // Its message is there by now, so all sockets are read once more before any end without a word is counted.
  if (!ended.empty()) {
    for (auto& [socket, rank] : ranks_) take(socket, rank);
  }
  for (const int socket : ended) {
    const Rank& rank = ranks_.at(socket);
    if (rank.number && !rank.has_told && !first_failure_)
      first_failure_ = RankEnd{*rank.number, rank.process, std::nullopt};
    close(socket);
    ranks_.erase(socket);
  }
}

void RankLinks::kill_all(int signal) const {
  for (const auto& [socket, rank] : ranks_) {
    if (rank.number) kill(rank.process, signal);
  }
}

std::string RankLinks::missing(int64_t num_ranks) const {
  std::map<int64_t, const Rank*> joined;
  for (const auto& [socket, rank] : ranks_) {
    if (rank.number) joined[*rank.number] = &rank;
  }
  // Ranks that have joined and wait are named only if no rank is stopped or absent, for which the others
  // would wait.
  std::vector<std::string> stopped, absent, waiting;
  for (int64_t number = 0; number < num_ranks; ++number) {
    const auto found = joined.find(number);
    const std::string name = "rank " + std::to_string(number);
    if (found == joined.end()) {
      absent.push_back(name);
      continue;
    }
    const pid_t process = found->second->process;
    const std::string named = name + " (process " + std::to_string(process) + " on " + host_name();
    if (process_status(process).is_stopped())
      stopped.push_back(named + ", stopped)");
    else if (!found->second->has_started)
      waiting.push_back(named + ")");
  }
  absent.insert(absent.begin(), stopped.begin(), stopped.end());
  return join(absent.empty() ? waiting : absent, ", ");
}

pid_t RankLinks::process_of(int64_t rank) const {
  const auto found = processes_.find(rank);
  return found == processes_.end() ? 0 : found->second;
}

void RankLinks::pass_on(int signal, int count) const {
  for (const auto& [socket, rank] : ranks_) {
    const bool asks_for_all = signal == SIGUSR1;
    if (rank.number && (!asks_for_all || rank.number == 0))
      train::pass_on_signal(rank.process, signal, count);
  }
}

bool has_launching_process() { return link_of_this_rank >= 0; }

bool join_launching_process(int64_t rank) {
  const auto name = environment::get(kVariable);
  if (!name) return false;
  socklen_t length = 0;
  const sockaddr_un address = address_of(*name, length);
  const int link = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const int number = static_cast<int>(rank);
  int streams[kNumStreams];
  if (link < 0 || connect(link, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      send(link, &number, sizeof number, MSG_NOSIGNAL) != sizeof number || !receive_streams(link, streams)) {
    if (link >= 0) close(link);
    return false;
  }
  dup2(streams[0], STDOUT_FILENO);
  close(streams[0]);
  // Only the log goes to the starter's standard error. Descriptor 2 stays the launcher's, so that the words
  // of libraries are kept for the error that tells of a bad end.
  log::set_stream(streams[1]);
  if (rank == 0) dup2(streams[2], STDIN_FILENO);
  close(streams[2]);
  link_of_this_rank = link;
  return true;
}

namespace {

void tell(int value) {
  if (link_of_this_rank >= 0) (void)!send(link_of_this_rank, &value, sizeof value, MSG_NOSIGNAL);
}

}  // namespace

void tell_started() { tell(kStarted); }
void tell_end(int exit_code) { tell(exit_code); }

}  // namespace tessera::cli

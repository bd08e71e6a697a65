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
#include "tessera/core/log.h"

namespace tessera::cli {
namespace {

constexpr char kVariable[] = "TESSERA_LAUNCHED_BY";
constexpr int kNumStreams = 2;  // standard output and standard error

int link_of_this_rank = -1;

// A name without a file, which needs no folder and leaves nothing behind.
sockaddr_un address_of(const std::string& name, socklen_t& length) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof address.sun_path - 1));
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

// One message: an int, with room for the streams that are sent along.
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
  const int streams[kNumStreams] = {STDOUT_FILENO, STDERR_FILENO};
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
    // The name is open to every user of the machine.
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid()) {
      ranks_[socket].process = peer.pid;
    } else {
      close(socket);
    }
  }
}

void RankLinks::update() {
  accept_ranks();
  for (auto entry = ranks_.begin(); entry != ranks_.end();) {
    const int socket = entry->first;
    Rank& rank = entry->second;
    int value = 0;
    const ssize_t length = recv(socket, &value, sizeof value, 0);
    if (length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
      ++entry;
      continue;
    }
    // The rank's number comes first, its exit code last.
    if (length == sizeof value && !rank.number && send_streams(socket)) {
      rank.number = value;
      ++num_joined_;
      ++entry;
      continue;
    }
    if (length == sizeof value && rank.number) {
      rank.has_told = true;
      if (value != 0 && !first_failure_) first_failure_ = RankEnd{*rank.number, value};
      ++entry;
      continue;
    }
    if (rank.number && !rank.has_told && !first_failure_)
      first_failure_ = RankEnd{*rank.number, std::nullopt};
    close(socket);
    entry = ranks_.erase(entry);
  }
}

void RankLinks::kill_all(int signal) const {
  for (const auto& [socket, rank] : ranks_) {
    if (rank.number) kill(rank.process, signal);
  }
}

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
  // Standard error itself stays the launcher's: what libraries write there is told where it explains an end.
  log::set_stream(streams[1]);
  link_of_this_rank = link;
  return true;
}

void tell_end(int exit_code) {
  if (link_of_this_rank >= 0) (void)!send(link_of_this_rank, &exit_code, sizeof exit_code, MSG_NOSIGNAL);
}

}  // namespace tessera::cli

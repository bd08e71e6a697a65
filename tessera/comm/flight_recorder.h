// Records what the ranks of a machine did last, to tell why they wait for each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::comm {
namespace detail {
class Transport;
}

// [Note: flight recorder] Each rank writes what it does into memory that all ranks of its machine map: a sign
// of life, several times a second, from a thread of its own; the last 2000 operations of all its groups, with
// begin and end; the operation that its main thread waits for; and whether it works on storage. A rank that
// has waited too long reads the others' notes. It needs no answer from them, so it can tell that a rank is
// stopped, has ended, computes on and on, or is in another call. Of ranks on other machines it knows only
// which machine they are on; if the ranks share no memory, it knows of itself alone.
namespace flight {

// An operation that begins. `number` counts the group's collectives and is 0 for messages.
struct Operation {
  uint64_t group = 0;  // the same on all ranks of the group, and another one for every other group
  std::string_view group_name, name, hint;
  int64_t number = 0, num_bytes = 0;
  uint64_t peers = 0;  // of messages: bit r stands for rank r of the group; ranks from 64 on have none
};

// The key of the group of all ranks.
inline constexpr uint64_t kWorldGroup = 1;

// Begins to record. Collective over all ranks. Call it once, on the thread whose waits are to be noted, which
// counts as the main thread.
void attach(detail::Transport& world);
// Ends the sign of life; the notes stay.
void detach();

// This rank's number among all ranks; -1 if nothing is recorded.
int64_t own_rank();
// Tells whether ranks of the job run on other machines; false before attach().
bool spans_machines();
// Notes that this rank is number `group_rank` in `group`, whose ranks have the numbers `ranks` among all
// ranks. Call it before any rank's first operation in the group. There is room for 128 groups; the first one
// that is left out is warned of.
void join(uint64_t group, int64_t group_rank, const std::vector<int64_t>& ranks);

// begin() records an operation and returns its place in the recording, or -1 if nothing is recorded. end(),
// WaitScope and look_into() take this place.
int64_t begin(const Operation& operation);
void end(int64_t place);

// While it lives, the main thread is noted as waiting for the operation at `place`; does nothing on other
// threads.
class WaitScope {
 public:
  explicit WaitScope(int64_t place);
  ~WaitScope();
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

 private:
  const bool is_noted_;
  int64_t outer_ = -1;
};

// While it lives, this rank is noted as working on storage, which may take long, so a rank that waits for it
// is not in a hang. `what` completes "it is about to <what>".
class StorageScope {
 public:
  explicit StorageScope(std::string_view what);
  ~StorageScope();
  StorageScope(const StorageScope&) = delete;
  StorageScope& operator=(const StorageScope&) = delete;
};

// While it lives, this thread waits for other ranks' work on storage. If some ranks cannot be seen from here,
// nobody knows whether they still live, so the waits of this thread then have no timeout.
class PatienceScope {
 public:
  PatienceScope();
  ~PatienceScope();
  PatienceScope(const PatienceScope&) = delete;
  PatienceScope& operator=(const PatienceScope&) = delete;
};

// The reason why an operation of this rank does not end.
struct Finding {
  std::string text;  // "rank 1 (process 77 on n01) has not called it: it is stopped"; empty if not known
  // True if this is no hang. Then the operation waits for a rank that lives and works on storage, or it has
  // not been the whole timeout since such work ended, since the last rank called the operation, or since this
  // rank went on after it had been stopped itself. A PatienceScope excuses, too.
  bool is_excused = false;
};
// Reads the notes of this machine's ranks to tell why the operation at `place` has not ended within
// `timeout`.
Finding look_into(int64_t place, std::chrono::milliseconds timeout);

// Returns true for the first caller among this machine's ranks: for a word that one of them says for all.
bool is_first_to_tell();

// Gives the recordings of all ranks of the machine, and `why`, as JSON.
std::string recordings(const std::string& why);

// Tells whether this process has noted a hang; after one, no thread is waited for any more.
bool has_hung();
// Notes a hang. The first rank that does so writes the recordings of its machine to the file that
// set_dump_file() named. Gives the file's path, empty if there is no file.
std::string note_hang(const std::string& why);
void set_dump_file(const std::string& path);

}  // namespace flight
}  // namespace tessera::comm

// What the ranks of a machine did last, for the case that they wait for each other.
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
// has waited too long reads the others' notes, asks nobody, and so can tell of a rank that is stopped, has
// ended, computes on and on, or is in another call. Of ranks on other machines
// it knows the machine alone; where ranks share no memory, a rank knows of itself alone.
namespace flight {

// An operation that begins. `number` counts the group's collectives, 0 for messages.
struct Operation {
  uint64_t group = 0;  // the same on all ranks of the group, and another one for every other group
  std::string_view group_name, name, hint;
  int64_t number = 0, num_bytes = 0;
  uint64_t peers = 0;  // of messages: bit r for rank r of the group, as far as there are bits
};

// The group of all ranks.
inline constexpr uint64_t kWorldGroup = 1;

// Begins to record. Collective over all ranks. To be called once, by the thread that will wait.
void attach(detail::Transport& world);
// Ends the sign of life; the notes stay.
void detach();

// This rank's number among all ranks; -1 where nothing is recorded.
int64_t own_rank();
// Whether ranks of the job run on other machines, as far as attach() has learnt of them.
bool spans_machines();
// This rank is in a group of these ranks. Before the first operation of any of them.
void join(uint64_t group, int64_t group_rank, const std::vector<int64_t>& ranks);

// Its place in the recording, for end() and the others; -1 where nothing is recorded.
int64_t begin(const Operation& operation);
void end(int64_t place);

// While it lives, the main thread waits for the operation; does nothing on other threads.
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

// While it lives, this rank works on storage, which may take long: who waits for it is not in a hang.
class StorageScope {
 public:
  explicit StorageScope(std::string_view what);
  ~StorageScope();
  StorageScope(const StorageScope&) = delete;
  StorageScope& operator=(const StorageScope&) = delete;
};

// While it lives, this thread waits for what others do on storage. Where not all ranks are seen, which of
// them lives is not known, and so its waits have no end.
class PatienceScope {
 public:
  PatienceScope();
  ~PatienceScope();
  PatienceScope(const PatienceScope&) = delete;
  PatienceScope& operator=(const PatienceScope&) = delete;
};

// Why an operation of this rank does not end.
struct Finding {
  std::string text;  // "rank 1 (process 77 on n01) has not called it: it is stopped"; empty: not known
  // It is no hang: it is up to a rank that lives and works on storage; or the timeout has not passed since
  // such work ended, since the last rank has come, or since this rank went on, having been stopped itself.
  bool is_excused = false;
};
Finding look_into(int64_t place, std::chrono::milliseconds timeout);

// The recordings of all ranks of the machine, as JSON, with `why`.
std::string recordings(const std::string& why);

// After a hang no thread is waited for any more.
bool has_hung();
// Notes a hang; the first one on this machine writes the recordings to the file that set_dump_file() named.
// Gives its path, empty where none was written.
std::string note_hang(const std::string& why);
void set_dump_file(const std::string& path);

}  // namespace flight
}  // namespace tessera::comm

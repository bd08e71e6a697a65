#include "tessera/comm/flight_recorder.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tessera/comm/host/transport.h"
#include "tessera/core/host_name.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"

namespace tessera::comm::flight {
namespace {

constexpr int64_t kRecords = 2000, kGroups = 128, kRanks = 64;
constexpr int64_t kStopped_ns = 1'500'000'000;  // a longer gap between its own signs of life: it was stopped

template <size_t N>
void put(char (&target)[N], std::string_view text) {
  const size_t size = std::min(text.size(), N - 1);
  std::memcpy(target, text.data(), size);
  target[size] = '\0';
}

struct Record {
  uint64_t group;
  int64_t number, num_bytes, begin_ns, end_ns;  // end_ns 0: it goes on
  uint64_t peers;
  char name[24], group_name[24], hint[56];
};

// A group that the rank is in: how many collectives the rank has called, and the first kRanks ranks of the
// group.
struct GroupNote {
  uint64_t key;
  int64_t rank;
  std::atomic<int64_t> num_called;
  int64_t num_ranks;
  int32_t ranks[kRanks];
};

// The notes of one rank. Memory of zeros is valid. Only the rank itself writes them; all ranks read them,
// also in the middle of a write.
struct Notes {
  std::atomic<int64_t> alive_ns, waiting_for, num_storage, storage_ns, num_records, num_groups, has_told;
  int64_t rank;
  int process;
  char host[64], storage[56];
  GroupNote groups[kGroups];
  Record records[kRecords];

  const Record& record(int64_t place) const { return records[place % kRecords]; }
};
static_assert(std::atomic<int64_t>::is_always_lock_free);

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// This process's own state. It is never freed, because threads that are left behind in an operation may still
// write.
struct State {
  std::shared_ptr<char> memory;
  Notes* own = nullptr;
  int64_t num_ranks = 0;  // whose notes `memory` holds: those of the machine
  int64_t world_size = 0;
  std::mutex mutex;      // guards begin() and join(), which several threads may call
  bool is_full = false;  // a group was left out, which has been told
  std::mutex life_mutex;
  std::condition_variable life_ends;
  std::thread life;
  bool is_ending = false;
  std::atomic<int64_t> went_on_ns{0};  // when this process went on after it was stopped; 0: it never was
  std::string dump_file;
  std::vector<std::string> hosts;  // the machine of each rank of the world
};
State& state() {
  static auto* const the = new State();
  return *the;
}
std::atomic<bool> g_has_hung{false};
thread_local bool is_main_thread = false;
thread_local int num_patient = 0, num_waits = 0;

Notes* notes_of(int64_t i) { return reinterpret_cast<Notes*>(state().memory.get()) + i; }

// Runs on a thread of its own and notes a sign of life, four times a second. A sign that comes much later
// than the one before shows that this whole process was stopped.
void show_life() {
  State& all = state();
  std::unique_lock<std::mutex> lock(all.life_mutex);
  while (!all.is_ending) {
    const int64_t now = now_ns();
    if (now - all.own->alive_ns > kStopped_ns) all.went_on_ns = now;
    all.own->alive_ns = now;
    all.life_ends.wait_for(lock, std::chrono::milliseconds(250));
  }
}

const GroupNote* note_of(const Notes& notes, uint64_t group) {
  const int64_t count = std::min<int64_t>(notes.num_groups, kGroups);
  for (int64_t i = 0; i < count; ++i) {
    if (notes.groups[i].key == group) return &notes.groups[i];
  }
  return nullptr;
}

std::string seconds_since(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(now_ns() - ns) * 1e-9);
  return text;
}

std::string name_of(const Notes& notes) {
  return "rank " + std::to_string(notes.rank) + " (process " + std::to_string(notes.process) + " on " +
         notes.host + ")";
}

std::string name_of(const Record& record) {
  std::string text = record.name;
  if (record.number > 0) text += " number " + std::to_string(record.number);
  return text + " of group '" + record.group_name + "'";
}

// Tells why a rank does nothing, such as "it is stopped"; empty for a rank that lives.
std::string why_silent(const Notes& notes) {
  const ProcessStatus status = process_status(notes.process);
  if (status.is_stopped()) return "it is stopped (SIGSTOP)";
  // A process that /proc does not show is gone only if /proc shows this one.
  if (status.is_gone() && process_status(getpid()).state != 0) return "it has ended";
  constexpr int64_t kSilent_ns = 10'000'000'000;
  if (now_ns() - notes.alive_ns < kSilent_ns) return "";
  return "it gives no sign of life for " + seconds_since(notes.alive_ns);
}

std::string last_of(const Notes& notes) {
  const int64_t count = notes.num_records;
  if (count == 0) return "it has called nothing yet";
  const Record& last = notes.record(count - 1);
  return "it runs; its last call, " + name_of(last) + ", " +
         (last.end_ns > 0 ? "ended " + seconds_since(last.end_ns) : "began " + seconds_since(last.begin_ns)) +
         " ago";
}

// Names the ranks of the operation `record` of `waiting` that run on other machines: "rank 2 on n02, rank 3
// on n02".
std::string unseen_in(const Record& record, const Notes& waiting) {
  const GroupNote* const group = note_of(waiting, record.group);
  std::string names;
  for (int64_t i = 0; group != nullptr && i < std::min(group->num_ranks, kRanks); ++i) {
    const bool takes_part = record.number > 0 || ((record.peers >> i) & 1) != 0;
    const auto rank = static_cast<size_t>(group->ranks[i]);
    if (!takes_part || rank >= state().hosts.size() || state().hosts[rank] == waiting.host) continue;
    if (!names.empty()) names += ", ";
    names += "rank " + std::to_string(rank) + " on " + state().hosts[rank];
  }
  return names;
}

// Gives the ranks of this machine for which `waiting` waits in `record`, lowest first: those that have not
// called the same collective, or the peers of a batch of messages.
std::vector<const Notes*> missing_from(const Record& record, const Notes& waiting) {
  std::vector<const Notes*> missing;
  for (int64_t i = 0; i < state().num_ranks; ++i) {
    const Notes* notes = notes_of(i);
    const GroupNote* group = note_of(*notes, record.group);
    if (notes == &waiting || group == nullptr) continue;
    const bool is_missing = record.number > 0 ? group->num_called < record.number
                                              : group->rank < 64 && ((record.peers >> group->rank) & 1) != 0;
    if (is_missing) missing.push_back(notes);
  }
  return missing;
}

// The time at which the last rank of this machine called the same collective.
int64_t last_begin(const Record& record) {
  int64_t last = record.begin_ns;
  for (int64_t i = 0; i < state().num_ranks; ++i) {
    const Notes* notes = notes_of(i);
    const int64_t count = notes->num_records;
    for (int64_t place = std::max<int64_t>(0, count - kRecords); place < count; ++place) {
      const Record& other = notes->record(place);
      if (other.group == record.group && other.number == record.number) last = std::max(last, other.begin_ns);
    }
  }
  return last;
}

// Returns whether less than `timeout` has passed since `ns`; 0 means never.
bool is_recent(int64_t ns, std::chrono::milliseconds timeout) {
  return ns > 0 && now_ns() - ns < std::chrono::nanoseconds(timeout).count();
}

// One link of a chain of ranks that wait for each other: `waiting` waits in `record`.
struct Link {
  const Notes* waiting;
  const Record* record;
  std::string way;  // the links before, in words

  bool is_collective() const { return record->number > 0; }  // else messages to peers
  Finding blame(const Notes& notes, const std::string& why) const {
    return {way + name_of(notes) + (is_collective() ? " has not called it: " : " does not answer: ") + why,
            false};
  }
};

// Tells which of the ranks `missing` explains the wait, in this order: one that is stopped or has ended; one
// that works on storage; one that waits for nothing, so computes. Empty if all of them wait themselves.
std::optional<Finding> explain_by(const std::vector<const Notes*>& missing, const Link& link,
                                  std::chrono::milliseconds timeout) {
  for (const Notes* notes : missing) {
    if (const std::string why = why_silent(*notes); !why.empty()) return link.blame(*notes, why);
  }
  for (const Notes* notes : missing) {
    if (notes->num_storage == 0 && is_recent(notes->storage_ns, timeout)) return Finding{"", true};
    if (notes->num_storage == 0) continue;
    Finding finding = link.blame(
        *notes, std::string("it is about to ") + notes->storage + " for " + seconds_since(notes->storage_ns));
    finding.is_excused = true;
    return finding;
  }
  for (const Notes* notes : missing) {
    if (notes->waiting_for == 0) return link.blame(*notes, last_of(*notes));
  }
  return std::nullopt;
}

// Explains a wait for which nobody of this machine is missing: a rank has come and then stopped, ranks of
// other machines are missing, or the operation itself takes long.
Finding explain_without_missing(const Link& link, std::chrono::milliseconds timeout) {
  for (int64_t i = 0; i < state().num_ranks; ++i) {
    const Notes* notes = notes_of(i);
    if (notes == link.waiting || note_of(*notes, link.record->group) == nullptr) continue;
    if (const std::string why = why_silent(*notes); !why.empty())
      return {link.way + name_of(*notes) + " has called it, but does not continue: " + why, false};
  }
  std::string text = link.way;
  if (const std::string unseen = unseen_in(*link.record, *link.waiting); !unseen.empty()) {
    text +=
        name_of(*link.waiting) + " waits for " + unseen +
        ", which cannot be inspected from this machine; it hangs, or the link between the machines is down";
  }
  return {text, is_recent(last_begin(*link.record), timeout)};
}

nlohmann::ordered_json to_json(const Notes& notes) {
  const auto seconds_ago = [now = now_ns()](int64_t ns) { return static_cast<double>(now - ns) * 1e-9; };
  nlohmann::ordered_json json = {{"rank", notes.rank},
                                 {"process", notes.process},
                                 {"host", notes.host},
                                 {"alive_s_ago", seconds_ago(notes.alive_ns)},
                                 {"stopped", process_status(notes.process).is_stopped()}};
  if (notes.num_storage > 0) json["storage"] = notes.storage;
  const int64_t waiting = notes.waiting_for.load() - 1;
  if (waiting >= 0) json["waits_for"] = name_of(notes.record(waiting));
  auto& records = json["collectives"] = nlohmann::ordered_json::array();
  const int64_t count = notes.num_records;
  for (int64_t place = std::max<int64_t>(0, count - kRecords); place < count; ++place) {
    const Record& record = notes.record(place);
    nlohmann::ordered_json entry = {{"seq", place},
                                    {"op", record.name},
                                    {"number", record.number},
                                    {"group", record.group_name},
                                    {"hint", record.hint},
                                    {"bytes", record.num_bytes},
                                    {"begin_s_ago", seconds_ago(record.begin_ns)}};
    if (record.end_ns > 0) {
      entry["end_s_ago"] = seconds_ago(record.end_ns);
    } else {
      entry["end_s_ago"] = nullptr;
    }
    records.push_back(std::move(entry));
  }
  return json;
}

}  // namespace

void attach(detail::Transport& world) {
  State& all = state();
  if (all.own != nullptr) return;
  char host[64] = {};
  put(host, host_name());
  std::vector<char> hosts(static_cast<size_t>(world.size()) * sizeof host);
  world.all_gather(hosts.data(), host, std::vector<int64_t>(world.size(), sizeof host));
  for (int64_t r = 0; r < world.size(); ++r) all.hosts.emplace_back(hosts.data() + r * sizeof host);
  // Ranks with one host name are on one machine. They get a group of their own only if there are several
  // machines.
  int64_t first = -1, place = 0, count = 0;
  for (int64_t r = 0; r < world.size(); ++r) {
    if (std::memcmp(hosts.data() + r * sizeof host, host, sizeof host) != 0) continue;
    if (first < 0) first = r;
    if (r < world.rank()) ++place;
    ++count;
  }
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Notes));
  if (count == world.size()) {
    all.memory = world.map_shared(count * kBytes);
  } else {
    all.memory = world.split(first, world.rank())->map_shared(count * kBytes);
  }
  all.num_ranks = count;
  all.world_size = world.size();
  if (all.memory == nullptr) {
    all.num_ranks = 1;
    place = 0;
    all.memory = std::shared_ptr<char>(static_cast<char*>(std::calloc(1, sizeof(Notes))), std::free);
    if (all.memory == nullptr) return;
  }
  all.own = notes_of(place);
  all.own->rank = world.rank();
  all.own->process = getpid();
  put(all.own->host, host);
  is_main_thread = true;
  std::vector<int64_t> ranks(static_cast<size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  join(kWorldGroup, world.rank(), ranks);
  all.own->alive_ns = now_ns();
  all.life = std::thread(show_life);
}

void detach() {
  State& all = state();
  if (!all.life.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(all.life_mutex);
    all.is_ending = true;
    all.life_ends.notify_all();
  }
  all.life.join();
}

int64_t own_rank() { return state().own == nullptr ? -1 : state().own->rank; }

bool spans_machines() {
  const std::vector<std::string>& hosts = state().hosts;
  return std::ranges::any_of(hosts, [&](const std::string& host) { return host != hosts.front(); });
}

void join(uint64_t group, int64_t group_rank, const std::vector<int64_t>& ranks) {
  State& all = state();
  if (all.own == nullptr) return;
  const std::lock_guard<std::mutex> lock(all.mutex);
  const int64_t count = all.own->num_groups;
  if (count == kGroups) {
    if (!std::exchange(all.is_full, true)) {
      log::warn("only the first " + std::to_string(kGroups) +
                " groups of ranks are noted: of a hang in another group it is not told who is missing");
    }
    return;
  }
  all.own->groups[count].key = group;
  GroupNote& note = all.own->groups[count];
  note.rank = group_rank;
  note.num_ranks = std::min(std::ssize(ranks), kRanks);
  for (int64_t i = 0; i < note.num_ranks; ++i)
    note.ranks[i] = static_cast<int32_t>(ranks[static_cast<size_t>(i)]);
  all.own->num_groups = count + 1;
}

int64_t begin(const Operation& operation) {
  State& all = state();
  if (all.own == nullptr) return -1;
  const std::lock_guard<std::mutex> lock(all.mutex);
  const int64_t place = all.own->num_records;
  Record& record = all.own->records[place % kRecords];
  record.group = operation.group;
  record.number = operation.number;
  record.num_bytes = operation.num_bytes;
  record.begin_ns = now_ns();
  record.end_ns = 0;
  record.peers = operation.peers;
  put(record.name, operation.name);
  put(record.group_name, operation.group_name);
  put(record.hint, operation.hint);
  all.own->num_records = place + 1;
  auto* group = const_cast<GroupNote*>(note_of(*all.own, operation.group));
  if (group != nullptr && operation.number > 0) group->num_called = operation.number;
  return place;
}

void end(int64_t place) {
  State& all = state();
  if (all.own == nullptr || place < 0 || all.own->num_records - place > kRecords) return;
  all.own->records[place % kRecords].end_ns = now_ns();
}

// A place is noted plus one, so that zero means none.
WaitScope::WaitScope(int64_t place) : is_noted_(is_main_thread && place >= 0) {
  if (!is_noted_) return;
  const int64_t before = state().own->waiting_for.exchange(place + 1);
  outer_ = num_waits++ > 0 ? before : 0;
}

// After a hang, the operation that a rank has given up waiting for stays noted: other ranks look for it while
// the job ends.
WaitScope::~WaitScope() {
  if (!is_noted_) return;
  --num_waits;
  if (!has_hung() || std::uncaught_exceptions() == 0) state().own->waiting_for = outer_;
}

StorageScope::StorageScope(std::string_view what) {
  Notes* own = state().own;
  if (own == nullptr) return;
  put(own->storage, what);
  own->storage_ns = now_ns();
  ++own->num_storage;
}

StorageScope::~StorageScope() {
  Notes* own = state().own;
  if (own == nullptr) return;
  own->storage_ns = now_ns();
  --own->num_storage;
}

PatienceScope::PatienceScope() { ++num_patient; }
PatienceScope::~PatienceScope() { --num_patient; }

Finding look_into(int64_t place, std::chrono::milliseconds timeout) {
  const State& all = state();
  if (num_patient > 0 && all.num_ranks < all.world_size) return {"", true};
  if (all.own == nullptr || place < 0 || all.own->num_records - place > kRecords) return {};
  if (now_ns() - all.own->alive_ns > kStopped_ns || is_recent(all.went_on_ns, timeout)) {
    return {"", true};
  }
  Link link = {all.own, &all.own->record(place), ""};
  std::vector<const Notes*> seen = {all.own};
  for (;;) {
    const std::vector<const Notes*> missing = missing_from(*link.record, *link.waiting);
    if (const auto finding = explain_by(missing, link, timeout)) return *finding;
    if (missing.empty()) return explain_without_missing(link, timeout);
    // All missing ranks wait themselves: the chain goes on with what the first of them waits for.
    const Notes* next = missing.front();
    const int64_t wait = next->waiting_for - 1;
    if (wait < 0) continue;  // it has just gone on: look again
    const Record& other = next->record(wait);
    link.way += name_of(*next) +
                (link.is_collective() ? " has not called it, as it waits in " : " waits in ") +
                name_of(other);
    if (std::find(seen.begin(), seen.end(), next) != seen.end())
      return {link.way + ": the ranks wait for each other", false};
    seen.push_back(next);
    link = {next, &other, link.way + "; "};
  }
}

bool is_first_to_tell() { return state().memory != nullptr && notes_of(0)->has_told.exchange(1) == 0; }

std::string recordings(const std::string& why) {
  nlohmann::ordered_json json = {{"hang", why}};
  auto& ranks = json["ranks"] = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < state().num_ranks; ++i) ranks.push_back(to_json(*notes_of(i)));
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

bool has_hung() { return g_has_hung; }

std::string note_hang(const std::string& why) {
  g_has_hung = true;
  const State& all = state();
  if (all.own == nullptr || all.dump_file.empty()) return "";
  const int file = open(all.dump_file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return errno == EEXIST ? all.dump_file : "";
  const std::string text = recordings(why);
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t length = write(file, text.data() + written, text.size() - written);
    if (length <= 0 && errno != EINTR) break;
    if (length > 0) written += static_cast<size_t>(length);
  }
  close(file);
  return all.dump_file;
}

void set_dump_file(const std::string& path) { state().dump_file = path; }

}  // namespace tessera::comm::flight

// A library with NCCL's functions for ranks that are threads of one process. It moves the data, in the
// streams that it is given, and records calls that no rank may make. Like NCCL, an operation hangs if not
// all ranks come to it, until a rank aborts, which ends the operations of that rank alone.
#include "tests/comm/nccl/stub_nccl.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

enum Result { kSuccess = 0, kInvalidUsage = 5, kRemoteError = 6 };
constexpr int kUint8 = 1, kFloat64 = 8;
constexpr int kPoison = 0xff;  // NaN in every floating type

struct UniqueId {
  std::array<char, 128> bytes;
};

// These are never destroyed, since ranks may be left in calls, and streams run, while the process ends.
std::mutex& g_mutex = *new std::mutex;
std::condition_variable& g_changed = *new std::condition_variable;
std::string& g_faults = *new std::string;
std::map<std::string, int>& g_calls = *new std::map<std::string, int>;
std::map<int, int>& g_async_errors = *new std::map<int, int>;  // by rank
int g_missing_rank = -1, g_stuck_rank = -1, g_unregistered_rank = -1;
// Bytes of each block of ncclMemAlloc(), by its begin.
std::map<const char*, size_t>& g_memory = *new std::map<const char*, size_t>;
tessera::testing::StubNccl::Enqueue g_enqueue = nullptr;
tessera::testing::StubNccl::Move g_move = nullptr;
void (*g_before_call)() = nullptr;

// Records a fault. The caller holds the lock.
int fault(const std::string& what) {
  g_faults += what + "\n";
  return kInvalidUsage;
}

void move_bytes(void* to, const void* from, size_t num_bytes) {
  if (g_move == nullptr) {
    std::memmove(to, from, num_bytes);
  } else if (num_bytes > 0 && to != from) {
    g_move(to, from, num_bytes);
  }
}

struct Message {
  const void* data;
  size_t count;
  bool is_taken = false;
};

enum class Kind { Send, Recv, AllGather, Broadcast };

struct Op {
  Kind kind;
  const void* input;
  void* output;
  size_t count;
  int peer;  // the other rank of a message, or the root
  // Offsets of the two in the memory that is registered with the communicator; -1 if they are not in it.
  int64_t input_offset = -1, output_offset = -1;
};

// One collective, to which all ranks come.
struct Meeting {
  std::vector<Op> ops;  // the call of each rank
  int num_here = 0, num_done = 0;
};

// State that the ranks of one communicator share. The lock guards all of it.
struct World {
  explicit World(int size) : size(size), is_here(size, false) {}
  const int size;
  std::vector<bool> is_here;
  int num_here = 0;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> messages;  // by source and destination
  std::map<int64_t, Meeting> meetings;
  std::string broken;  // what differs between the ranks' calls; empty if nothing does
};
auto& g_worlds = *new std::map<std::string, std::shared_ptr<World>>;  // by id

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  int rank = 0;
  int64_t num_collectives = 0;
  int num_open = 0;
  bool is_aborted = false, is_destroyed = false;
  std::map<const char*, size_t> registered;

  // Returns the offset of `memory` in the registered block that holds it; -1 if none does.
  int64_t offset_of(const void* memory) const {
    const char* const at = static_cast<const char*>(memory);
    const auto next = registered.upper_bound(at);
    if (memory == nullptr || next == registered.begin()) return -1;
    const auto& [begin, size] = *std::prev(next);
    return at < begin + size ? at - begin : -1;
  }
};

namespace {

// Communicators are never freed, so that a use after their end is noticed.
std::deque<ncclComm>& g_comms = *new std::deque<ncclComm>;

struct Call {
  ncclComm* comm;
  void* stream;
  Op op;
};
thread_local int t_depth = 0;
thread_local std::vector<Call> t_calls;

// The operations of one rank in one group of calls, which run in the stream's turn.
struct Task {
  ncclComm* comm;
  std::vector<Op> ops;

  bool is_over() const { return comm->is_aborted || !comm->world->broken.empty(); }

  void run() {
    std::unique_lock<std::mutex> lock(g_mutex);
    std::vector<std::shared_ptr<Message>> sent;
    World& world = *comm->world;
    for (const Op& op : ops) {
      if (op.kind != Kind::Send) continue;
      sent.push_back(std::make_shared<Message>(Message{op.input, op.count}));
      world.messages[{comm->rank, op.peer}].push_back(sent.back());
    }
    g_changed.notify_all();
    for (const Op& op : ops) {
      if (op.kind == Kind::Recv) receive(lock, op);
      if (op.kind == Kind::AllGather || op.kind == Kind::Broadcast) meet(lock, op);
    }
    for (const auto& message : sent) {
      g_changed.wait(lock, [&] { return message->is_taken || is_over(); });
    }
    --comm->num_open;
    g_changed.notify_all();
  }

  void receive(std::unique_lock<std::mutex>& lock, const Op& op) {
    World& world = *comm->world;
    auto& queue = world.messages[{op.peer, comm->rank}];
    g_changed.wait(lock, [&] { return !queue.empty() || is_over(); });
    if (is_over()) return;
    const std::shared_ptr<Message> message = queue.front();
    queue.pop_front();
    if (message->count != op.count) {
      world.broken = "ranks " + std::to_string(op.peer) + " and " + std::to_string(comm->rank) + ": " +
                     std::to_string(message->count) + " sent, " + std::to_string(op.count) + " received";
      fault(world.broken);
    } else {
      move_bytes(op.output, message->data, op.count);
    }
    message->is_taken = true;
    g_changed.notify_all();
  }

  void meet(std::unique_lock<std::mutex>& lock, const Op& op) {
    World& world = *comm->world;
    const int64_t number = comm->num_collectives++;
    Meeting& meeting = world.meetings[number];
    if (meeting.ops.empty()) meeting.ops.resize(world.size, op);
    meeting.ops[comm->rank] = op;
    ++meeting.num_here;
    g_changed.notify_all();
    g_changed.wait(lock, [&] { return meeting.num_here == world.size || is_over(); });
    if (is_over()) return;
    for (const Op& other : meeting.ops) {
      const bool is_same = other.kind == op.kind && other.count == op.count &&
                           (op.kind != Kind::Broadcast || other.peer == op.peer);
      // NCCL leaves it undefined if some ranks have registered the memory and others have not, or if it lies
      // at different offsets.
      const bool is_same_memory =
          (op.kind == Kind::Broadcast || (other.input_offset < 0) == (op.input_offset < 0)) &&
          other.output_offset == op.output_offset;
      if (is_same && !is_same_memory) fault("registered memory differs between ranks");
      if (is_same) continue;
      world.broken = "collective " + std::to_string(number) + " differs between ranks";
      fault(world.broken);
      g_changed.notify_all();
      return;
    }
    if (op.kind == Kind::Broadcast) {
      move_bytes(op.output, meeting.ops[op.peer].input, op.count);
    } else {
      for (int rank = 0; rank < world.size; ++rank) {
        move_bytes(static_cast<char*>(op.output) + static_cast<size_t>(rank) * op.count,
                   meeting.ops[rank].input, op.count);
      }
    }
    ++meeting.num_done;
    g_changed.notify_all();
    g_changed.wait(lock, [&] { return meeting.num_done == world.size || is_over(); });
  }
};

void run_task(void* argument) {
  const std::unique_ptr<Task> task(static_cast<Task*>(argument));
  task->run();
}

// Starts the calls since the outermost ncclGroupStart(), those of each communicator as one task. The caller
// holds the lock.
int start_group() {
  std::vector<std::pair<std::pair<ncclComm*, void*>, std::unique_ptr<Task>>> tasks;
  std::map<ncclComm*, int> to_itself;
  for (const Call& call : t_calls) {
    auto task = std::ranges::find_if(tasks, [&](const auto& t) { return t.first.first == call.comm; });
    if (task == tasks.end()) {
      tasks.emplace_back(std::pair(call.comm, call.stream), std::make_unique<Task>(Task{call.comm, {}}));
      task = tasks.end() - 1;
    }
    if (task->first.second != call.stream) fault("one group uses two streams of a communicator");
    task->second->ops.push_back(call.op);
    if (call.op.kind == Kind::Send && call.op.peer == call.comm->rank) ++to_itself[call.comm];
    if (call.op.kind == Kind::Recv && call.op.peer == call.comm->rank) --to_itself[call.comm];
  }
  t_calls.clear();
  for (const auto& [comm, more] : to_itself) {
    if (more != 0) fault("a message to itself has one end in its group");
  }
  for (auto& [key, task] : tasks) {
    ++key.first->num_open;
    g_enqueue(key.second, &run_task, task.release());
  }
  return kSuccess;
}

int add(const char* function, ncclComm* comm, void* stream, int type, Op op) {
  if (g_before_call != nullptr) g_before_call();
  // The call of a receive takes some time, so that other calls, or the end of a group, may come meanwhile.
  if (op.kind == Kind::Recv) std::this_thread::sleep_for(std::chrono::microseconds(300));
  std::unique_lock<std::mutex> lock(g_mutex);
  ++g_calls[function];
  if (comm == nullptr) return fault(std::string(function) + " without a communicator");
  if (comm->is_aborted || comm->is_destroyed)
    return fault(std::string(function) + " after the end of its communicator");
  if (type < 0 || type > kFloat64 + 1) return fault(std::string(function) + " with an unknown type");
  if (type != kUint8) return fault(std::string(function) + ": the stub moves bytes");
  if (op.peer < 0 || op.peer >= comm->world->size)
    return fault(std::string(function) + " with an unknown rank");
  const bool reads = op.kind != Kind::Recv && !(op.kind == Kind::Broadcast && op.peer != comm->rank);
  if (op.count > 0 && ((reads && op.input == nullptr) || (op.kind != Kind::Send && op.output == nullptr))) {
    return fault(std::string(function) + " without memory");
  }
  if (comm->rank == g_stuck_rank) {
    g_changed.wait(lock, [&] { return comm->is_aborted; });
    return kRemoteError;
  }
  op.input_offset = comm->offset_of(op.input);
  op.output_offset = comm->offset_of(op.output);
  t_calls.push_back({comm, stream, op});
  return t_depth > 0 ? static_cast<int>(kSuccess) : start_group();
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = TESSERA_STUB_VERSION;
  return kSuccess;
}

int ncclGetUniqueId(UniqueId* id) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  id->bytes = {};
  const std::string name = "id " + std::to_string(++g_calls["ncclGetUniqueId"]);
  std::memcpy(id->bytes.data(), name.data(), name.size());
  return kSuccess;
}

int ncclCommInitRank(ncclComm** comm, int size, UniqueId id, int rank) {
  std::unique_lock<std::mutex> lock(g_mutex);
  ++g_calls["ncclCommInitRank"];
  if (rank == g_missing_rank) return kRemoteError;
  auto& world = g_worlds[id.bytes.data()];
  if (world == nullptr) world = std::make_shared<World>(size);
  if (rank < 0 || rank >= size || world->size != size || world->is_here[rank]) {
    return fault("ncclCommInitRank: the ranks do not agree");
  }
  world->is_here[rank] = true;
  ++world->num_here;
  g_changed.notify_all();
  const std::shared_ptr<World> own = world;
  g_changed.wait(lock, [&] { return own->num_here == size; });
  *comm = &g_comms.emplace_back(own, rank);
  return kSuccess;
}

int ncclCommDestroy(ncclComm* comm) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  ++g_calls["ncclCommDestroy"];
  if (comm->is_aborted || comm->is_destroyed) return fault("ncclCommDestroy after its end");
  if (comm->num_open > 0) return fault("ncclCommDestroy with operations in flight");
  if (!comm->registered.empty()) return fault("ncclCommDestroy with registered memory");
  comm->is_destroyed = true;
  return kSuccess;
}

int ncclCommAbort(ncclComm* comm) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  ++g_calls["ncclCommAbort"];
  if (comm->is_aborted || comm->is_destroyed) return fault("ncclCommAbort after its end");
  comm->is_aborted = true;
  comm->registered.clear();
  g_changed.notify_all();
  return kSuccess;
}

int ncclCommGetAsyncError(ncclComm* comm, int* result) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (comm->is_aborted || comm->is_destroyed) return fault("ncclCommGetAsyncError after its end");
  const auto found = g_async_errors.find(comm->rank);
  *result = found == g_async_errors.end() ? 0 : found->second;
  return kSuccess;
}

#if TESSERA_STUB_VERSION >= 21900
int ncclMemAlloc(void** memory, size_t size) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  ++g_calls["ncclMemAlloc"];
  if (g_move != nullptr) return kRemoteError;
  *memory = std::aligned_alloc(64, (size + 63) / 64 * 64);
  std::memset(*memory, kPoison, size);
  g_memory[static_cast<const char*>(*memory)] = size;
  return kSuccess;
}

int ncclMemFree(void* memory) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  ++g_calls["ncclMemFree"];
  const auto found = g_memory.find(static_cast<const char*>(memory));
  if (found == g_memory.end()) return fault("ncclMemFree of other memory");
  for (const ncclComm& comm : g_comms) {
    if (comm.registered.contains(found->first)) fault("ncclMemFree of registered memory");
  }
  // A rank that still uses the memory finds NaN. The memory is not given back, since another owner's values
  // would hide the mistake.
  std::memset(memory, kPoison, found->second);
  g_memory.erase(found);
  return kSuccess;
}

int ncclCommRegister(ncclComm* comm, void* memory, size_t size, void** registration) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  ++g_calls["ncclCommRegister"];
  if (comm->is_aborted || comm->is_destroyed)
    return fault("ncclCommRegister after the end of its communicator");
  if (comm->rank == g_unregistered_rank) return kRemoteError;
  const auto found = g_memory.find(static_cast<const char*>(memory));
  if (found == g_memory.end() || found->second < size) return fault("ncclCommRegister of other memory");
  if (!comm->registered.emplace(found->first, size).second) return fault("ncclCommRegister twice");
  *registration = memory;
  return kSuccess;
}

int ncclCommDeregister(ncclComm* comm, void* registration) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  ++g_calls["ncclCommDeregister"];
  if (comm->is_aborted || comm->is_destroyed)
    return fault("ncclCommDeregister after the end of its communicator");
  if (comm->num_open > 0) fault("ncclCommDeregister with operations in flight");
  if (comm->registered.erase(static_cast<const char*>(registration)) == 0)
    return fault("ncclCommDeregister twice");
  return kSuccess;
}
#endif

const char* ncclGetErrorString(int result) {
  return result == kSuccess        ? "no error"
         : result == kInvalidUsage ? "invalid usage"
                                   : "remote process exited";
}

const char* ncclGetLastError(ncclComm*) { return "the stub says so"; }

int ncclGroupStart() {
  ++t_depth;
  return kSuccess;
}

int ncclGroupEnd() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (t_depth == 0) return fault("ncclGroupEnd without ncclGroupStart");
  return --t_depth == 0 ? start_group() : static_cast<int>(kSuccess);
}

int ncclAllGather(const void* input, void* output, size_t count, int type, ncclComm* comm, void* stream) {
  return add("ncclAllGather", comm, stream, type, {Kind::AllGather, input, output, count, 0});
}

int ncclBroadcast(const void* input, void* output, size_t count, int type, int root, ncclComm* comm,
                  void* stream) {
  return add("ncclBroadcast", comm, stream, type, {Kind::Broadcast, input, output, count, root});
}

int ncclSend(const void* input, size_t count, int type, int peer, ncclComm* comm, void* stream) {
  return add("ncclSend", comm, stream, type, {Kind::Send, input, nullptr, count, peer});
}

int ncclRecv(void* output, size_t count, int type, int peer, ncclComm* comm, void* stream) {
  return add("ncclRecv", comm, stream, type, {Kind::Recv, nullptr, output, count, peer});
}

const tessera::testing::StubNccl& stub_nccl() {
  static const tessera::testing::StubNccl table = {
      [](tessera::testing::StubNccl::Enqueue enqueue) { g_enqueue = enqueue; },
      [](tessera::testing::StubNccl::Move move) { g_move = move; },
      [](void (*before)()) { g_before_call = before; },
      [](int rank, int result) {
        const std::lock_guard<std::mutex> lock(g_mutex);
        g_async_errors[rank] = result;
      },
      [](int rank) {
        const std::lock_guard<std::mutex> lock(g_mutex);
        g_missing_rank = rank;
      },
      [](int rank) {
        const std::lock_guard<std::mutex> lock(g_mutex);
        g_stuck_rank = rank;
      },
      [](int rank) {
        const std::lock_guard<std::mutex> lock(g_mutex);
        g_unregistered_rank = rank;
      },
      [] {
        const std::lock_guard<std::mutex> lock(g_mutex);
        thread_local std::string copy;
        copy = g_faults;
        return copy.c_str();
      },
      [] {
        const std::lock_guard<std::mutex> lock(g_mutex);
        g_faults.clear();
      },
      [](const char* function) {
        const std::lock_guard<std::mutex> lock(g_mutex);
        return g_calls[function];
      },
  };
  return table;
}

}  // extern "C"

#include "tessera/comm/mpi/message_thread.h"

#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include "tessera/comm/flight_recorder.h"
#include "tessera/comm/mpi/byte_block.h"

namespace tessera::comm::detail {
namespace {

using Clock = std::chrono::steady_clock;

// A message that is being sent or received.
struct Message {
  MPI_Comm comm = MPI_COMM_NULL;
  std::shared_ptr<P2pBatch> batch;
  size_t index = 0;
  bool has_started = false;  // a recv starts when its message has arrived
  MPI_Request request = MPI_REQUEST_NULL;
  std::vector<char> discarded;  // what arrives for a recv of another size
  std::exception_ptr error;

  const P2pOp& op() const { return batch->op(index); }
};

void start_send(Message& message) {
  const P2pOp& op = message.op();
  with_bytes(message.batch->num_bytes(message.index), [&](int count, MPI_Datatype type) {
    TESSERA_MPI_CHECK(MPI_Isend(op.tensor.const_data_ptr(), count, type, static_cast<int>(op.peer), op.tag,
                                message.comm, &message.request));
  });
  message.has_started = true;
}

void try_start_recv(Message& message) {
  const P2pOp& op = message.op();
  int has_arrived = 0;
  MPI_Message arrived = MPI_MESSAGE_NULL;
  MPI_Status status;
  TESSERA_MPI_CHECK(
      MPI_Improbe(static_cast<int>(op.peer), op.tag, message.comm, &has_arrived, &arrived, &status));
  if (has_arrived == 0) return;
  MPI_Count num_bytes = 0;
  TESSERA_MPI_CHECK(MPI_Get_elements_x(&status, MPI_BYTE, &num_bytes));
  void* target = op.tensor.mutable_data_ptr();
  message.has_started = true;
  if (num_bytes != message.batch->num_bytes(message.index)) {
    message.error = std::make_exception_ptr(message.batch->size_error(message.index, num_bytes));
    message.discarded.resize(num_bytes);  // the sender must not be left waiting
    target = message.discarded.data();
  }
  with_bytes(num_bytes, [&](int count, MPI_Datatype type) {
    TESSERA_MPI_CHECK(MPI_Imrecv(target, count, type, &arrived, &message.request));
  });
}

// Starts the message if it can be started, and tells whether it has ended.
bool advance(Message& message) {
  try {
    if (!message.has_started) {
      if (message.op().is_send) {
        start_send(message);
      } else {
        try_start_recv(message);
      }
    }
    if (!message.has_started) return false;
    int is_done = 0;
    TESSERA_MPI_CHECK(MPI_Test(&message.request, &is_done, MPI_STATUS_IGNORE));
    return is_done != 0;
  } catch (...) {
    message.error = std::current_exception();
    return true;
  }
}

// Advances every message and removes those that have ended; tells whether there were any.
bool advance(std::list<Message>& messages) {
  bool has_progress = false;
  // Recvs of one group, peer and tag take messages in the order in which they were posted: while one of them
  // has not started, later ones do not look for a message.
  std::set<std::tuple<MPI_Comm, int64_t, int>> waiting;
  for (auto message = messages.begin(); message != messages.end();) {
    const std::tuple<MPI_Comm, int64_t, int> key(message->comm, message->op().peer, message->op().tag);
    const bool may_start = message->has_started || message->op().is_send || !waiting.contains(key);
    if (may_start && advance(*message)) {
      message->batch->end(message->index, message->error);
      message = messages.erase(message);
      has_progress = true;
      continue;
    }
    if (!message->has_started) waiting.insert(key);
    ++message;
  }
  return has_progress;
}

}  // namespace

struct MessageThread::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::list<Message> posted;
  bool is_stopping = false;
  bool is_idle = true;
};

MessageThread::MessageThread() : state_(std::make_shared<State>()) {}

MessageThread::~MessageThread() {
  if (!thread_.joinable()) return;
  {
    std::unique_lock<std::mutex> lock(state_->mutex);
    const std::chrono::seconds grace{flight::has_hung() ? 0 : 5};
    state_->changed.wait_for(lock, grace, [&] { return state_->posted.empty() && state_->is_idle; });
    state_->is_stopping = true;
    state_->changed.notify_all();
  }
  thread_.join();
}

void MessageThread::post(MPI_Comm comm, std::shared_ptr<P2pBatch> batch) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  for (size_t i = 0; i < batch->size(); ++i) {
    Message message;
    message.comm = comm;
    message.batch = batch;
    message.index = i;
    state_->posted.push_back(std::move(message));
  }
  if (!thread_.joinable()) thread_ = std::thread(&MessageThread::run, state_);
  state_->changed.notify_all();
}

void MessageThread::run(std::shared_ptr<State> state) {
  constexpr std::chrono::microseconds kEager{200}, kPause{50};
  std::list<Message> messages;
  Clock::time_point last_progress = Clock::now();
  while (true) {
    {
      std::unique_lock<std::mutex> lock(state->mutex);
      state->is_idle = messages.empty();
      if (messages.empty()) {
        state->changed.notify_all();
        state->changed.wait(lock, [&] { return !state->posted.empty() || state->is_stopping; });
      } else if (state->posted.empty() && Clock::now() - last_progress > kEager) {
        state->changed.wait_for(lock, kPause);
      }
      if (state->is_stopping) break;
      if (!state->posted.empty()) last_progress = Clock::now();
      state->is_idle = false;
      messages.splice(messages.end(), state->posted);
    }
    if (advance(messages)) last_progress = Clock::now();
    std::this_thread::yield();
  }
  for (const Message& message : messages) {
    message.batch->end(message.index,
                       std::make_exception_ptr(Error(ErrorKind::Peer, "GONE",
                                                     message.batch->name(message.index) +
                                                         " was in flight when its communicator went")));
  }
}

}  // namespace tessera::comm::detail

#include "tessera/comm/nccl/nccl_messages.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "tessera/comm/host/executor.h"
#include "tessera/comm/mailbox.h"
#include "tessera/device/device.h"

namespace tessera::comm::detail {
namespace {

// The messages of one call, apart from those of the rank to itself, which `own` holds.
class Batch : public P2pBatch {
 public:
  Batch(const Call& call, int64_t rank, std::vector<P2pOp> ops, at::Device device,
        std::shared_ptr<Watchdog> watchdog)
      : P2pBatch(call.description, call.timeout, rank, std::move(ops), call.place),
        device_(device),
        ready_(device),
        watchdog_(std::move(watchdog)) {
    ready_->record();
  }
  // The events must end with their device as the current one. The last owner may be a thread of the host's,
  // which has not made it so.
  ~Batch() override {
    const c10::DeviceGuard guard(device_);
    started_.clear();
    ready_.reset();
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Waits on the host until all messages have been put on streams, then makes the current stream wait for
  // them.
  void wait() override {
    P2pBatch::wait();
    watchdog_->check();
    for (const auto& work : started()) work->wait();
    if (own != nullptr) own->wait();
  }
  void wait_host() override {
    P2pBatch::wait();
    for (const auto& work : started()) work->wait_host();
    if (own != nullptr) own->wait_host();
  }
  bool is_done() const override {
    return P2pBatch::is_done() && (own == nullptr || own->is_done()) &&
           std::ranges::all_of(started(), [](const auto& work) { return work->is_done(); });
  }

  // The event behind which the messages start: what the caller's stream held when they were issued.
  const DeviceEvent& ready() const { return *ready_; }
  // Gives the call of message i as an operation of its channel.
  Call call_of(size_t i) const {
    Call call;
    call.description = description() + ": " + name(i);
    call.timeout = timeout();
    return call;
  }
  // Notes that message i has been put on a stream.
  void start(size_t i, std::shared_ptr<DeviceWork> work) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      started_.push_back(std::move(work));
    }
    end(i);
  }

  std::shared_ptr<P2pBatch> own;  // the messages of the rank to itself; may be null

 private:
  std::vector<std::shared_ptr<DeviceWork>> started() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return started_;
  }

  const at::Device device_;
  std::optional<DeviceEvent> ready_;
  const std::shared_ptr<Watchdog> watchdog_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<DeviceWork>> started_;
};

// One end of a message.
struct End {
  std::shared_ptr<Batch> batch;
  size_t index = 0;

  const P2pOp& op() const { return batch->op(index); }
  int64_t num_bytes() const { return batch->num_bytes(index); }
};

// The answer of a receiver to a sender, as it goes over the host.
struct Answer {
  // The sizes differ, or the message is empty: it then goes on no stream.
  static constexpr int64_t kOtherSize = -1, kNothing = -2;

  int64_t number = 0;     // of the message between the two ranks in this direction, or one of the above
  int64_t place = 0;      // of the message among those with its tag
  int64_t num_bytes = 0;  // what the receiver takes
  NcclId id;              // of the channel's communicator, if number is 0
};

template <class T>
at::Tensor as_bytes(const T& value) {
  const at::Tensor bytes = at::empty({static_cast<int64_t>(sizeof(T))}, on_host(at::kByte));
  std::memcpy(bytes.mutable_data_ptr(), &value, sizeof(T));
  return bytes;
}

template <class T>
T from_bytes(const at::Tensor& bytes) {
  T value;
  std::memcpy(static_cast<void*>(&value), bytes.const_data_ptr(), sizeof(T));
  return value;
}

// The state that the tasks of a channel share. A thread that is left behind (see Executor) still uses it when
// the channel has gone.
struct Direction {
  const NcclContext context;
  const int64_t rank;  // 0 sends, 1 receives
  NcclId id;           // written before the first task is submitted
  std::unique_ptr<NcclGroup> group;

  // Puts the message of `end` on the channel's stream. Runs on the channel's thread, because the first
  // message makes the communicator, which waits for the other rank.
  void run(const End& end) {
    try {
      use_device(context.device);
      const Call call = end.batch->call_of(end.index);
      if (group == nullptr) group = std::make_unique<NcclGroup>(context, id, 2, rank, call);
      const at::Tensor tensor = end.op().tensor;
      end.batch->start(end.index, group->run_after(end.batch->ready(), call, {tensor}, [&] {
        if (end.op().is_send) {
          group->send(tensor.const_data_ptr(), end.num_bytes(), 1);
        } else {
          group->recv(tensor.mutable_data_ptr(), end.num_bytes(), 0);
        }
      }));
    } catch (...) {
      end.batch->end(end.index, std::current_exception());
    }
  }
};

// One direction between this rank and another one, and the thread that puts its messages on the stream.
// State::mutex guards it.
struct Channel {
  Channel(const NcclContext& context, int64_t rank)
      : direction(std::make_shared<Direction>(Direction{context, rank, {}, nullptr})) {}

  // Has the thread put the message of `end` on the stream, behind those that were submitted before. Nobody
  // waits for this work: the message's batch gets its error.
  void submit(const End& end) {
    executor.submit(std::make_shared<PendingWork>("message", std::chrono::milliseconds(0)),
                    [direction = direction, end] { direction->run(end); });
  }

  const std::shared_ptr<Direction> direction;
  int64_t next = 0;                // the number of the next message to go on the stream
  std::map<int64_t, End> waiting;  // answered sends, by number, of which lower numbers are not answered yet
  Executor executor;
};

using Channels = std::map<int64_t, std::unique_ptr<Channel>>;  // by the other rank

}  // namespace

struct NcclMessages::State {
  State(NcclContext context, HostBackend& host, const Call& start)
      : context(std::move(context)), sizes(host), answers(host.split(start, 0, host.rank(), host.size())) {}

  // Sends a message of the host and does not wait for its end.
  static std::shared_ptr<PendingWork> tell(TensorBackend& group, P2pOp op) {
    Call call;
    call.description = "what the ends of a message tell each other";
    return std::dynamic_pointer_cast<PendingWork>(group.batch_p2p(call, {std::move(op)}));
  }
  // Receives `num_bytes` from the other rank of `end` and runs use(state, bytes) when they have arrived, on
  // the thread that carries the host's messages. If the state no longer exists by then, does nothing.
  template <class Use>
  void hear(TensorBackend& group, const End& end, int64_t num_bytes, const Use& use) {
    const at::Tensor heard = at::empty({num_bytes}, on_host(at::kByte));
    tell(group, irecv(heard, end.op().peer, end.op().tag))
        ->then([weak = std::weak_ptr(in_use), end, heard, use](const std::exception_ptr& error) {
          const auto state = weak.lock();
          if (error != nullptr) return end.batch->end(end.index, error);
          if (state == nullptr) return;
          try {
            use(*state, heard);
          } catch (...) {
            end.batch->end(end.index, std::current_exception());
          }
        });
  }

  // Sender: tells the size of the message and waits for the answer. The end is listed first, since the answer
  // may come at once.
  void start_send(const End& end) {
    const int64_t peer = end.op().peer;
    const int tag = end.op().tag;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      const int64_t place = num_sent[{peer, tag}]++;
      sends.emplace(std::tuple(peer, tag, place), end);
    }
    hear(*answers, end, sizeof(Answer), [peer, tag](State& state, const at::Tensor& heard) {
      state.on_answer(peer, tag, from_bytes<Answer>(heard));
    });
    tell(sizes, isend(as_bytes(end.num_bytes()), peer, tag));
  }

  // Receiver: waits for the size that the sender of the next message with this tag tells.
  void start_recv(const End& end) {
    int64_t place = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      place = num_received[{end.op().peer, end.op().tag}]++;
    }
    hear(sizes, end, sizeof(int64_t), [end, place](State& state, const at::Tensor& heard) {
      state.on_size(end, place, from_bytes<int64_t>(heard));
    });
  }

  // Receiver: both ends have been issued and the sender has told `num_bytes`. Gives the message its number
  // and submits it under one lock, so that the stream gets messages in the order of their numbers. Then
  // answers.
  void on_size(const End& end, int64_t place, int64_t num_bytes) {
    const int64_t peer = end.op().peer;
    const int tag = end.op().tag;
    Answer answer;
    answer.place = place;
    answer.num_bytes = end.num_bytes();
    if (num_bytes != end.num_bytes()) {
      answer.number = Answer::kOtherSize;
    } else if (num_bytes == 0) {
      answer.number = Answer::kNothing;
    } else {
      const std::lock_guard<std::mutex> lock(mutex);
      Channel& channel = channel_of(from, peer, 1);
      answer.number = channel.next++;
      if (answer.number == 0) channel.direction->id = context.library->make_id();
      answer.id = channel.direction->id;
      channel.submit(end);
    }
    tell(*answers, isend(as_bytes(answer), peer, tag));
    if (answer.number == Answer::kOtherSize) {
      end.batch->end(end.index, std::make_exception_ptr(end.batch->size_error(end.index, num_bytes)));
    } else if (answer.number == Answer::kNothing) {
      end.batch->end(end.index);
    }
  }

  // Called on the sender when the receiver has answered. Answers with different tags may overtake each other,
  // so a send waits in the channel until all lower numbers have been submitted. Both ranks then put the
  // messages on the stream in one order.
  void on_answer(int64_t peer, int tag, const Answer& answer) {
    End end;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      const auto found = sends.find({peer, tag, answer.place});
      TESSERA_ASSERT(found != sends.end(), "an answer is to a message");
      end = std::move(found->second);
      sends.erase(found);
      if (answer.number >= 0) {
        Channel& channel = channel_of(to, peer, 0);
        if (answer.number == 0) channel.direction->id = answer.id;
        channel.waiting.emplace(answer.number, end);
        for (auto next = channel.waiting.find(channel.next); next != channel.waiting.end();
             next = channel.waiting.find(channel.next)) {
          channel.submit(next->second);
          channel.waiting.erase(next);
          ++channel.next;
        }
        return;
      }
    }
    if (answer.number == Answer::kNothing) return end.batch->end(end.index);
    end.batch->end(end.index,
                   std::make_exception_ptr(
                       Error(ErrorKind::Peer, "MISMATCH",
                             end.batch->description() + ": the two ends of a message differ in size")
                           .got(end.batch->name(end.index))
                           .need(std::to_string(answer.num_bytes) + " bytes, which the other end takes")));
  }

  Channel& channel_of(Channels& channels, int64_t peer, int64_t rank) const {
    auto& channel = channels[peer];
    if (channel == nullptr) channel = std::make_unique<Channel>(context, rank);
    return *channel;
  }

  const NcclContext context;
  // Senders tell sizes on one group of the host, and receivers answer on another: a size and an answer may go
  // between the same ranks, in the same direction and with the same tag.
  HostBackend& sizes;
  const std::unique_ptr<TensorBackend> answers;
  Mailbox own;       // messages of this rank to itself
  std::mutex mutex;  // guards what follows
  // How many sends and recvs have been issued, by the other rank and tag.
  std::map<std::pair<int64_t, int>, int64_t> num_sent, num_received;
  // The sends that are not answered yet, by the other rank, tag and place among those with its tag.
  std::map<std::tuple<int64_t, int, int64_t>, End> sends;
  Channels to, from;  // on which this rank sends, and on which it receives
  // Locked by whoever carries what ends tell each other, while it uses the state. The destructor waits for
  // those.
  std::shared_ptr<State> in_use{this, [](State*) {}};
};

NcclMessages::NcclMessages(NcclContext context, HostBackend& host, const Call& start)
    : state_(std::make_unique<State>(std::move(context), host, start)) {}

NcclMessages::~NcclMessages() {
  // Callbacks of hear() find no state any more; those that have found it are waited for.
  const std::weak_ptr<State> users = state_->in_use;
  state_->in_use.reset();
  while (!users.expired()) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

std::shared_ptr<Work> NcclMessages::post(const Call& call, std::vector<P2pOp> ops) {
  State& state = *state_;
  state.context.watchdog->check();
  if (call.after != nullptr) call.after->wait();
  const int64_t rank = state.sizes.rank();
  std::vector<P2pOp> others, own;
  for (P2pOp& op : ops) (op.peer == rank ? own : others).push_back(std::move(op));
  const auto batch =
      std::make_shared<Batch>(call, rank, std::move(others), state.context.device, state.context.watchdog);
  if (!own.empty()) {
    batch->own = std::make_shared<P2pBatch>(call.description, call.timeout, rank, std::move(own));
    state.own.post(rank, batch->own);
  }
  for (size_t i = 0; i < batch->size(); ++i) {
    if (batch->op(i).is_send) {
      state.start_send({batch, i});
    } else {
      state.start_recv({batch, i});
    }
  }
  return batch;
}

}  // namespace tessera::comm::detail

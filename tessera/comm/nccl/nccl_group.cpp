#include "tessera/comm/nccl/nccl_group.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "tessera/comm/flight_recorder.h"
#include "tessera/comm/host/executor.h"
#include "tessera/core/strings.h"
#include "tessera/device/memory_scope.h"

namespace tessera::comm::detail {
namespace {

// [Note: the start of a communicator]
// ncclCommInitRank() returns when all ranks have come, and takes no time limit. A communicator that is made
// without blocking has one, but each of its later calls then costs a thread of NCCL's and a wait for it. So
// the call runs on a thread, which is left behind in it if a rank does not come, as the threads of host
// collectives are. If that call returns after it was given up, its thread aborts what it has made.
NcclHandle start(const NcclContext& context, const NcclId& id, int64_t size, int64_t rank, const Call& call) {
  struct Start {
    std::mutex mutex;
    NcclHandle comm = nullptr;
    bool is_given_up = false;
  };
  const auto start = std::make_shared<Start>();
  const auto work = std::make_shared<PendingWork>(call.description, call.timeout);
  Executor thread;
  thread.submit(work, [start, device = context.device, library = context.library, id, size, rank] {
    const c10::DeviceGuard guard(device);
    const NcclHandle comm = library->init_rank(id, static_cast<int>(size), static_cast<int>(rank));
    const std::lock_guard<std::mutex> lock(start->mutex);
    if (start->is_given_up) return library->abort(comm);
    start->comm = comm;
  });
  try {
    work->wait();
  } catch (...) {
    const std::lock_guard<std::mutex> lock(start->mutex);
    // The timeout may pass just as the call returns. Under the lock, whoever comes second sees the other: the
    // thread sees is_given_up, or the communicator is here, and one of the two aborts it.
    start->is_given_up = true;
    if (start->comm != nullptr) context.library->abort(start->comm);
    throw;
  }
  return start->comm;
}

}  // namespace

NcclGroup::NcclGroup(NcclContext context, const NcclId& id, int64_t size, int64_t rank, const Call& call)
    : context_(std::move(context)),
      library_(*context_.library),
      size_(size),
      rank_(rank),
      stream_(c10::impl::VirtualGuardImpl(context_.device.type())
                  .getStreamFromGlobalPool(context_.device, /*isHighPriority=*/true)),
      comm_(start(context_, id, size, rank, call)),
      registered_(context_.device, context_.library, comm_) {
  // This comes last, as the watchdog polls from here on.
  context_.watchdog->add(this);
}

NcclGroup::~NcclGroup() {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(flight::has_hung() ? 0 : 5);
  const auto is_drained = [this] {
    const std::lock_guard<std::mutex> lock(mutex_);
    return open_.empty();
  };
  // The watchdog ends operations meanwhile. After remove() no other thread uses this object.
  while (!is_drained() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  context_.watchdog->remove(this);
  if (abort_.has_value()) return;
  try {
    const c10::DeviceGuard guard(context_.device);
    if (open_.empty()) {
      registered_.end();
      library_.destroy(comm_);
      return;
    }
  } catch (const std::exception&) {  // a communicator that cannot be destroyed is aborted
  }
  abort(Error(ErrorKind::Peer, "GONE", "its communicator went while it was in flight"));
}

std::shared_ptr<DeviceWork> NcclGroup::run(const Call& call, std::vector<at::Tensor> held,
                                           const std::function<void()>& body,
                                           std::shared_ptr<const PendingWork> agreement) {
  DeviceEvent ready(context_.device);
  ready.record();
  return run_after(ready, call, std::move(held), body, std::move(agreement));
}

std::shared_ptr<DeviceWork> NcclGroup::run_after(const DeviceEvent& ready, const Call& call,
                                                 std::vector<at::Tensor> held,
                                                 const std::function<void()>& body,
                                                 std::shared_ptr<const PendingWork> agreement) {
  context_.watchdog->check();
  // The work is made while the caller's stream is the current one: its wait() lets go of the tensors in that
  // stream.
  auto work = std::make_shared<DeviceWork>(call, context_.device, std::move(held), std::move(agreement));
  const at::NoGradGuard no_grad;
  const MemoryScope memory(MemoryCategory::Communication);
  const c10::StreamGuard guard(stream_);
  std::exception_ptr after;
  // The group's stream is the current one from here on. It waits for the caller's stream and for `after`. The
  // operation runs even if `after` has failed, since the other ranks are in it.
  ready.wait();
  if (call.after != nullptr) {
    try {
      call.after->wait();
    } catch (...) {
      after = std::current_exception();
    }
  }
  open(work);
  try {
    // The watchdog notes an error before it takes this lock to abort: whoever gets the lock later sees the
    // error here and does not call an aborted communicator.
    const std::lock_guard<std::timed_mutex> calls(calls_);
    context_.watchdog->check();
    body();
  } catch (...) {
    work->record(std::current_exception());  // what it has submitted is on the stream, and uses its tensors
    // If the watchdog has aborted the group, its error tells why the call failed.
    context_.watchdog->check();
    throw;
  }
  work->record(after);
  return work;
}

void NcclGroup::open(const std::shared_ptr<DeviceWork>& work) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (abort_.has_value()) throw *abort_;
    open_.push_back(work);
  }
  context_.watchdog->wake();
}

at::Tensor NcclGroup::registered_bytes(int64_t num_bytes) {
  const std::lock_guard<std::timed_mutex> calls(calls_);
  context_.watchdog->check();
  return registered_.make(num_bytes);
}

bool NcclGroup::poll() {
  while (true) {
    // Operations of one stream end in their order, so only the first open one is looked at.
    std::shared_ptr<DeviceWork> first;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (open_.empty() || abort_.has_value()) return false;
      first = open_.front();
    }
    std::string why = library_.async_error(comm_);
    bool has_passed = false;
    try {
      has_passed = why.empty() && first->has_passed();
    } catch (const c10::Error& error) {  // the device has failed, in this operation or before it
      why = first_line(error.what_without_backtrace());
    }
    // A disagreement of the ranks comes first: it is the cause if NCCL fails or a rank is late.
    std::optional<Error> wrong = first->disagreement();
    if (!wrong && !why.empty())
      wrong = Error(ErrorKind::Peer, "NCCL", first->description() + " failed: " + why);
    if (!wrong && !has_passed) wrong = first->look();
    if (wrong) {
      fail(*wrong);
      return false;
    }
    if (!has_passed) return true;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      open_.pop_front();
    }
    first->end(nullptr);
  }
}

void NcclGroup::fail(const Error& error) {
  context_.watchdog->fail(error);
  // The abort takes its turn with calls on the communicator, but waits for one second at most: only the abort
  // ends a call that hangs.
  const std::unique_lock<std::timed_mutex> calls(calls_, std::chrono::seconds(1));
  abort(error);
}

void NcclGroup::abort(const Error& error) {
  try {
    const c10::DeviceGuard guard(context_.device);
    library_.abort(comm_);
  } catch (const c10::Error&) {  // nothing runs on a device that has failed
  }
  registered_.forget();
  // abort_ is set and open_ emptied under one lock: a work that open() added before is ended here, and open()
  // throws for later ones. Works end outside of the lock.
  std::deque<std::shared_ptr<DeviceWork>> open;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    abort_ = error;
    open.swap(open_);
  }
  for (const auto& work : open) work->end(std::make_exception_ptr(error));
}

NativeStream NcclGroup::native_stream() const {
  return c10::impl::VirtualGuardImpl(context_.device.type()).getStreamNativeHandle(stream_);
}

void NcclGroup::all_gather(void* output, const void* input, const std::vector<int64_t>& num_bytes) {
  const NativeStream stream = native_stream();
  if (std::ranges::all_of(num_bytes, [&](int64_t n) { return n == num_bytes[0]; })) {
    if (num_bytes[0] > 0)
      library_.all_gather(input, output, static_cast<size_t>(num_bytes[0]), comm_, stream);
    return;
  }
  // NCCL gathers no pieces of several lengths: every rank broadcasts its own.
  NcclLibrary::GroupScope group(library_);
  char* piece = static_cast<char*>(output);
  for (int64_t r = 0; r < size_; ++r) {
    const auto bytes = static_cast<size_t>(num_bytes[static_cast<size_t>(r)]);
    if (bytes == 0) continue;
    library_.broadcast(r == rank_ ? input : piece, piece, bytes, static_cast<int>(r), comm_, stream);
    piece += bytes;
  }
  group.end();
}

void NcclGroup::all_to_all(void* output, const void* input, int64_t num_bytes) {
  const std::vector<int64_t> even(static_cast<size_t>(size_), num_bytes);
  all_to_all_v(output, input, even, even);
}

void NcclGroup::all_to_all_v(void* output, const void* input, const std::vector<int64_t>& output_bytes,
                             const std::vector<int64_t>& input_bytes) {
  // Within a group of NCCL's no send waits for a recv that is called after it.
  NcclLibrary::GroupScope group(library_);
  char* target = static_cast<char*>(output);
  const char* source = static_cast<const char*>(input);
  for (int64_t peer = 0; peer < size_; ++peer) {
    const auto i = static_cast<size_t>(peer);
    if (input_bytes[i] > 0) send(source, input_bytes[i], peer);
    if (output_bytes[i] > 0) recv(target, output_bytes[i], peer);
    source += input_bytes[i];
    target += output_bytes[i];
  }
  group.end();
}

void NcclGroup::broadcast(void* data, int64_t num_bytes, int64_t root) {
  if (num_bytes == 0) return;
  library_.broadcast(data, data, static_cast<size_t>(num_bytes), static_cast<int>(root), comm_,
                     native_stream());
}

void NcclGroup::send(const void* data, int64_t num_bytes, int64_t peer) {
  library_.send(data, static_cast<size_t>(num_bytes), static_cast<int>(peer), comm_, native_stream());
}

void NcclGroup::recv(void* data, int64_t num_bytes, int64_t peer) {
  library_.recv(data, static_cast<size_t>(num_bytes), static_cast<int>(peer), comm_, native_stream());
}

}  // namespace tessera::comm::detail

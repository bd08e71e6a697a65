#include "tests/testing/fake_device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/DeviceType.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace tessera::testing::fake_device {

// The tasks that a stream has got while it was recorded.
struct Graph {
  std::vector<std::function<void()>> tasks;
  uint64_t memory = 0;
  bool is_spoilt = false;
};

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex kDevices = 8;
constexpr int64_t kPool = 64;  // number of streams of each device

Options g_options;
// These are never destroyed, since the queues' threads run to the end of the program.
std::mutex& g_mutex = *new std::mutex;  // guards all events and g_fault
std::condition_variable& g_changed = *new std::condition_variable;
std::string& g_fault = *new std::string;

void note_fault(const std::string& what) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (g_fault.empty()) g_fault = what;
}

std::atomic<int64_t> g_tasks = 0, g_replays = 0;

// A stream: its tasks run one after the other on a thread of its own.
class Queue {
 public:
  Queue(c10::DeviceIndex device, c10::StreamId id) : device_(device), id_(id) {}

  void push(std::function<void()> task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (recording_ != nullptr) {
      recording_->tasks.push_back(std::move(task));
      return;
    }
    ++g_tasks;
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }
  void synchronize() {
    refuse_to_record("a wait");
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return is_idle(); });
  }
  // Puts all tasks into `graph` from now on, instead of running them; null ends this.
  void record_into(Graph* graph) {
    const std::lock_guard<std::mutex> lock(mutex_);
    recording_ = graph;
  }
  bool is_recorded() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return recording_ != nullptr;
  }
  // Returns the number of the pool that the stream's allocations come from; 0 = the common one.
  uint64_t memory() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return recording_ == nullptr || g_options.shares_graph_memory ? 0 : recording_->memory;
  }
  // Called for requests that a stream must not get while it is recorded: spoils the recording and throws.
  void refuse_to_record(const char* what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (recording_ == nullptr) return;
    recording_->is_spoilt = true;
    TORCH_CHECK(false, what, " is not permitted when stream is capturing");
  }
  bool is_empty() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return is_idle();
  }
  void seed() {
    const std::lock_guard<std::mutex> lock(mutex_);
    random_.seed(g_options.seed * 1000003 + static_cast<uint64_t>(device_) * 1009 +
                 static_cast<uint64_t>(id_));
    is_slow_ = random_() % 3 == 0;
  }

 private:
  bool is_idle() const { return tasks_.empty() && !is_busy_; }
  int64_t next_delay() {
    const auto longest = static_cast<uint64_t>(g_options.longest_delay_us);
    if (longest == 0) return 0;
    if (is_slow_) return static_cast<int64_t>(random_() % (longest / 4 + 1));
    return random_() % 8 == 0 ? static_cast<int64_t>(random_() % longest) : 0;
  }
  void run() {
    const at::NoGradGuard no_grad;
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      is_busy_ = true;
      const int64_t delay = next_delay();
      lock.unlock();
      if (delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
      try {
        task();
      } catch (const std::exception& error) {
        note_fault(error.what());
      }
      lock.lock();
      is_busy_ = false;
      changed_.notify_all();
    }
  }

  const c10::DeviceIndex device_;
  const c10::StreamId id_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  Graph* recording_ = nullptr;
  bool is_busy_ = false, is_slow_ = false;
  std::mt19937_64 random_;
  std::thread thread_;
};

struct Queues {
  std::array<std::array<std::unique_ptr<Queue>, kPool>, kDevices> of;
  std::array<std::atomic<int64_t>, kDevices> next{};

  Queues() {
    for (c10::DeviceIndex device = 0; device < kDevices; ++device) {
      for (int64_t id = 0; id < kPool; ++id) of[device][id] = std::make_unique<Queue>(device, id);
    }
  }
};
Queues& queues() {
  static auto* const all = new Queues;
  return *all;
}
Queue& queue_of(const c10::Stream& stream) {
  return *queues().of[static_cast<size_t>(stream.device_index())][static_cast<size_t>(stream.id())];
}

std::atomic<int64_t> g_waits = 0;
void count_wait() { ++g_waits; }
void wait_for(Queue& queue) {
  count_wait();
  queue.synchronize();
}

thread_local c10::DeviceIndex t_device = 0;
thread_local std::array<c10::StreamId, kDevices> t_streams{};

c10::Stream stream_of(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device), id);
}
c10::DeviceIndex index_of(c10::Device device) { return device.has_index() ? device.index() : t_device; }

std::atomic<int64_t> g_strays{0};
void expect_current(c10::DeviceIndex device) { g_strays += device == t_device ? 0 : 1; }

struct Event {
  c10::DeviceIndex device = 0;
  uint64_t recorded = 0, passed = 0;

  static std::shared_ptr<Event> of(void* event) {
    std::shared_ptr<Event> own = *static_cast<std::shared_ptr<Event>*>(event);
    expect_current(own->device);
    return own;
  }
};

class Guard : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kType, std::exchange(t_device, index_of(device))};
  }
  c10::Device getDevice() const override { return {kType, t_device}; }
  void setDevice(c10::Device device) const override { t_device = index_of(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { t_device = index_of(device); }
  c10::Stream getStream(c10::Device device) const override {
    return stream_of(index_of(device), t_streams[static_cast<size_t>(index_of(device))]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(index_of(device), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    const c10::DeviceIndex index = index_of(device);
    return stream_of(index, 1 + queues().next[static_cast<size_t>(index)]++ % (kPool - 1));
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::DeviceIndex index = stream.device_index();
    return stream_of(index, std::exchange(t_streams[static_cast<size_t>(index)], stream.id()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return &queue_of(stream); }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) *event = new std::shared_ptr<Event>(new Event{stream.device_index()});
    queue_of(stream).refuse_to_record("an event");
    const std::shared_ptr<Event> own = Event::of(*event);
    uint64_t number = 0;
    {
      const std::lock_guard<std::mutex> lock(g_mutex);
      number = ++own->recorded;
    }
    queue_of(stream).push([own, number] {
      const std::lock_guard<std::mutex> lock(g_mutex);
      own->passed = std::max(own->passed, number);
      g_changed.notify_all();
    });
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr || g_options.lost == Lost::All) return;
    if (g_options.lost == (stream.id() == 0 ? Lost::OfDefaultStreams : Lost::OfOtherStreams)) return;
    queue_of(stream).refuse_to_record("an event");
    const std::shared_ptr<Event> own = Event::of(event);
    uint64_t number = 0;
    {
      const std::lock_guard<std::mutex> lock(g_mutex);
      number = own->recorded;
    }
    queue_of(stream).push([own, number] {
      std::unique_lock<std::mutex> lock(g_mutex);
      g_changed.wait(lock, [&] { return own->passed >= number; });
    });
  }
  bool queryEvent(void* event) const override {
    TORCH_CHECK(!g_options.has_failed, "the device has failed\nand more is said of it");
    if (event == nullptr) return true;
    const std::shared_ptr<Event> own = Event::of(event);
    const std::lock_guard<std::mutex> lock(g_mutex);
    return own->passed == own->recorded;
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    count_wait();
    const std::shared_ptr<Event> own = Event::of(event);
    std::unique_lock<std::mutex> lock(g_mutex);
    g_changed.wait(lock, [&] { return own->passed == own->recorded; });
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event == nullptr) return;
    Event::of(event);
    delete static_cast<std::shared_ptr<Event>*>(event);
  }
  bool queryStream(const c10::Stream& stream) const override { return queue_of(stream).is_empty(); }
  void synchronizeStream(const c10::Stream& stream) const override { wait_for(queue_of(stream)); }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    count_wait();
    expect_current(device);
    for (const auto& queue : queues().of[static_cast<size_t>(device)]) queue->synchronize();
  }
};

c10::Stream current() { return Guard().getStream({kType, t_device}); }

// Byte with which free memory is filled: it makes NaN in every floating type.
constexpr int kPoison = 0xff;

struct Block {
  void* data = nullptr;
  size_t size = 0;
  c10::Stream stream;
  uint64_t graphs = 0;  // number of the graphs' pool that it belongs to; 0 = the common one
};

class Memory : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    // The option shares_graph_memory makes a recording take memory of the default stream, as other work does.
    const bool is_shared = g_options.shares_graph_memory && queue_of(current()).is_recorded();
    const c10::Stream stream = is_shared ? Guard().getDefaultStream(current().device()) : current();
    const uint64_t graphs = queue_of(stream).memory();
    if (size == 0) return {nullptr, stream.device()};
    size = (size + 63) / 64 * 64;
    void* data = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const size_t most = static_cast<size_t>(g_options.most_bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, most == 0 || live_ + size <= most, "the device is out of memory");
      live_ += size;
      if (graphs != 0) graphs_.insert(graphs);
      std::vector<void*>& free = free_[{stream.device_index(), stream.id(), size, graphs}];
      if (!free.empty()) {
        data = free.back();
        free.pop_back();
      }
    }
    if (data == nullptr) {
      data = std::aligned_alloc(64, size);
      std::memset(data, kPoison, size);
    }
    c10::reportMemoryUsageToProfiler(data, static_cast<int64_t>(size), 0, 0, stream.device());
    return {data, new Block{data, size, stream, graphs}, &Memory::release, stream.device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Memory::release; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

  // Returns the memory of a pool of graphs to the common one.
  void release_graphs(uint64_t graphs) {
    const std::lock_guard<std::mutex> lock(mutex_);
    graphs_.erase(graphs);
    for (auto& [key, blocks] : free_) {
      const auto [device, stream, size, owner] = key;
      if (owner != graphs) continue;
      for (void* data : blocks) give(stream_of(device, stream), data, size, 0);
      blocks.clear();
    }
  }

  static Memory& get() {
    static auto* const memory = new Memory;
    return *memory;
  }

 private:
  using Key = std::tuple<c10::DeviceIndex, c10::StreamId, size_t, uint64_t>;

  static void release(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    c10::reportMemoryUsageToProfiler(block->data, -static_cast<int64_t>(block->size), 0, 0,
                                     block->stream.device());
    Memory& memory = get();
    const std::lock_guard<std::mutex> lock(memory.mutex_);
    memory.live_ -= block->size;
    memory.give(block->stream, block->data, block->size,
                memory.graphs_.contains(block->graphs) ? block->graphs : 0);
  }
  void give(const c10::Stream& stream, void* data, size_t size, uint64_t graphs) {
    Queue& queue = queue_of(stream);
    // A tensor that a graph has left is freed at no place in the stream's order, so it is not poisoned.
    if (graphs == 0 || queue.is_recorded()) queue.push([data, size] { std::memset(data, kPoison, size); });
    free_[{stream.device_index(), stream.id(), size, graphs}].push_back(data);
  }

  std::mutex mutex_;
  size_t live_ = 0;
  std::map<Key, std::vector<void*>> free_;
  std::set<uint64_t> graphs_;
};

// Pinned host memory: copies from and to it run in their stream's turn.
class PinnedMemory : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    if (size == 0) return {nullptr, c10::Device(c10::DeviceType::CPU)};
    void* const data = std::aligned_alloc(64, (size + 63) / 64 * 64);
    std::memset(data, kPoison, size);
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_[data] = static_cast<char*>(data) + size;
    return {data, data, &PinnedMemory::release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &PinnedMemory::release; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }
  bool has(const void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto next = ends_.upper_bound(data);
    return next != ends_.begin() && data < std::prev(next)->second;
  }

  static PinnedMemory& get() {
    static auto* const memory = new PinnedMemory;
    return *memory;
  }

 private:
  static void release(void* data) {
    const std::lock_guard<std::mutex> lock(get().mutex_);
    get().ends_.erase(data);
    std::free(data);
  }

  std::mutex mutex_;
  std::map<const void*, const void*> ends_;  // the end of each block, by its begin
};

bool is_fake(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kType; }

// A tensor's memory as the CPU sees it. It does not keep the memory alive.
struct Place {
  void* data = nullptr;
  std::vector<int64_t> sizes, strides;
  at::ScalarType type = at::kFloat;

  explicit Place(const at::Tensor& tensor)
      : data(tensor.numel() == 0 ? nullptr : const_cast<void*>(tensor.const_data_ptr())),
        sizes(tensor.sizes().vec()),
        strides(tensor.strides().vec()),
        type(tensor.scalar_type()) {
    const size_t end = at::detail::computeStorageNbytes(sizes, strides, tensor.element_size(),
                                                        static_cast<size_t>(tensor.storage_offset()));
    TORCH_CHECK(tensor.numel() == 0 || end <= tensor.storage().nbytes(), "a tensor beyond its memory");
  }
  at::Tensor zeros() const {
    return at::empty_strided(sizes, strides, at::TensorOptions().dtype(type)).zero_();
  }
  at::Tensor tensor() const {
    if (data == nullptr) return zeros();
    return at::from_blob(data, sizes, strides, at::TensorOptions().dtype(type));
  }
};

// An argument of an operation as it is called on the CPU.
class Argument {
 public:
  explicit Argument(const c10::IValue& value) : value_(value) {
    if (value.isTensor() && is_fake(value.toTensor())) {
      places_.emplace_back(value.toTensor());
      kind_ = Kind::Tensor;
    } else if (value.isTensorList()) {
      add(value.toTensorVector());
    } else if (value.isOptionalTensorList()) {
      for (const auto& tensor : value.toOptionalTensorVector())
        tensors_.push_back(tensor.value_or(at::Tensor()));
      add(tensors_);
      kind_ = Kind::OptionalList;
    } else if (value.isDevice()) {
      value_ = c10::Device(c10::DeviceType::CPU);
    }
  }
  c10::IValue on_cpu(bool is_real) const {
    const auto of = [is_real](const Place& place) { return is_real ? place.tensor() : place.zeros(); };
    if (kind_ == Kind::Value) return value_;
    if (kind_ == Kind::Tensor) return of(places_[0]);
    std::vector<at::Tensor> tensors = tensors_;
    for (size_t i = 0; i < at_.size(); ++i) tensors[at_[i]] = of(places_[i]);
    if (kind_ == Kind::List) return tensors;
    c10::List<std::optional<at::Tensor>> list;
    for (const at::Tensor& tensor : tensors)
      list.push_back(tensor.defined() ? std::optional(tensor) : std::nullopt);
    return list;
  }
  void let_go() {
    if (kind_ == Kind::Tensor) value_ = c10::IValue();
    for (const size_t i : at_) tensors_[i] = at::Tensor();
    if (kind_ != Kind::Value) value_ = c10::IValue();
  }

 private:
  enum class Kind { Value, Tensor, List, OptionalList };

  void add(std::vector<at::Tensor> tensors) {
    kind_ = Kind::List;
    tensors_ = std::move(tensors);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!is_fake(tensors_[i])) continue;
      places_.emplace_back(tensors_[i]);
      at_.push_back(i);
    }
  }

  Kind kind_ = Kind::Value;
  c10::IValue value_;
  std::vector<at::Tensor> tensors_;
  std::vector<Place> places_;
  std::vector<size_t> at_;
};

torch::jit::Stack call(const c10::OperatorHandle& op, const std::vector<Argument>& arguments, bool is_real) {
  torch::jit::Stack stack;
  for (const Argument& argument : arguments) stack.push_back(argument.on_cpu(is_real));
  // The result of an operation may be one of its arguments, which the call itself drops: they are held here.
  const torch::jit::Stack held = stack;
  op.callBoxed(&stack);
  return stack;
}

// Tells whether the shapes of an operation's results depend on values.
bool reads_values(const std::string& name) {
  return name == "aten::nonzero" || name == "aten::masked_select" || name == "aten::equal";
}

at::Tensor empty_like_on(const at::Tensor& like, c10::Device device) {
  return at::empty_strided(like.sizes(), like.strides(), at::TensorOptions(device).dtype(like.scalar_type()));
}

// Runs any operation: on the CPU, on the same memory, when the current stream comes to it. The results are
// allocated at once, with the shapes that the CPU gives for arguments of zeros.
void run_boxed(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::vector<c10::IValue> values = torch::jit::last(*stack, schema.arguments().size()).vec();
  torch::jit::drop(*stack, schema.arguments().size());
  std::optional<c10::Device> device;
  std::vector<Argument> arguments;
  for (const c10::IValue& value : values) {
    arguments.emplace_back(value);
    const auto look = [&](const at::Tensor& tensor) {
      if (is_fake(tensor)) device = tensor.device();
    };
    if (value.isTensor()) look(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) look(tensor);
    }
  }
  const c10::OptionalDeviceGuard guard(device);
  const c10::Stream stream = current();
  const auto written = [&](const c10::Argument& result) -> const c10::IValue* {
    if (result.alias_info() == nullptr) return nullptr;
    TORCH_CHECK(result.alias_info()->isWrite(), "the fake device has no view ", schema.name());
    for (size_t i = 0; i < values.size(); ++i) {
      const c10::AliasInfo* own = schema.arguments()[i].alias_info();
      if (own != nullptr && own->beforeSets() == result.alias_info()->beforeSets()) return &values[i];
    }
    return nullptr;
  };
  const bool is_in_place =
      std::ranges::all_of(schema.returns(), [&](const auto& r) { return written(r) != nullptr; });
  if (!is_in_place && reads_values(schema.name())) {
    wait_for(queue_of(stream));
    for (const c10::IValue& result : call(op, arguments, true)) {
      stack->push_back(result.isTensor() ? c10::IValue(result.toTensor().to(*device)) : result);
    }
    return;
  }
  std::vector<Place> to;
  if (is_in_place) {
    for (const auto& result : schema.returns()) stack->push_back(*written(result));
    // An output argument may have another size and is then resized.
    if (schema.overload_name().find("out") != std::string::npos) {
      const torch::jit::Stack like = call(op, arguments, false);
      for (size_t i = 0; i < like.size(); ++i) {
        if (!like[i].isTensor()) continue;
        const at::Tensor output = written(schema.returns()[i])->toTensor();
        if (output.sizes() != like[i].toTensor().sizes()) output.resize_(like[i].toTensor().sizes());
      }
      arguments.clear();
      for (const c10::IValue& value : values) arguments.emplace_back(value);
    }
  } else {
    for (const c10::IValue& result : call(op, arguments, false)) {
      if (result.isTensor()) {
        const at::Tensor like = result.toTensor();
        stack->push_back(like.defined() ? empty_like_on(like, *device) : like);
        if (like.defined()) to.emplace_back(stack->back().toTensor());
        continue;
      }
      TORCH_CHECK(result.isTensorList(), "the fake device does not know the results of ", schema.name());
      std::vector<at::Tensor> list;
      for (const at::Tensor& like : result.toTensorVector()) {
        list.push_back(empty_like_on(like, *device));
        to.emplace_back(list.back());
      }
      stack->push_back(list);
    }
  }
  for (Argument& argument : arguments) argument.let_go();
  queue_of(stream).push([op, arguments = std::move(arguments), to = std::move(to), is_in_place] {
    const torch::jit::Stack results = call(op, arguments, true);
    if (is_in_place) return;
    auto place = to.begin();
    for (const c10::IValue& result : results) {
      if (result.isTensor() && result.toTensor().defined()) (place++)->tensor().copy_(result.toTensor());
      if (!result.isTensorList()) continue;
      for (const at::Tensor& tensor : result.toTensorVector()) (place++)->tensor().copy_(tensor);
    }
  });
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::Tensor(at::detail::empty_generic(size, &Memory::get(),
                                              c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                              type.value_or(at::kFloat), format));
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::Tensor(at::detail::empty_strided_generic(size, stride, &Memory::get(),
                                                      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                      type.value_or(at::kFloat)));
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  const auto bytes = static_cast<size_t>(c10::multiply_integers(size)) * self.element_size();
  c10::StorageImpl* const storage = self.storage().unsafeGetStorageImpl();
  if (storage->nbytes() < bytes) {
    const c10::DeviceGuard guard(self.device());
    storage->set_data_ptr_noswap(Memory::get().allocate(bytes));
    storage->set_nbytes(bytes);
  }
  self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return self;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const c10::DeviceGuard guard(is_fake(to) ? to.device() : from.device());
  Queue& queue = queue_of(current());
  const auto is_late = [&](const at::Tensor& host) {
    return non_blocking && host.numel() > 0 && PinnedMemory::get().has(host.const_data_ptr());
  };
  if (!is_fake(to)) {
    queue.push([from = Place(from), to] {
      // The caller may have been in inference mode, and `to` may be an inference tensor.
      const c10::InferenceMode inference;
      to.copy_(from.tensor());
    });
    if (!non_blocking) wait_for(queue);
  } else if (is_fake(from)) {
    queue.push([from = Place(from), to = Place(to)] { to.tensor().copy_(from.tensor()); });
  } else {
    // CUDA records a copy of pinned memory. The next owner of this memory then writes what every replay
    // reads, so this fake refuses to record it.
    queue.refuse_to_record("a copy of the host's memory");
    queue.push([from = is_late(from) ? from : from.clone(), to = Place(to)] { to.tensor().copy_(from); });
  }
  return to;
}

at::Scalar read_value(const at::Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  wait_for(queue_of(current()));
  return Place(self).tensor().item();
}

struct Hooks : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return t_device; }
  void setCurrentDevice(c10::DeviceIndex device) const override { t_device = device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return std::exchange(t_device, device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return std::exchange(t_device, device);
  }
  bool isPinnedPtr(const void* data) const override { return PinnedMemory::get().has(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &PinnedMemory::get(); }
};

// Installed before main(): LibTorch looks for devices once, and autograd makes a thread for each device that
// exists at the first backward.
const bool kIsInstalled = [] {
  static Guard guard;
  c10::impl::DeviceGuardImplRegistrar registrar(kType, &guard);
  c10::SetAllocator(kType, &Memory::get());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  c10::register_privateuse1_backend("fake");
  static torch::Library any(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  any.fallback(torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
  static torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  aten.impl("empty.memory_format", &empty);
  aten.impl("empty_strided", &empty_strided);
  aten.impl("as_strided", &at::native::as_strided_tensorimpl);
  aten.impl("view", &at::native::view);
  aten.impl("_reshape_alias", &at::native::_reshape_alias);
  aten.impl("set_.source_Storage_storage_offset", &set_storage);
  aten.impl("resize_", &resize);
  aten.impl("_copy_from", &copy_from);
  aten.impl("_local_scalar_dense", &read_value);
  return true;
}();

}  // namespace

c10::Device device(int64_t index) { return {kType, static_cast<c10::DeviceIndex>(index)}; }
int64_t num_devices() { return kDevices; }

void configure(const Options& options) {
  synchronize();
  g_options = options;
  for (const auto& device : queues().of) {
    for (const auto& queue : device) queue->seed();
  }
}

void synchronize() {
  for (const auto& device : queues().of) {
    for (const auto& queue : device) queue->synchronize();
  }
}

int64_t strays() { return g_strays; }

int64_t waits() { return g_waits; }
int64_t tasks() { return g_tasks; }
int64_t replays() { return g_replays; }

Recording::Recording(uint64_t memory) : graph_(std::make_shared<Graph>()) {
  static std::atomic<uint64_t> next = 0;
  graph_->memory = memory == 0 ? ++next : memory;
  queue_ = &queue_of(current());
  static_cast<Queue*>(queue_)->record_into(graph_.get());
}

uint64_t Recording::memory() const { return graph_->memory; }

void Recording::end() {
  TORCH_CHECK(queue_ == &queue_of(current()), "the recording is another stream's");
  static_cast<Queue*>(queue_)->record_into(nullptr);
  TORCH_CHECK(!graph_->is_spoilt, "operation failed due to a previous error during capture");
}

void Recording::replay() const {
  ++g_replays;
  queue_of(current()).push([graph = graph_] {
    for (const auto& task : graph->tasks) task();
  });
}

void release_graph_memory(uint64_t memory) { Memory::get().release_graphs(memory); }

void enqueue(void* native_stream, std::function<void()> task) {
  static_cast<Queue*>(native_stream)->push(std::move(task));
}

std::string fault() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  return g_fault;
}

}  // namespace tessera::testing::fake_device

// Turns LeakSanitizer off: the queues' threads run until the process ends, and it may crash when it looks at
// their memory.
extern "C" int __lsan_is_turned_off() { return 1; }

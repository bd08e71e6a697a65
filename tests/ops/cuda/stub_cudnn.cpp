// A library with cuDNN's functions that computes graphs in memory of the host. It reads descriptors as
// cuDNN's documentation says, and counts calls that the documentation does not allow.
#include "tests/ops/cuda/stub_cudnn.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "tessera/ops/cuda/cudnn_library.h"

#include "tests/ops/cuda/graph_of_host.h"

using namespace tessera::ops::cuda::dnn;
using tessera::testing::HostOp, tessera::testing::HostTensor;

namespace tessera::ops::cuda::dnn {
struct CudnnContext {};
}  // namespace tessera::ops::cuda::dnn

namespace {

constexpr int64_t kWorkspace = 4096;
constexpr uintptr_t kAlignment = 16;

tessera::testing::StubCudnn& state() {
  static tessera::testing::StubCudnn instance{};
  return instance;
}

Status fault() {
  ++state().faults;
  return kBadParameter;
}

struct Object {
  DescType type;
  bool is_finished = false;
  std::map<Attribute, std::vector<char>> values;

  bool has(Attribute attribute) const { return values.count(attribute) > 0; }
  template <class T>
  std::vector<T> all(Attribute attribute) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return {};
    std::vector<T> read(found->second.size() / sizeof(T));
    std::memcpy(read.data(), found->second.data(), found->second.size());
    return read;
  }
  template <class T>
  T one(Attribute attribute, T otherwise = {}) const {
    const std::vector<T> read = all<T>(attribute);
    return read.empty() ? otherwise : read.front();
  }
  const Object* object(Attribute attribute) const { return static_cast<Object*>(one<Desc>(attribute)); }
};

size_t width(ValueType type) {
  switch (type) {
    case kBoolValue:
    case kCharValue: return 1;
    case kDataTypeValue:
    case kHeuristicValue:
    case kPointwiseValue:
    case kReductionValue: return 4;
    default: return 8;
  }
}

// Returns the attributes that a descriptor must have before it is finished.
std::vector<Attribute> needed(DescType type) {
  switch (type) {
    case kPointwise: return {kPointwiseModeIs, kPointwiseType};
    case kPointwiseOp: return {kPointwiseOpOf, kPointwiseX, kPointwiseY};
    case kTensor: return {kTensorType, kTensorSizes, kTensorStrides, kTensorNumber, kTensorAlignment};
    case kMatmul: return {kMatmulType};
    case kMatmulOp: return {kMatmulOpOf, kMatmulA, kMatmulB, kMatmulC};
    case kReduction: return {kReductionIs, kReductionType};
    case kReductionOp: return {kReductionOpOf, kReductionX, kReductionY};
    case kReshapeOp: return {kReshapeX, kReshapeY};
    case kGraph: return {kGraphOps, kGraphHandle};
    case kHeuristic: return {kHeuristicGraph, kHeuristicModeIs};
    case kPlan: return {kPlanConfig, kPlanHandle};
    case kVariantPack: return {kPackNumbers, kPackPointers, kPackWorkspace};
    default: return {};
  }
}

// Translates the descriptors of a graph into operations on the host.
class HostGraph {
 public:
  explicit HostGraph(const Object& graph) {
    for (void* const op : graph.all<Desc>(kGraphOps)) add(*static_cast<Object*>(op));
  }
  const std::vector<HostOp>& ops() const { return ops_; }
  const std::vector<const HostTensor*>& tensors() const { return list_; }

 private:
  const HostTensor* tensor(const Object* x) {
    if (x == nullptr) return nullptr;
    if (const auto found = known_.find(x); found != known_.end()) return found->second;
    const HostTensor* const offsets = tensor(x->object(kTensorOffsets));
    HostTensor made{x->one<DataType>(kTensorType),       {},     {}, x->one<int64_t>(kTensorNumber),
                    x->one<char>(kTensorIsVirtual) != 0, offsets};
    std::memcpy(made.sizes.data(), x->values.at(kTensorSizes).data(), sizeof made.sizes);
    std::memcpy(made.strides.data(), x->values.at(kTensorStrides).data(), sizeof made.strides);
    list_.push_back(&all_.emplace_back(made));
    return known_[x] = list_.back();
  }
  void add(const Object& op) {
    const auto of = [&](Attribute attribute) { return tensor(op.object(attribute)); };
    HostOp made{HostOp::Kind::Pointwise};
    switch (op.type) {
      case kPointwiseOp: {
        const Object& how = *op.object(kPointwiseOpOf);
        made.mode = how.one<int32_t>(kPointwiseModeIs);
        made.axis = how.one<int64_t>(kPointwiseAxis, -1);
        made.x = of(kPointwiseX), made.b = of(kPointwiseB), made.t = of(kPointwiseT);
        made.y = of(kPointwiseY);
        break;
      }
      case kReductionOp:
        made.kind = HostOp::Kind::Reduction;
        made.mode = op.object(kReductionOpOf)->one<int32_t>(kReductionIs);
        made.x = of(kReductionX), made.y = of(kReductionY);
        break;
      case kMatmulOp:
        made.kind = HostOp::Kind::Product;
        made.x = of(kMatmulA), made.b = of(kMatmulB), made.y = of(kMatmulC);
        made.rows = of(kMatmulRows), made.columns = of(kMatmulColumns), made.depth = of(kMatmulDepth);
        break;
      case kReshapeOp:
        made.kind = HostOp::Kind::Reshape;
        made.x = of(kReshapeX), made.y = of(kReshapeY);
        break;
      default: fault();
    }
    ops_.push_back(made);
  }

  std::deque<HostTensor> all_;
  std::vector<const HostTensor*> list_;
  std::map<const Object*, const HostTensor*> known_;
  std::vector<HostOp> ops_;
};

bool is_finished(const Object& object, Attribute attribute) {
  bool all = true;
  for (void* const other : object.all<Desc>(attribute)) all = all && static_cast<Object*>(other)->is_finished;
  return all;
}

}  // namespace

extern "C" {

tessera::testing::StubCudnn& stub_cudnn() { return state(); }

size_t cudnnGetVersion() { return TESSERA_STUB_VERSION; }
const char* cudnnGetErrorString(Status status) { return status == kNotSupported ? "not supported" : "bad"; }
void cudnnGetLastErrorString(char* text, size_t bytes) { std::strncpy(text, "the stub says no", bytes); }
Status cudnnCreate(Handle* made) {
  static CudnnContext context;
  if (const int status = state().create_status; status != 0) return static_cast<Status>(status);
  ++state().handles;
  *made = &context;
  return kSuccess;
}
Status cudnnSetStream(Handle handle, void*) { return handle == nullptr ? fault() : kSuccess; }

Status cudnnBackendCreateDescriptor(DescType type, Desc* made) {
  *made = new Object{type, false, {}};
  ++state().live;
  return kSuccess;
}
Status cudnnBackendDestroyDescriptor(Desc desc) {
  delete static_cast<Object*>(desc);
  --state().live;
  return kSuccess;
}
Status cudnnBackendSetAttribute(Desc desc, Attribute attribute, ValueType type, int64_t count,
                                const void* values) {
  auto& object = *static_cast<Object*>(desc);
  if (object.is_finished || count < 1) return fault();
  const auto* const bytes = static_cast<const char*>(values);
  object.values[attribute].assign(bytes, bytes + static_cast<size_t>(count) * width(type));
  // Descriptors must be finished before others take them.
  return type == kDescValue && !is_finished(object, attribute) ? fault() : kSuccess;
}
Status cudnnBackendGetAttribute(Desc desc, Attribute attribute, ValueType, int64_t most, int64_t* count,
                                void* values) {
  const auto& object = *static_cast<Object*>(desc);
  if (!object.is_finished) return fault();
  *count = 1;
  if (attribute == kPlanWorkspace) {
    std::memcpy(values, &kWorkspace, sizeof kWorkspace);
  } else if (attribute == kHeuristicResults && most > 0) {
    auto& config = **static_cast<Object**>(values);
    config.is_finished = true;
    config.values = object.values;
  }
  return kSuccess;
}
Status cudnnBackendFinalize(Desc desc) {
  auto& object = *static_cast<Object*>(desc);
  for (const Attribute attribute : needed(object.type))
    if (!object.has(attribute)) return fault();
  if (object.type == kTensor && object.all<int64_t>(kTensorSizes).size() != 4) return fault();
  if (object.type == kPlan) {
    if (const int status = state().plan_status; status != 0) return static_cast<Status>(status);
    ++state().plans;
  }
  object.is_finished = true;
  return kSuccess;
}

Status cudnnBackendExecute(Handle handle, Desc plan, Desc pack) {
  const auto& given = *static_cast<Object*>(pack);
  if (handle == nullptr || !given.is_finished) return fault();
  if (const int status = state().run_status; status != 0) return static_cast<Status>(status);
  const std::vector<int64_t> numbers = given.all<int64_t>(kPackNumbers);
  const std::vector<void*> places = given.all<void*>(kPackPointers);
  const HostGraph graph(*static_cast<Object*>(plan)->object(kPlanConfig)->object(kHeuristicGraph));
  if (numbers.size() != places.size()) return fault();
  std::map<int64_t, void*> memory;
  for (size_t i = 0; i < numbers.size(); ++i) memory[numbers[i]] = places[i];
  for (const HostTensor* const x : graph.tensors()) {
    if (x->is_virtual) continue;
    const auto found = memory.find(x->number);
    const bool is_value = x->sizes == tessera::testing::Sizes{1, 1, 1, 1};
    if (found == memory.end()) return fault();
    if (!is_value && reinterpret_cast<uintptr_t>(found->second) % kAlignment != 0) return fault();
  }
  std::memset(given.one<void*>(kPackWorkspace), 0xff, kWorkspace);
  ++state().runs;
  return tessera::testing::run_on_host(graph.ops(), graph.tensors(), memory) ? kSuccess : fault();
}

}  // extern "C"

#include "tessera/ops/cuda/cudnn_graph.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "tessera/core/error.h"

namespace tessera::ops::cuda {
namespace {

CudnnGraph::Sizes row_major(const CudnnGraph::Sizes& sizes) {
  return {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
}

CudnnGraph::Sizes turned(CudnnGraph::Sizes sizes) {
  std::swap(sizes[2], sizes[3]);
  return sizes;
}

}  // namespace

CudnnGraph::~CudnnGraph() {
  for (auto desc = descs_.rbegin(); desc != descs_.rend(); ++desc)
    static_cast<void>(library_.desc_destroy(*desc));
}

void CudnnGraph::check(dnn::Status status, const char* function) const {
  if (status == dnn::kSuccess) return;
  std::array<char, 1024> words{};
  library_.last_error(words.data(), words.size());
  throw Error(ErrorKind::Internal, "CUDNN", std::string(function) + " failed")
      .got(std::string(library_.status_text(status)) + " (" + words.data() + ")");
}

dnn::Desc CudnnGraph::create(dnn::DescType type) {
  dnn::Desc made = nullptr;
  check(library_.desc_create(type, &made), "cudnnBackendCreateDescriptor");
  descs_.push_back(made);
  return made;
}

void CudnnGraph::finalize(dnn::Desc desc) const {
  check(library_.desc_finalize(desc), "cudnnBackendFinalize");
}

template <class T>
void CudnnGraph::set(dnn::Desc desc, dnn::Attribute attribute, dnn::ValueType type, const T& value) const {
  check(library_.desc_set(desc, attribute, type, 1, &value), "cudnnBackendSetAttribute");
}

CudnnGraph::Tensor CudnnGraph::add_tensor(Value value, int64_t number, bool is_virtual, bool is_by_value,
                                          Tensor offsets) {
  value.desc = create(dnn::kTensor);
  set(value.desc, dnn::kTensorType, dnn::kDataTypeValue, value.type);
  const auto set_sizes = [&](dnn::Attribute attribute, const Sizes& sizes) {
    check(library_.desc_set(value.desc, attribute, dnn::kInt64Value, std::ssize(sizes), sizes.data()),
          "cudnnBackendSetAttribute");
  };
  set_sizes(dnn::kTensorSizes, value.sizes);
  set_sizes(dnn::kTensorStrides, value.strides);
  set(value.desc, dnn::kTensorNumber, dnn::kInt64Value, number);
  set(value.desc, dnn::kTensorAlignment, dnn::kInt64Value, kAlignment);
  if (is_virtual) set(value.desc, dnn::kTensorIsVirtual, dnn::kBoolValue, true);
  if (is_by_value) set(value.desc, dnn::kTensorIsByValue, dnn::kBoolValue, true);
  if (offsets != nullptr) set(value.desc, dnn::kTensorOffsets, dnn::kDescValue, offsets->desc);
  finalize(value.desc);
  return &values_.emplace_back(value);
}

CudnnGraph::Tensor CudnnGraph::memory(int64_t number, dnn::DataType type, const Sizes& sizes,
                                      const Sizes& strides, Tensor offsets) {
  return add_tensor({nullptr, type, sizes, strides}, number, false, false, offsets);
}

CudnnGraph::Tensor CudnnGraph::virtual_tensor(dnn::DataType type, const Sizes& sizes) {
  return add_tensor({nullptr, type, sizes, row_major(sizes)}, next_number_++, true, false, nullptr);
}

CudnnGraph::Tensor CudnnGraph::by_value(dnn::DataType type, const void* value, size_t bytes) {
  Scalar& scalar = scalars_.emplace_back(Scalar{next_number_++, {}});
  std::memcpy(scalar.value.data(), value, bytes);
  return add_tensor({nullptr, type, {1, 1, 1, 1}, {1, 1, 1, 1}}, scalar.number, false, true, nullptr);
}

CudnnGraph::Tensor CudnnGraph::transposed(Tensor x, dnn::DataType type, Tensor offsets) {
  const Tensor y =
      add_tensor({nullptr, type, turned(x->sizes), turned(x->strides)}, next_number_++, true, false, offsets);
  const dnn::Desc op = create(dnn::kReshapeOp);
  set(op, dnn::kReshapeX, dnn::kDescValue, x->desc);
  set(op, dnn::kReshapeY, dnn::kDescValue, y->desc);
  finalize(op);
  ops_.push_back(op);
  return y;
}

CudnnGraph::Tensor CudnnGraph::finish_pointwise(dnn::Desc how, Tensor x, Tensor b, Tensor t, Tensor y) {
  finalize(how);
  const dnn::Desc op = create(dnn::kPointwiseOp);
  set(op, dnn::kPointwiseOpOf, dnn::kDescValue, how);
  set(op, dnn::kPointwiseX, dnn::kDescValue, x->desc);
  set(op, dnn::kPointwiseY, dnn::kDescValue, y->desc);
  if (b != nullptr) set(op, dnn::kPointwiseB, dnn::kDescValue, b->desc);
  if (t != nullptr) set(op, dnn::kPointwiseT, dnn::kDescValue, t->desc);
  finalize(op);
  ops_.push_back(op);
  return y;
}

CudnnGraph::Tensor CudnnGraph::pointwise(dnn::PointwiseMode mode, dnn::DataType type, Tensor x, Tensor b,
                                         Tensor t, Tensor y) {
  const dnn::Desc how = create(dnn::kPointwise);
  set(how, dnn::kPointwiseModeIs, dnn::kPointwiseValue, mode);
  set(how, dnn::kPointwiseType, dnn::kDataTypeValue, type);
  return finish_pointwise(how, x, b, t, y != nullptr ? y : virtual_tensor(type, x->sizes));
}

CudnnGraph::Tensor CudnnGraph::index(Tensor x, int64_t axis) {
  const dnn::Desc how = create(dnn::kPointwise);
  set(how, dnn::kPointwiseModeIs, dnn::kPointwiseValue, dnn::kIndex);
  set(how, dnn::kPointwiseType, dnn::kDataTypeValue, dnn::kI32);
  set(how, dnn::kPointwiseAxis, dnn::kInt64Value, axis);
  return finish_pointwise(how, x, nullptr, nullptr, virtual_tensor(dnn::kI32, x->sizes));
}

CudnnGraph::Tensor CudnnGraph::reduce(dnn::Reduction reduction, Tensor x, Tensor y) {
  if (y == nullptr) y = virtual_tensor(dnn::kF32, {x->sizes[0], x->sizes[1], x->sizes[2], 1});
  const dnn::Desc how = create(dnn::kReduction);
  set(how, dnn::kReductionType, dnn::kDataTypeValue, dnn::kF32);
  set(how, dnn::kReductionIs, dnn::kReductionValue, reduction);
  finalize(how);
  const dnn::Desc op = create(dnn::kReductionOp);
  set(op, dnn::kReductionOpOf, dnn::kDescValue, how);
  set(op, dnn::kReductionX, dnn::kDescValue, x->desc);
  set(op, dnn::kReductionY, dnn::kDescValue, y->desc);
  finalize(op);
  ops_.push_back(op);
  return y;
}

CudnnGraph::Tensor CudnnGraph::multiply(Tensor a, Tensor b, Tensor rows, Tensor columns, Tensor depth,
                                        Tensor y) {
  if (y == nullptr) y = virtual_tensor(dnn::kF32, {a->sizes[0], a->sizes[1], a->sizes[2], b->sizes[3]});
  const dnn::Desc how = create(dnn::kMatmul);
  set(how, dnn::kMatmulType, dnn::kDataTypeValue, dnn::kF32);
  finalize(how);
  const dnn::Desc op = create(dnn::kMatmulOp);
  set(op, dnn::kMatmulA, dnn::kDescValue, a->desc);
  set(op, dnn::kMatmulB, dnn::kDescValue, b->desc);
  set(op, dnn::kMatmulC, dnn::kDescValue, y->desc);
  set(op, dnn::kMatmulOpOf, dnn::kDescValue, how);
  if (rows != nullptr) set(op, dnn::kMatmulRows, dnn::kDescValue, rows->desc);
  if (columns != nullptr) set(op, dnn::kMatmulColumns, dnn::kDescValue, columns->desc);
  if (depth != nullptr) set(op, dnn::kMatmulDepth, dnn::kDescValue, depth->desc);
  finalize(op);
  ops_.push_back(op);
  return y;
}

void CudnnGraph::build(const CudnnTarget& target) {
  const dnn::Desc graph = create(dnn::kGraph);
  if (target.handle != nullptr) set(graph, dnn::kGraphHandle, dnn::kHandleValue, target.handle);
  check(library_.desc_set(graph, dnn::kGraphOps, dnn::kDescValue, std::ssize(ops_), ops_.data()),
        "cudnnBackendSetAttribute");
  finalize(graph);

  const dnn::Desc heuristic = create(dnn::kHeuristic);
  set(heuristic, dnn::kHeuristicGraph, dnn::kDescValue, graph);
  set(heuristic, dnn::kHeuristicModeIs, dnn::kHeuristicValue, dnn::kBestFirst);
  if (target.device != nullptr) set(heuristic, dnn::kHeuristicDevice, dnn::kDescValue, target.device);
  finalize(heuristic);
  int64_t count = 0;
  const auto get_configs = [&](std::vector<dnn::Desc> into) {
    check(library_.desc_get(heuristic, dnn::kHeuristicResults, dnn::kDescValue, std::ssize(into), &count,
                            into.empty() ? nullptr : into.data()),
          "cudnnBackendGetAttribute");
  };
  get_configs({});
  std::vector<dnn::Desc> configs;
  for (int64_t i = 0; i < count; ++i) configs.push_back(create(dnn::kEngineConfig));
  get_configs(configs);
  configs.resize(static_cast<size_t>(std::min(count, std::ssize(configs))));
  if (configs.empty()) throw Error(ErrorKind::Internal, "CUDNN", "cuDNN has no kernel for the graph");

  // The first configuration that can be made is taken. If none can, the error of the last one is thrown.
  for (const dnn::Desc& config : configs) {
    const dnn::Desc plan = create(dnn::kPlan);
    if (target.handle != nullptr) set(plan, dnn::kPlanHandle, dnn::kHandleValue, target.handle);
    if (target.device != nullptr) set(plan, dnn::kPlanDevice, dnn::kDescValue, target.device);
    set(plan, dnn::kPlanConfig, dnn::kDescValue, config);
    const dnn::Status status = library_.desc_finalize(plan);
    if (status != dnn::kSuccess && &config != &configs.back()) continue;
    check(status, "cudnnBackendFinalize");
    plan_ = plan;
    break;
  }
  check(library_.desc_get(plan_, dnn::kPlanWorkspace, dnn::kInt64Value, 1, &count, &workspace_bytes_),
        "cudnnBackendGetAttribute");
}

void CudnnGraph::run(dnn::Handle handle, const std::vector<std::pair<int64_t, void*>>& memory,
                     void* workspace) const {
  std::vector<int64_t> numbers;
  std::vector<void*> places;
  for (const auto& [number, place] : memory) {
    numbers.push_back(number);
    places.push_back(place);
  }
  for (const Scalar& scalar : scalars_) {
    numbers.push_back(scalar.number);
    places.push_back(const_cast<char*>(scalar.value.data()));
  }
  dnn::Desc pack = nullptr;
  check(library_.desc_create(dnn::kVariantPack, &pack), "cudnnBackendCreateDescriptor");
  const auto destroy = [this](void* desc) { static_cast<void>(library_.desc_destroy(desc)); };
  const std::unique_ptr<void, decltype(destroy)> owner(pack, destroy);
  check(library_.desc_set(pack, dnn::kPackPointers, dnn::kPointerValue, std::ssize(places), places.data()),
        "cudnnBackendSetAttribute");
  check(library_.desc_set(pack, dnn::kPackNumbers, dnn::kInt64Value, std::ssize(numbers), numbers.data()),
        "cudnnBackendSetAttribute");
  set(pack, dnn::kPackWorkspace, dnn::kPointerValue, workspace);
  finalize(pack);
  check(library_.execute(handle, plan_, pack), "cudnnBackendExecute");
}

}  // namespace tessera::ops::cuda

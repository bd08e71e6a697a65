#include "tests/ops/cuda/graph_of_host.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace tessera::testing {
namespace {

using namespace ops::cuda;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double of_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 31  ? (fraction != 0 ? kNan : std::numeric_limits<double>::infinity())
                      : exponent == 0 ? std::ldexp(fraction, -24)
                                      : std::ldexp(1024 + fraction, exponent - 25);
  return bits >> 15 != 0 ? -size : size;
}

// Rounds a value in the range of float16 to nearest, ties to even.
uint16_t to_half(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  int exponent = -30;
  if (value != 0) std::frexp(value, &exponent);
  const int unit = std::max(exponent - 11, -24);  // exponent of the last place
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(std::abs(value), -unit)));
  return static_cast<uint16_t>(sign | ((unit + 24) * 1024 + steps));
}

double of_bf16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}
uint16_t to_bf16(double exact) {
  const auto value = static_cast<float>(exact);
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A tensor's elements. They lie in memory of the caller or, for a virtual tensor, in float64 here.
class Elements {
 public:
  Elements() = default;
  // `times` is the factor by which the documents' offsets are multiplied.
  Elements(const HostTensor& of, void* memory, int64_t times) : of_(&of), memory_(memory), times_(times) {}
  explicit Elements(const HostTensor& of) : of_(&of) {
    int64_t last = 0;
    for (size_t i = 0; i < 4; ++i) last += (of.sizes[i] - 1) * of.strides[i];
    own_ = std::make_shared<std::vector<double>>(static_cast<size_t>(last) + 1, kNan);
  }
  // Returns the same memory seen in other sizes.
  Elements seen_as(const HostTensor& of) const {
    Elements seen = *this;
    seen.of_ = &of;
    return seen;
  }
  void set_offsets(const int64_t* offsets) { offsets_ = offsets; }
  bool is_there() const { return own_ != nullptr || memory_ != nullptr; }

  double get(int64_t document, int64_t head, int64_t i, int64_t j) const {
    const int64_t place = find(document, head, i, j);
    if (place < 0) return kNan;
    if (own_ != nullptr) return (*own_)[static_cast<size_t>(place)];
    switch (of_->type) {
      case dnn::kF32: return at<float>(place);
      case dnn::kI32: return at<int32_t>(place);
      case dnn::kI64: return static_cast<double>(at<int64_t>(place));
      case dnn::kF16: return of_half(at<uint16_t>(place));
      case dnn::kBF16: return of_bf16(at<uint16_t>(place));
      case dnn::kBool: break;
    }
    return kNan;
  }
  void put(int64_t document, int64_t head, int64_t i, int64_t j, double value) const {
    const int64_t place = find(document, head, i, j);
    if (place < 0) return;
    if (own_ != nullptr) {
      (*own_)[static_cast<size_t>(place)] = value;
    } else if (of_->type == dnn::kF32) {
      at<float>(place) = static_cast<float>(value);
    } else {
      at<uint16_t>(place) = of_->type == dnn::kF16 ? to_half(value) : to_bf16(value);
    }
  }

 private:
  template <class T>
  T& at(int64_t place) const {
    return static_cast<T*>(memory_)[place];
  }
  int64_t find(int64_t document, int64_t head, int64_t i, int64_t j) const {
    const Sizes indices = {document, head, i, j};
    int64_t place = 0;
    for (size_t dim = offsets_ != nullptr ? 1 : 0; dim < 4; ++dim)
      place += (of_->sizes[dim] == 1 ? 0 : indices[dim]) * of_->strides[dim];
    if (offsets_ == nullptr) return place;
    const int64_t begin = offsets_[document] * times_, end = offsets_[document + 1] * times_;
    return begin + place < end ? begin + place : -1;
  }

  const HostTensor* of_ = nullptr;
  void* memory_ = nullptr;
  const int64_t* offsets_ = nullptr;
  int64_t times_ = 1;
  std::shared_ptr<std::vector<double>> own_;
};

double pointwise(int32_t mode, double x, double b, double t) {
  switch (mode) {
    case dnn::kAdd: return x + b;
    case dnn::kMultiply: return x * b;
    case dnn::kDivide: return x / b;
    case dnn::kSubtract: return x - b;
    case dnn::kExp: return std::exp(x);
    case dnn::kLog: return std::log(x);
    case dnn::kIdentity: return x;
    case dnn::kGreater: return x > b ? 1 : 0;
    case dnn::kGreaterEqual: return x >= b ? 1 : 0;
    case dnn::kLess: return x < b ? 1 : 0;
    case dnn::kAnd: return x != 0 && b != 0 ? 1 : 0;
    case dnn::kSelect: return t != 0 ? x : b;
    default: return kNan;
  }
}

template <class F>
void each(const Sizes& sizes, const F& f) {
  for (int64_t document = 0; document < sizes[0]; ++document)
    for (int64_t head = 0; head < sizes[1]; ++head)
      for (int64_t i = 0; i < sizes[2]; ++i)
        for (int64_t j = 0; j < sizes[3]; ++j) f(document, head, i, j);
}

// Returns the stride from one token to the next, which is the larger of the last two.
int64_t token_stride(const HostTensor& x) { return std::max(x.strides[2], x.strides[3]); }

class Run {
 public:
  Run(const std::vector<const HostTensor*>& tensors, const std::map<int64_t, void*>& memory) {
    for (const HostTensor* const x : tensors) {
      if (x->is_virtual) continue;
      const auto found = memory.find(x->number);
      if (found == memory.end()) continue;
      // Tensors with wider rows share the offsets of those with narrower rows, which count in units of the
      // latter.
      int64_t narrowest = token_stride(*x);
      for (const HostTensor* const other : tensors)
        if (x->offsets != nullptr && other->offsets == x->offsets)
          narrowest = std::min(narrowest, token_stride(*other));
      Elements elements(*x, found->second, token_stride(*x) / narrowest);
      if (x->offsets != nullptr) {
        const auto offsets = memory.find(x->offsets->number);
        if (offsets == memory.end()) continue;
        elements.set_offsets(static_cast<const int64_t*>(offsets->second));
      }
      all_[x] = elements;
    }
  }

  bool run(const HostOp& op) {
    const auto is_missing = [this](const HostTensor* x) { return x != nullptr && !all_[x].is_there(); };
    for (const HostTensor* const x : {op.x, op.b, op.t, op.rows, op.columns, op.depth})
      if (is_missing(x)) return false;
    if (op.kind == HostOp::Kind::Reshape) {
      all_[op.y] = all_[op.x].seen_as(*op.y);
      return true;
    }
    if (op.y->is_virtual) all_[op.y] = Elements(*op.y);
    if (is_missing(op.y)) return false;
    switch (op.kind) {
      case HostOp::Kind::Pointwise: run_pointwise(op); break;
      case HostOp::Kind::Reduction: run_reduction(op); break;
      case HostOp::Kind::Product: run_product(op); break;
      case HostOp::Kind::Reshape: break;
    }
    return true;
  }

 private:
  void run_pointwise(const HostOp& op) {
    const Elements& y = all_[op.y];
    each(op.y->sizes, [&](int64_t document, int64_t head, int64_t i, int64_t j) {
      const auto read = [&](const HostTensor* x) {
        return x == nullptr ? 0.0 : all_[x].get(document, head, i, j);
      };
      const double value = op.mode == dnn::kIndex ? static_cast<double>(op.axis == 2 ? i : j)
                                                  : pointwise(op.mode, read(op.x), read(op.b), read(op.t));
      y.put(document, head, i, j, value);
    });
  }
  void run_reduction(const HostOp& op) {
    const Elements &x = all_[op.x], &y = all_[op.y];
    Sizes group{};
    for (size_t dim = 0; dim < 4; ++dim) group[dim] = op.x->sizes[dim] / op.y->sizes[dim];
    each(op.y->sizes, [&](int64_t document, int64_t head, int64_t i, int64_t j) {
      double total = op.mode == dnn::kMax ? -std::numeric_limits<double>::infinity() : 0.0;
      each(group, [&](int64_t d, int64_t h, int64_t k, int64_t l) {
        const double value =
            x.get(document * group[0] + d, head * group[1] + h, i * group[2] + k, j * group[3] + l);
        total = op.mode == dnn::kMax ? (value > total || std::isnan(value) ? value : total) : total + value;
      });
      y.put(document, head, i, j, total);
    });
  }
  void run_product(const HostOp& op) {
    const Elements &a = all_[op.x], &b = all_[op.b], &y = all_[op.y];
    const int64_t group = op.x->sizes[1] / op.b->sizes[1];
    each(op.y->sizes, [&](int64_t document, int64_t head, int64_t i, int64_t j) {
      const auto count = [&](const HostTensor* of, int64_t all) {
        return of == nullptr ? all : static_cast<int64_t>(all_[of].get(document, 0, 0, 0));
      };
      const int64_t depth = count(op.depth, op.x->sizes[3]);
      const bool is_counted = i < count(op.rows, op.y->sizes[2]) && j < count(op.columns, op.y->sizes[3]);
      double total = is_counted ? 0.0 : kNan;
      for (int64_t k = 0; is_counted && k < depth; ++k)
        total += a.get(document, head, i, k) * b.get(document, head / group, k, j);
      y.put(document, head, i, j, total);
    });
  }

  std::map<const HostTensor*, Elements> all_;
};

}  // namespace

bool run_on_host(const std::vector<HostOp>& ops, const std::vector<const HostTensor*>& tensors,
                 const std::map<int64_t, void*>& memory) {
  Run run(tensors, memory);
  return std::all_of(ops.begin(), ops.end(), [&](const HostOp& op) { return run.run(op); });
}

}  // namespace tessera::testing

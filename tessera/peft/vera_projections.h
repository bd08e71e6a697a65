// The random matrices that all VeRA layers of a model share (Kopiczko et al., "VeRA: Vector-based Random
// Matrix Adaptation", arXiv 2310.11454, section 3.1).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::peft {

// A, [rank, in], and B, [out, rank]. A layer uses the first columns of A and the first rows of B, in the
// order in which files of the model's family hold the layer's outputs. They are no parameters: each process
// has all of them, and parts of them in the forms that its layers multiply by. Safe to use from several
// threads.
class VeraProjections {
 public:
  // `in` and `out` are the largest sizes of the layers. Unless set() gives them, the values are those that
  // PEFT makes of the seed (projection_prng_key): Kaiming-uniform numbers of LibTorch's generator on the
  // host, first A and then B, each uniform within sqrt(6 / <its columns>). They are made when they are first
  // used.
  VeraProjections(int64_t rank, int64_t in, int64_t out, uint64_t seed);

  // Takes the values of an adapter's file: float32 on the host, [rank, >= in] and [>= out, rank]. Called
  // before any use.
  void set(at::Tensor a, at::Tensor b);

  int64_t rank() const { return rank_; }
  int64_t in() const { return in_; }
  int64_t out() const { return out_; }

  // Return the whole matrices, in float32 on the host.
  const at::Tensor& a() const;
  const at::Tensor& b() const;

  // Runs of rows as (begin, size).
  using Runs = std::vector<std::pair<int64_t, int64_t>>;
  // Return `count` columns of A from `first` on, and these rows of B, as dense tensors with the options'
  // device and dtype. They are kept, so later calls cost nothing.
  at::Tensor columns_of_a(int64_t first, int64_t count, const at::TensorOptions& options) const;
  at::Tensor rows_of_b(const Runs& rows, const at::TensorOptions& options) const;

 private:
  void make() const;

  const int64_t rank_, in_, out_;
  const uint64_t seed_;
  mutable std::mutex mutex_;
  mutable at::Tensor a_, b_;                        // undefined until they are made or set
  using Form = std::tuple<int8_t, int8_t, int8_t>;  // dtype, kind and number of the device
  mutable std::map<std::pair<Runs, Form>, at::Tensor> parts_of_a_, parts_of_b_;
};

}  // namespace tessera::peft

#include "tessera/ops/kernels/tile_gemm.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include <omp.h>

#include "tessera/core/huge_pages.h"
#include "tessera/core/round_up.h"
#include "tessera/ops/kernels/tile_multiply.h"

namespace tessera::ops::kernels {
namespace {

// Elements of the common operand that are packed at a time.
constexpr int64_t kCommonElements = int64_t{3} << 20;
// What is multiplied with each other stays in the second-level cache, or comes into it at the speed at which
// it is used. bf16 is used fast: groups of panels of both operands lie in the cache. The planes of floats are
// used slowly, but take a lot of room: one operand lies in the cache and the other passes panel by panel.
template <class T>
constexpr bool kIsSplit = kPlanes<T> == 3;
template <class T>
constexpr int64_t kOwnBytes = (kIsSplit<T> ? int64_t{900} : 700) << 10;
template <class T>
constexpr int64_t kGroupBytes = kIsSplit<T> ? 1 : int64_t{700} << 10;
// The depth that is summed before C is written.
template <class T>
constexpr int64_t kMaxDepth = kIsSplit<T> ? 768 : 3072;
// Work for one more thread.
constexpr int64_t kFlopsPerThread = int64_t{1} << 22;

// Memory of a thread for packed operands, kept for its next product.
class Scratch {
 public:
  char* of_size(int64_t bytes) {
    if (bytes > bytes_) {
      memory_.reset();
      constexpr int64_t kHugePage = int64_t{2} << 20;
      const int64_t alignment = bytes >= kHugePage ? kHugePage : 64;
      bytes_ = round_up(bytes, alignment);
      memory_.reset(static_cast<char*>(
          std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(bytes_))));
      if (memory_ == nullptr) {
        bytes_ = 0;
        throw std::bad_alloc();
      }
      advise_huge_pages(memory_.get(), bytes_);
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  std::unique_ptr<char, Free> memory_;
  int64_t bytes_ = 0;
};

// Parts of equal size, but for the last, in whole units, none above `most`.
int64_t part_size(int64_t size, int64_t most, int64_t unit) {
  most = std::max(most / unit * unit, unit);
  const int64_t parts = (size + most - 1) / most;
  return round_up((size + parts - 1) / parts, unit);
}

struct Range {
  int64_t begin, end;
};
Range share(int64_t size, int64_t part, int64_t parts) {
  return {size * part / parts, size * (part + 1) / parts};
}

// [Note: how the threads share a product]
// The operand with fewer lines is packed by all threads together. Then every thread takes its share of the
// other operand's lines, and packs as many of them at a time as its second-level cache holds beside a panel
// of the first.
template <class T, class Out>
class Product {
 public:
  Product(int64_t m, int64_t n, int64_t k, Lines<T> left, Lines<T> right, float beta, Out* c, int64_t ldc)
      : is_common_left_(m < n),
        common_(m < n ? left : right),
        own_(m < n ? right : left),
        num_common_(std::min(m, n)),
        num_own_(std::max(m, n)),
        depth_(k),
        beta_(beta),
        c_(c),
        ldc_(ldc),
        deep_(part_size(k, kMaxDepth<T>, kTileDepth)),
        common_lines_(part_size(num_common_, kCommonElements / deep_, kPanelLines)) {}

  void run() {
    static thread_local Scratch scratch;
    common_memory_ = scratch.of_size(common_lines_ / kPanelLines * panel_bytes(deep_));
    const double flops =
        2.0 * static_cast<double>(num_common_) * static_cast<double>(num_own_) * static_cast<double>(depth_);
    const int most = omp_in_parallel() ? 1 : omp_get_max_threads();
    const auto threads =
        static_cast<int>(std::clamp(flops / kFlopsPerThread, 1.0, static_cast<double>(most)));
    if (threads == 1) {
      work(0, 1, [] {});
      return;
    }
#pragma omp parallel num_threads(threads)
    {
      work(omp_get_thread_num(), omp_get_num_threads(), [] {
#pragma omp barrier
      });
    }
  }

 private:
  static int64_t panel_bytes(int64_t deep) { return (deep + kTileDepth - 1) / kTileDepth * kBlockBytes<T>; }

  template <class Wait>
  void work(int64_t thread, int64_t threads, const Wait& wait) {
    static thread_local Scratch own_scratch, sum_scratch;
    const TileSession session;
    const int64_t panels = (num_own_ + kPanelLines - 1) / kPanelLines;
    const Range mine = share(panels, thread, threads);
    const int64_t begin = mine.begin * kPanelLines, end = std::min(mine.end * kPanelLines, num_own_);
    const int64_t at_once =
        std::max<int64_t>(1, std::min(kOwnBytes<T> / panel_bytes(deep_), mine.end - mine.begin)) *
        kPanelLines;
    char* own_memory = own_scratch.of_size(at_once / kPanelLines * panel_bytes(deep_));
    // Sums over several parts of the depth are rounded once.
    const bool sums_apart = !std::is_same_v<Out, float> && deep_ < depth_;
    const int64_t sum_stride = is_common_left_ ? round_up(end - begin, kPanelLines) : common_lines_;
    float* sums = nullptr;
    if (sums_apart) {
      sums = reinterpret_cast<float*>(
          sum_scratch.of_size(4 * (is_common_left_ ? common_lines_ : end - begin) * sum_stride));
    }
    for (int64_t line = 0; line < num_common_; line += common_lines_) {
      const int64_t lines = std::min(common_lines_, num_common_ - line);
      for (int64_t depth = 0; depth < depth_; depth += deep_) {
        const int64_t deep = std::min(deep_, depth_ - depth);
        if (line + depth > 0) wait();
        pack_common(line, lines, depth, deep, thread, threads);
        wait();
        const Packed common{common_memory_, lines, panel_bytes(deep)};
        for (int64_t i = begin; i < end; i += at_once) {
          const int64_t count = std::min(at_once, end - i);
          pack_lines(is_common_left_ ? Side::Right : Side::Left,
                     {own_.at(i, depth), own_.stride, own_.is_depth_contiguous}, count, deep, own_memory);
          const Packed own{own_memory, count, panel_bytes(deep)};
          const Packed &left = is_common_left_ ? common : own, &right = is_common_left_ ? own : common;
          const int64_t group =
              is_common_left_ ? own.panels() : std::max<int64_t>(1, kGroupBytes<T> / common.panel_bytes);
          const float factor = depth == 0 ? beta_ : 1;
          if (sums_apart) {
            multiply_packed<T>(left, right, group, depth == 0 ? 0.0f : 1.0f,
                               sums + (i - begin) * (is_common_left_ ? 1 : sum_stride), sum_stride);
          } else {
            multiply_packed<T>(left, right, group, factor, at(line, i), ldc_);
          }
        }
      }
      if (!sums_apart) continue;
      Out* to = at(line, begin);
      const int64_t rows = is_common_left_ ? lines : end - begin,
                    columns = is_common_left_ ? end - begin : lines;
      for (int64_t i = 0; i < rows; ++i) {
        add_sums(sums + i * sum_stride, beta_, to + i * ldc_, columns);
      }
    }
  }

  void pack_common(int64_t line, int64_t lines, int64_t depth, int64_t deep, int64_t thread,
                   int64_t threads) {
    const Range mine = share((lines + kPanelLines - 1) / kPanelLines, thread, threads);
    const int64_t first = mine.begin * kPanelLines, end = std::min(mine.end * kPanelLines, lines);
    if (first < end) {
      pack_lines(is_common_left_ ? Side::Left : Side::Right,
                 {common_.at(line + first, depth), common_.stride, common_.is_depth_contiguous}, end - first,
                 deep, common_memory_ + mine.begin * panel_bytes(deep));
    }
  }

  Out* at(int64_t common_line, int64_t own_line) const {
    return is_common_left_ ? c_ + common_line * ldc_ + own_line : c_ + own_line * ldc_ + common_line;
  }

  bool is_common_left_;
  Lines<T> common_, own_;
  int64_t num_common_, num_own_, depth_;
  float beta_;
  Out* c_;
  int64_t ldc_, deep_, common_lines_;
  char* common_memory_ = nullptr;
};

template <class T, class Out>
void product(int64_t m, int64_t n, int64_t k, Lines<T> left, Lines<T> right, float beta, Out* c,
             int64_t ldc) {
  Product<T, Out>(m, n, k, left, right, beta, c, ldc).run();
}

}  // namespace

void tile_gemm(int64_t m, int64_t n, int64_t k, Lines<float> left, Lines<float> right, float beta, float* c,
               int64_t ldc) {
  product(m, n, k, left, right, beta, c, ldc);
}
void tile_gemm(int64_t m, int64_t n, int64_t k, Lines<Bf16> left, Lines<Bf16> right, float beta, float* c,
               int64_t ldc) {
  product(m, n, k, left, right, beta, c, ldc);
}
void tile_gemm(int64_t m, int64_t n, int64_t k, Lines<Bf16> left, Lines<Bf16> right, float beta, Bf16* c,
               int64_t ldc) {
  product(m, n, k, left, right, beta, c, ldc);
}

}  // namespace tessera::ops::kernels

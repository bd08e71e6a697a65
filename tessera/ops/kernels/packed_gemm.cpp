#include "tessera/ops/kernels/packed_gemm.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>

#include <omp.h>

#include "tessera/core/error.h"
#include "tessera/core/huge_pages.h"
#include "tessera/core/round_up.h"
#include "tessera/core/shared_range.h"

namespace tessera::ops::kernels {
namespace {

// Elements of the common operand that are packed at a time.
constexpr int64_t kCommonElements = int64_t{3} << 20;
// The most bytes of sums that are kept to be rounded later.
constexpr int64_t kSumBytes = int64_t{32} << 20;
// Floating point operations that are worth one more thread.
constexpr int64_t kFlopsPerThread = int64_t{1} << 22;

// Scratch memory of a thread for packed operands, which stays for its next product.
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

struct Scratches {
  Scratch common, own, sums;
};
// Returns the memory of the calling thread. It belongs to the thread that multiplies and not to a scope of
// its caller's.
Scratches& scratches() {
  static thread_local Scratches of_thread;
  return of_thread;
}

// Returns the size of parts that are equal, but for the last, in whole units, and not above `most`.
int64_t part_size(int64_t size, int64_t most, int64_t unit) {
  most = std::max(most / unit * unit, unit);
  const int64_t parts = (size + most - 1) / most;
  return round_up((size + parts - 1) / parts, unit);
}

using Range = SharedRange::Part;
// Returns part `part` of `parts` parts of [0, size).
Range share(int64_t size, int64_t part, int64_t parts) {
  return {size * part / parts, size * (part + 1) / parts};
}

// [Note: how the threads share a product] The operand with fewer lines is the common one: all threads pack it
// together. Then they take lines of the other operand, their own ones, until none are left, and pack at most
// as many of them at a time as the second-level cache holds beside a panel of the common operand. What they
// take becomes less towards the end, so that a thread whose processor others use as well does not keep the
// rest waiting. Two barriers go with each common part: nobody packs over the last part before all threads
// have multiplied by it, and nobody multiplies before all have packed. Threads write rows or columns of C
// that are theirs alone, and the depth is cut by `deep_`, not by the threads, so the order of sums does not
// depend on their number.
template <class T, class Out>
class Product {
 public:
  Product(const Units<T>& units, int64_t m, int64_t n, const Factors<T>& product, const Factors<T>& more,
          float beta, Out* c, int64_t ldc)
      : units_(units),
        is_common_left_(m < n),
        num_common_(std::min(m, n)),
        num_own_(std::max(m, n)),
        common_(operand(product, more, is_common_left_ ? Side::Left : Side::Right)),
        own_(operand(product, more, is_common_left_ ? Side::Right : Side::Left)),
        depth_(product.depth),
        more_depth_(more.depth),
        beta_(beta),
        c_(c),
        ldc_(ldc),
        deep_(part_size(depth_, units.max_depth, depth_unit(product.coded_right))),
        common_lines_(part_size(num_common_, kCommonElements / deep_, kPanelLines)) {}

  void run() {
    TESSERA_ASSERT(num_common_ > 0 && depth_ > 0, "a product of nothing");
    Scratches& scratch = scratches();
    const double flops =
        2.0 * static_cast<double>(num_common_) * static_cast<double>(num_own_) * static_cast<double>(depth_);
    const int most = omp_in_parallel() ? 1 : omp_get_max_threads();
    const auto threads =
        static_cast<int>(std::clamp(flops / kFlopsPerThread, 1.0, static_cast<double>(most)));
    // Sums over several parts of the depth are kept in float32 until the last one, so that they are rounded
    // once.
    if (!std::is_same_v<Out, float> && deep_ < depth_) {
      own_slice_ = part_size(num_own_, kSumBytes / 4 / common_lines_, kPanelLines);
      sums_ = reinterpret_cast<float*>(scratch.sums.of_size(4 * own_slice_ * common_lines_));
    }
    const int64_t panels = panels_of(std::min(own_slice_, num_own_));
    const int64_t largest_panel = panel_bytes(deep_) + panel_bytes(more_depth_);
    own_panels_ = std::clamp<int64_t>(units_.own_bytes / largest_panel, 1, (panels + threads - 1) / threads);
    own_bytes_ = own_panels_ * largest_panel;
    common_memory_ = scratch.common.of_size(common_lines_ / kPanelLines * largest_panel);
    own_memory_ = scratch.own.of_size(own_bytes_ * threads);
    shared_.emplace(0, 0, threads, own_panels_);
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
  struct Operand {
    Side side;
    Lines<T> lines, more_lines;
    const CodedMatrix* coded;  // in place of `lines`
  };
  static Operand operand(const Factors<T>& product, const Factors<T>& more, Side side) {
    if (side == Side::Left) return {side, product.left, more.left, nullptr};
    return {side, product.right, more.right, product.coded_right};
  }
  // A part of the depth: `deep` elements from `first` on, and for the last part the `more` ones that lie
  // elsewhere.
  struct Part {
    int64_t first, deep, more;
    bool is_last;
  };

  // Returns the unit in which the depth is cut: whole blocks of codes, or else tiles.
  static int64_t depth_unit(const CodedMatrix* coded) {
    return coded != nullptr && coded->form.elements % kTileDepth == 0 ? coded->form.elements : kTileDepth;
  }
  int64_t panel_bytes(int64_t depth) const { return blocks_of(depth) * units_.block_bytes; }
  int64_t panel_bytes(const Part& part) const { return panel_bytes(part.deep) + panel_bytes(part.more); }

  Packed pack(const Operand& operand, int64_t line, int64_t count, const Part& part, char* to) const {
    const auto from = [&](const Lines<T>& lines, int64_t depth) {
      return Lines<T>{lines.at(line, depth), lines.stride, lines.is_depth_contiguous};
    };
    const int64_t bytes = panel_bytes(part);
    if (operand.coded != nullptr) {
      pack_coded(operand, line, count, part, to, bytes);
    } else {
      units_.pack(operand.side, from(operand.lines, part.first), count, part.deep, to, bytes);
    }
    if (part.more > 0) {
      units_.pack(operand.side, from(operand.more_lines, 0), count, part.more, to + panel_bytes(part.deep),
                  bytes);
    }
    return {to, count, bytes};
  }

  // Packs lines of a coded operand: expands a few rows of the matrix, which are lines or depths, and packs
  // them from there.
  void pack_coded(const Operand& operand, int64_t line, int64_t count, const Part& part, char* to,
                  int64_t panel_stride) const {
    if constexpr (std::is_same_v<T, F16>) {
      TESSERA_ASSERT(false, "no coded operands beside float16");
    } else {
      constexpr int64_t kRows = 32, kColumns = 256;
      static_assert(kRows == kPanelLines && kRows == kTileDepth && kColumns % kRows == 0);
      alignas(64) T values[kRows * kColumns];
      const bool is_deep = operand.lines.is_depth_contiguous;
      const int64_t rows = is_deep ? count : part.deep, columns = is_deep ? part.deep : count;
      const int64_t first_row = is_deep ? line : part.first, first_column = is_deep ? part.first : line;
      for (int64_t row = 0; row < rows; row += kRows) {
        const int64_t num_rows = std::min(kRows, rows - row);
        for (int64_t column = 0; column < columns; column += kColumns) {
          const int64_t num_columns = std::min(kColumns, columns - column);
          for (int64_t i = 0; i < num_rows; ++i) {
            read_coded_row(*operand.coded, first_row + row + i, first_column + column, num_columns,
                           values + i * kColumns);
          }
          const int64_t panel = (is_deep ? row : column) / kPanelLines,
                        block = (is_deep ? column : row) / kTileDepth;
          units_.pack(operand.side, Lines<T>{values, kColumns, is_deep}, is_deep ? num_rows : num_columns,
                      is_deep ? num_columns : num_rows,
                      to + panel * panel_stride + block * units_.block_bytes, panel_stride);
        }
      }
    }
  }

  // Does the part of one thread. `threads` is the number that there is, which may be less than was asked for.
  template <class Wait>
  void work(int64_t thread, int64_t threads, const Wait& wait) {
    const UnitSession session(units_.isa);
    for (int64_t slice = 0; slice < num_own_; slice += own_slice_) {
      work({slice, std::min(slice + own_slice_, num_own_)}, thread, threads, wait);
    }
  }

  // Multiplies all common lines by the lines of the slice of own lines.
  template <class Wait>
  void work(Range slice, int64_t thread, int64_t threads, const Wait& wait) {
    for (int64_t line = 0; line < num_common_; line += common_lines_) {
      const int64_t lines = std::min(common_lines_, num_common_ - line);
      for (int64_t depth = 0; depth < depth_; depth += deep_) {
        const bool is_last = depth + deep_ >= depth_;
        const Part part{depth, std::min(deep_, depth_ - depth), is_last ? more_depth_ : 0, is_last};
        if (slice.begin + line + depth > 0) wait();
        if (thread == 0) shared_->restart(slice.begin / kPanelLines, panels_of(slice.end));
        const Range packed = lines_of(lines, thread, threads);
        if (packed.begin < packed.end) {
          pack(common_, line + packed.begin, packed.end - packed.begin, part,
               common_memory_ + packed.begin / kPanelLines * panel_bytes(part));
        }
        wait();
        multiply({common_memory_, lines, panel_bytes(part)}, line, slice, part,
                 own_memory_ + thread * own_bytes_);
      }
    }
  }

  // Returns this thread's share of the lines, in whole panels.
  static Range lines_of(int64_t lines, int64_t thread, int64_t threads) {
    const Range panels = share(panels_of(lines), thread, threads);
    return {std::min(panels.begin * kPanelLines, lines), std::min(panels.end * kPanelLines, lines)};
  }

  void multiply(const Packed& common, int64_t line, Range slice, const Part& part, char* memory) {
    for (auto panels = shared_->take(); !panels.is_empty(); panels = shared_->take()) {
      const Range mine{panels.begin * kPanelLines, std::min(panels.end * kPanelLines, slice.end)};
      const Packed own = pack(own_, mine.begin, mine.end - mine.begin, part, memory);
      const Packed &left = is_common_left_ ? common : own, &right = is_common_left_ ? own : common;
      const int64_t group =
          is_common_left_ ? own.panels() : std::max<int64_t>(1, units_.group_bytes / common.panel_bytes);
      if (sums_ == nullptr) {
        const float beta = part.first == 0 ? beta_ : 1;
        if constexpr (std::is_same_v<Out, float>) {
          units_.multiply(left, right, group, beta, at(line, mine.begin), ldc_);
        } else {
          units_.multiply_narrow(left, right, group, beta, at(line, mine.begin), ldc_);
        }
        continue;
      }
      const int64_t stride = is_common_left_ ? own_slice_ : common_lines_;
      float* const sums = sums_ + (mine.begin - slice.begin) * (is_common_left_ ? 1 : stride);
      units_.multiply(left, right, group, part.first == 0 ? 0.0f : 1.0f, sums, stride);
      if constexpr (!std::is_same_v<Out, float>) {
        if (part.is_last) {
          units_.add_sums(sums, stride, beta_, at(line, mine.begin), ldc_, left.lines, right.lines);
        }
      }
    }
  }

  Out* at(int64_t common_line, int64_t own_line) const {
    return is_common_left_ ? c_ + common_line * ldc_ + own_line : c_ + own_line * ldc_ + common_line;
  }

  const Units<T>& units_;
  bool is_common_left_;
  int64_t num_common_, num_own_;  // numbers of lines
  Operand common_, own_;
  int64_t depth_, more_depth_;
  float beta_;
  Out* c_;
  int64_t ldc_, deep_, common_lines_;
  std::optional<SharedRange> shared_;  // the panels of own lines that no thread has taken yet
  // Own lines whose sums are kept at a time; panels that a thread packs at a time, and their bytes.
  int64_t own_slice_ = num_own_, own_panels_ = 0, own_bytes_ = 0;
  char *common_memory_ = nullptr, *own_memory_ = nullptr;
  float* sums_ = nullptr;
};

}  // namespace

#define TESSERA_DEFINE(T, Out)                                                             \
  void packed_gemm(const Units<T>& units, int64_t m, int64_t n, const Factors<T>& product, \
                   const Factors<T>& more, float beta, Out* c, int64_t ldc) {              \
    Product<T, Out>(units, m, n, product, more, beta, c, ldc).run();                       \
  }
TESSERA_DEFINE(float, float)
TESSERA_DEFINE(Bf16, float)
TESSERA_DEFINE(Bf16, Bf16)
TESSERA_DEFINE(F16, float)
TESSERA_DEFINE(F16, F16)
#undef TESSERA_DEFINE

}  // namespace tessera::ops::kernels

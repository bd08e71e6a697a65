// Work that threads share by taking parts of it until none are left.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace tessera {

// A range of whole numbers. What is taken becomes less towards its end, so that a thread whose processor does
// other work as well does not keep the rest waiting. The parts, but not who has which, depend on nothing but
// the numbers given here.
class SharedRange {
 public:
  struct Part {
    int64_t begin, end;
    bool is_empty() const { return begin >= end; }
  };

  // A part has at most `most` numbers.
  SharedRange(int64_t begin, int64_t end, int64_t threads, int64_t most)
      : next_(begin), end_(end), threads_(threads), most_(most) {}

  // Takes the next part for the calling thread; an empty one if none are left.
  Part take() {
    int64_t begin = next_, end = begin;
    do {
      // One thread has no one to wait for; several take a half of an equal share of the rest.
      const int64_t count =
          threads_ == 1 ? most_ : std::clamp<int64_t>((end_ - begin) / (2 * threads_), 1, most_);
      end = std::min(begin + count, end_);
    } while (begin < end && !next_.compare_exchange_weak(begin, end));
    return {begin, end};
  }

  // Begins again. No thread may be in take().
  void restart(int64_t begin, int64_t end) {
    next_ = begin;
    end_ = end;
  }

 private:
  std::atomic<int64_t> next_;
  int64_t end_, threads_, most_;
};

}  // namespace tessera

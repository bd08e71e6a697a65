#include "tessera/comm/fake/fake_backend.h"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "tessera/comm/host/host_backend.h"
#include "tessera/comm/mailbox.h"
#include "tessera/core/error.h"

namespace tessera::comm {
namespace {

// The state that the ranks of one group share.
class FakeGroup {
 public:
  // `nodes` holds the machine of each rank.
  explicit FakeGroup(std::vector<int64_t> nodes)
      : size_(static_cast<int64_t>(nodes.size())),
        nodes_(std::move(nodes)),
        pointers_(size_),
        splits_(size_) {}
  int64_t size() const { return size_; }

  // Publishes this rank's pointer, runs `use` on the pointers of all ranks, and returns when all ranks have
  // done so.
  void exchange(int64_t rank, const void* pointer,
                const std::function<void(const std::vector<const void*>&)>& use) {
    pointers_[rank] = pointer;
    meet();
    use(pointers_);
    meet();
  }

  // Returns when all ranks have come.
  void meet() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t round = round_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return round_ != round; });
    }
  }

  detail::Mailbox& mailbox() { return mailbox_; }

  // Gives the group of the caller's color and the caller's rank in it.
  std::pair<std::shared_ptr<FakeGroup>, int64_t> split(int64_t rank, int64_t color, int64_t key) {
    splits_[rank] = {color, key, rank};
    meet();
    std::vector<Split> members;
    for (const Split& split : splits_) {
      if (split.color == color) members.push_back(split);
    }
    std::sort(members.begin(), members.end(), [](const Split& a, const Split& b) {
      return std::pair(a.key, a.rank) < std::pair(b.key, b.rank);
    });
    if (members.front().rank == rank) {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::vector<int64_t> nodes;
      for (const Split& member : members) nodes.push_back(nodes_[member.rank]);
      groups_[color] = std::make_shared<FakeGroup>(std::move(nodes));
    }
    meet();
    std::shared_ptr<FakeGroup> group;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      group = groups_[color];
    }
    meet();
    const auto self =
        std::find_if(members.begin(), members.end(), [&](const Split& s) { return s.rank == rank; });
    return {group, self - members.begin()};
  }

  std::shared_ptr<char> map_shared(int64_t rank, int64_t num_bytes) {
    if (std::any_of(nodes_.begin(), nodes_.end(), [&](int64_t node) { return node != nodes_[0]; })) {
      return nullptr;
    }
    constexpr size_t kPage = 4096;
    if (rank == 0) {
      const size_t size = (static_cast<size_t>(num_bytes) + kPage - 1) / kPage * kPage;
      mapped_ = std::shared_ptr<char>(static_cast<char*>(std::aligned_alloc(kPage, size)), std::free);
      TESSERA_ASSERT(mapped_ != nullptr, "no memory for the ranks to share");
      std::memset(mapped_.get(), 0, size);
    }
    meet();
    const std::shared_ptr<char> memory = mapped_;
    meet();
    if (rank == 0) mapped_ = nullptr;
    return memory;
  }

 private:
  struct Split {
    int64_t color = 0, key = 0, rank = 0;
  };
  const int64_t size_;
  const std::vector<int64_t> nodes_;
  std::shared_ptr<char> mapped_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t arrived_ = 0, round_ = 0;
  std::vector<const void*> pointers_;
  std::vector<Split> splits_;
  std::map<int64_t, std::shared_ptr<FakeGroup>> groups_;
  detail::Mailbox mailbox_;
};

class FakeTransport : public detail::Transport {
 public:
  FakeTransport(std::shared_ptr<FakeGroup> group, int64_t rank) : group_(std::move(group)), rank_(rank) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return group_->size(); }
  std::string name() const override { return "fake"; }

  void all_gather(void* output, const void* input, const std::vector<int64_t>& num_bytes) override {
    group_->exchange(rank_, input, [&](const auto& inputs) {
      char* target = static_cast<char*>(output);
      for (int64_t r = 0; r < size(); ++r) {
        if (target != inputs[r] && num_bytes[r] > 0) std::memcpy(target, inputs[r], num_bytes[r]);
        target += num_bytes[r];
      }
    });
  }
  void all_to_all(void* output, const void* input, int64_t num_bytes) override {
    group_->exchange(rank_, input, [&](const auto& inputs) {
      for (int64_t r = 0; r < size() && num_bytes > 0; ++r) {
        std::memcpy(static_cast<char*>(output) + r * num_bytes,
                    static_cast<const char*>(inputs[r]) + rank_ * num_bytes, num_bytes);
      }
    });
  }
  void all_to_all_v(void* output, const void* input, const std::vector<int64_t>& output_bytes,
                    const std::vector<int64_t>& input_bytes) override {
    // A rank's input, and the byte of it at which the piece for each rank begins.
    struct Source {
      const char* data;
      std::vector<int64_t> begins;
    };
    Source own{static_cast<const char*>(input), {}};
    int64_t begin = 0;
    for (const int64_t bytes : input_bytes) {
      own.begins.push_back(begin);
      begin += bytes;
    }
    group_->exchange(rank_, &own, [&](const auto& sources) {
      char* target = static_cast<char*>(output);
      for (int64_t r = 0; r < size(); ++r) {
        const auto& source = *static_cast<const Source*>(sources[r]);
        if (output_bytes[r] > 0) std::memcpy(target, source.data + source.begins[rank_], output_bytes[r]);
        target += output_bytes[r];
      }
    });
  }
  void broadcast(void* data, int64_t num_bytes, int64_t root) override {
    group_->exchange(rank_, data, [&](const auto& inputs) {
      if (rank_ != root && num_bytes > 0) std::memcpy(data, inputs[root], num_bytes);
    });
  }
  void barrier() override { group_->meet(); }
  void post(std::shared_ptr<detail::P2pBatch> batch) override { group_->mailbox().post(rank_, batch); }
  std::shared_ptr<char> map_shared(int64_t num_bytes) override {
    return group_->map_shared(rank_, num_bytes);
  }
  std::unique_ptr<detail::Transport> split(int64_t color, int64_t key) override {
    auto [group, rank] = group_->split(rank_, color, key);
    return std::make_unique<FakeTransport>(std::move(group), rank);
  }

 private:
  std::shared_ptr<FakeGroup> group_;
  int64_t rank_;
};

}  // namespace

std::vector<std::unique_ptr<detail::HostBackend>> make_fake_backends(int64_t size, int64_t ranks_per_node) {
  std::vector<int64_t> nodes(size, 0);
  for (int64_t rank = 0; rank < size && ranks_per_node > 0; ++rank) nodes[rank] = rank / ranks_per_node;
  auto group = std::make_shared<FakeGroup>(std::move(nodes));
  std::vector<std::unique_ptr<detail::HostBackend>> backends;
  for (int64_t rank = 0; rank < size; ++rank) {
    backends.push_back(std::make_unique<detail::HostBackend>(std::make_unique<FakeTransport>(group, rank)));
  }
  return backends;
}

std::vector<std::shared_ptr<Communicator>> make_fake_world(int64_t size, int64_t ranks_per_node) {
  if (size == 1) return {Communicator::single()};
  std::vector<std::shared_ptr<Communicator>> world;
  for (auto& backend : make_fake_backends(size, ranks_per_node)) {
    world.push_back(std::make_shared<Communicator>(std::move(backend)));
  }
  return world;
}

void run_fake_ranks(int64_t size, const std::function<void(const std::shared_ptr<Communicator>&)>& body,
                    int64_t ranks_per_node) {
  const auto world = make_fake_world(size, ranks_per_node);
  std::vector<std::exception_ptr> errors(size);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(world[rank]);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

}  // namespace tessera::comm

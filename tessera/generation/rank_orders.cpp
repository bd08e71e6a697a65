#include "tessera/generation/rank_orders.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/comm/flight_recorder.h"
#include "tessera/device/device.h"
#include "tessera/device/host_memory.h"

namespace tessera::generation {

RankOrders::RankOrders(comm::Communicator& world) : group_(world.split(0, world.rank(), "orders")) {
  // Nobody knows when the next request comes.
  group_->set_default_timeout(std::chrono::hours(24 * 365));
}

void RankOrders::tell(const std::string& message) {
  const at::Tensor size = at::full({1}, static_cast<int64_t>(message.size()), on_host(at::kLong));
  const at::Tensor bytes =
      at::from_blob(const_cast<char*>(message.data()), {std::ssize(message)}, on_host(at::kByte)).clone();
  std::vector<std::shared_ptr<comm::Work>> sends;
  for (int64_t rank = 1; rank < group_->size(); ++rank) {
    sends.push_back(group_->send(size, rank, 0, /*async_op=*/true));
    if (!message.empty()) sends.push_back(group_->send(bytes, rank, 0, /*async_op=*/true));
  }
  for (const auto& send : sends) send->wait();
}

std::string RankOrders::hear() {
  const comm::flight::PatienceScope patience;
  const at::Tensor size = at::empty({1}, on_host(at::kLong));
  group_->recv(size, 0);
  const at::Tensor bytes = at::empty({size.item<int64_t>()}, on_host(at::kByte));
  if (bytes.numel() > 0) group_->recv(bytes, 0);
  const auto read = host_span<const uint8_t>(bytes);
  return {read.begin(), read.end()};
}

int64_t RankOrders::least_of(int64_t value) {
  for (const std::string& each : group_->all_gather_string(std::to_string(value)))
    value = std::min<int64_t>(value, std::stoll(each));
  return value;
}

bool RankOrders::is_same(const std::string& text) {
  return std::ranges::all_of(group_->all_gather_string(text),
                             [&](const std::string& each) { return each == text; });
}

}  // namespace tessera::generation

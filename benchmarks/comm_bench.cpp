// Measures the speed of collectives between ranks on one machine, through the transport and through shared
// memory, one after the other in one run: mpirun -n 2 --bind-to none build/release/comm_bench
#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/comm/bootstrap.h"
#include "tessera/core/error.h"
#include "tessera/core/median.h"
#include "tessera/core/process_stats.h"

namespace {

using tessera::comm::Communicator;

struct Spread {
  double best = 0, median = 0;
};

Spread seconds(Communicator& group, int rounds, const std::function<void()>& operation) {
  std::vector<double> times;
  for (int round = 0; round <= rounds; ++round) {
    group.barrier();
    const tessera::Timer timer;
    operation();
    if (round > 0) times.push_back(timer.seconds());
  }
  return {*std::min_element(times.begin(), times.end()), tessera::median(times)};
}

void run(Communicator& world) {
  const auto transport = world.split(0, world.rank(), "transport");
  const auto node = world.split(0, world.rank(), "node");
  transport->set_shared_memory(false);
  const bool is_first = world.rank() == 0;
  if (is_first) {
    std::printf("%lld ranks, float32; size: of the whole tensor; GB/s = size / time, best (median)\n",
                static_cast<long long>(world.size()));
    std::printf("%-16s %6s  %20s  %20s  %7s\n", "operation", "MB", "transport", "shared memory", "ratio");
  }
  for (const int64_t megabytes : {1, 16, 64}) {
    const int64_t numel = megabytes * 1'000'000 / 4 / world.size() * world.size();
    const int64_t bytes = numel * 4;
    const at::Tensor whole = at::ones({numel}), piece = at::ones({numel / world.size()});
    const at::Tensor slot = node->shared_bytes(bytes);
    const int rounds = megabytes > 16 ? 15 : 40;
    const auto report = [&](const char* name, const std::function<void(Communicator&)>& operation,
                            const std::function<void()>& own_way = nullptr) {
      Spread by_transport, by_memory;
      // The two take turns, so that other load on the machine meets both.
      for (int turn = 0; turn < 3; ++turn) {
        const Spread a = seconds(*transport, rounds / 3, [&] { operation(*transport); });
        const Spread b = seconds(*node, rounds / 3, [&] {
          if (own_way) {
            own_way();
          } else {
            operation(*node);
          }
        });
        if (turn == 0 || a.best < by_transport.best) by_transport = a;
        if (turn == 0 || b.best < by_memory.best) by_memory = b;
      }
      const auto rate = [&](double time) { return static_cast<double>(bytes) / time * 1e-9; };
      if (is_first) {
        std::printf("%-16s %6lld  %11.2f (%6.2f)  %11.2f (%6.2f)  %6.2fx\n", name,
                    static_cast<long long>(megabytes), rate(by_transport.best), rate(by_transport.median),
                    rate(by_memory.best), rate(by_memory.median), by_transport.best / by_memory.best);
      }
    };
    const auto gather = [&](Communicator& group) { group.all_gather_single(whole, piece); };
    report("all_gather", gather);
    // The sharded model gathers in this way: every rank writes its part of one copy that all ranks read.
    const int64_t offset = world.rank() * static_cast<int64_t>(piece.nbytes());
    report("gather in place", gather, [&] {
      node->write_shared(bytes, [&] {
        slot.narrow(0, offset, static_cast<int64_t>(piece.nbytes())).copy_(piece.view(at::kByte));
      });
    });
    report("reduce_scatter", [&](Communicator& group) { group.reduce_scatter_single(piece, whole); });
    report("all_reduce", [&](Communicator& group) { group.all_reduce(whole); });
    report("broadcast", [&](Communicator& group) { group.broadcast(whole, 0); });
    const at::Tensor other = at::ones({numel});
    report("all_to_all", [&](Communicator& group) { group.all_to_all_single(other, whole); });
    // Every rank sends the whole tensor to the next rank; messages go over the transport in either case.
    const int64_t next = (world.rank() + 1) % world.size(),
                  before = (world.rank() + world.size() - 1) % world.size();
    report("ring of messages", [&](Communicator& group) {
      group.batch_p2p({tessera::comm::isend(whole, next), tessera::comm::irecv(other, before)});
    });
    std::vector<int64_t> to_go(static_cast<size_t>(world.size()), 0), to_come = to_go;
    to_go[static_cast<size_t>(next)] = to_come[static_cast<size_t>(before)] = numel;
    report("ring as exchange",
           [&](Communicator& group) { group.all_to_all_v(other, whole, to_come, to_go); });
    whole.fill_(1.0);
  }
  const at::Tensor small = at::ones({16}), arrived = at::ones({16});
  const auto report_latency = [&](const char* name, const std::function<void(Communicator&)>& operation) {
    const Spread a = seconds(*transport, 200, [&] { operation(*transport); });
    const Spread b = seconds(*node, 200, [&] { operation(*node); });
    if (is_first) {
      std::printf("%-16s %6s  %8.1f us (%6.1f)  %8.1f us (%6.1f)  %6.2fx\n", name, "64 B", a.best * 1e6,
                  a.median * 1e6, b.best * 1e6, b.median * 1e6, a.best / b.best);
    }
  };
  report_latency("all_reduce", [&](Communicator& group) { group.all_reduce(small); });
  report_latency("there and back", [&](Communicator& group) {
    if (world.rank() == 0) {
      group.send(small, 1);
      group.recv(arrived, 1);
    } else if (world.rank() == 1) {
      group.recv(arrived, 0);
      group.send(small, 0);
    }
  });
}

}  // namespace

int main() {
  try {
    const tessera::comm::Bootstrap bootstrap;
    run(*bootstrap.world());
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    tessera::comm::Bootstrap::abort(1);
  }
  return 0;
}

#include "tessera/comm/mpi/mpi_transport.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "tessera/comm/mpi/byte_block.h"
#include "tessera/comm/mpi/message_thread.h"
#include "tessera/comm/mpi/mpi_check.h"
#include "tessera/comm/mpi/shared_file.h"
#include "tessera/core/environment.h"

namespace tessera::comm::detail {
namespace {

class MpiTransport : public Transport {
 public:
  // `machine` is a number that all ranks of a machine have, and no others.
  MpiTransport(MPI_Comm comm, int machine, std::shared_ptr<MessageThread> messages)
      : comm_(comm), machine_(machine), messages_(std::move(messages)) {
    TESSERA_MPI_CHECK(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    TESSERA_MPI_CHECK(MPI_Comm_rank(comm_, &rank_));
    TESSERA_MPI_CHECK(MPI_Comm_size(comm_, &size_));
    // One reduction gives both the least and, negated, the greatest number.
    const int own[2] = {machine, -machine};
    int least[2] = {};
    TESSERA_MPI_CHECK(MPI_Allreduce(own, least, 2, MPI_INT, MPI_MIN, comm_));
    is_on_one_machine_ = least[0] == -least[1];
  }
  // The communicator is not freed: MPI_Comm_free is collective, and a rank that ends on an error must not
  // wait for its peers. MPI_Finalize releases it.
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  std::string name() const override { return "mpi"; }

  void all_gather(void* output, const void* input, const std::vector<int64_t>& num_bytes) override {
    char* const own = static_cast<char*>(output) +
                      std::accumulate(num_bytes.begin(), num_bytes.begin() + rank_, int64_t{0});
    const int64_t own_bytes = num_bytes[rank_];
    const void* const source = own == input ? MPI_IN_PLACE : input;
    if (std::all_of(num_bytes.begin(), num_bytes.end(), [&](int64_t n) { return n == own_bytes; })) {
      with_bytes(own_bytes, [&](int count, MPI_Datatype type) {
        TESSERA_MPI_CHECK(MPI_Allgather(source, count, type, output, count, type, comm_));
      });
      return;
    }
    const int64_t total = std::accumulate(num_bytes.begin(), num_bytes.end(), int64_t{0});
    if (total <= std::numeric_limits<int>::max()) {
      std::vector<int> counts(num_bytes.begin(), num_bytes.end()), offsets(size_, 0);
      std::partial_sum(counts.begin(), counts.end() - 1, offsets.begin() + 1);
      TESSERA_MPI_CHECK(MPI_Allgatherv(source, counts[rank_], MPI_BYTE, output, counts.data(), offsets.data(),
                                       MPI_BYTE, comm_));
      return;
    }
    // MPI_Allgatherv takes ints, which do not hold these offsets: every rank broadcasts its piece instead.
    if (own != input && own_bytes > 0) std::memmove(own, input, static_cast<size_t>(own_bytes));
    char* piece = static_cast<char*>(output);
    for (int rank = 0; rank < size_; ++rank) {
      broadcast(piece, num_bytes[rank], rank);
      piece += num_bytes[rank];
    }
  }
  void all_to_all(void* output, const void* input, int64_t num_bytes) override {
    with_bytes(num_bytes, [&](int count, MPI_Datatype type) {
      TESSERA_MPI_CHECK(MPI_Alltoall(input, count, type, output, count, type, comm_));
    });
  }
  void all_to_all_v(void* output, const void* input, const std::vector<int64_t>& output_bytes,
                    const std::vector<int64_t>& input_bytes) override {
    std::vector<MPI_Request> requests;
    const auto add = [&](int64_t num_bytes, const auto& start) {
      if (num_bytes == 0) return;
      requests.push_back(MPI_REQUEST_NULL);
      with_bytes(num_bytes, start);
    };
    char* target = static_cast<char*>(output);
    for (int peer = 0; peer < size_; ++peer) {
      add(output_bytes[peer], [&](int count, MPI_Datatype type) {
        TESSERA_MPI_CHECK(MPI_Irecv(target, count, type, peer, P2pOp::kTagLimit, comm_, &requests.back()));
      });
      target += output_bytes[peer];
    }
    const char* source = static_cast<const char*>(input);
    for (int peer = 0; peer < size_; ++peer) {
      add(input_bytes[peer], [&](int count, MPI_Datatype type) {
        TESSERA_MPI_CHECK(MPI_Isend(source, count, type, peer, P2pOp::kTagLimit, comm_, &requests.back()));
      });
      source += input_bytes[peer];
    }
    TESSERA_MPI_CHECK(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
  }
  void broadcast(void* data, int64_t num_bytes, int64_t root) override {
    with_bytes(num_bytes, [&](int count, MPI_Datatype type) {
      TESSERA_MPI_CHECK(MPI_Bcast(data, count, type, static_cast<int>(root), comm_));
    });
  }
  void barrier() override { TESSERA_MPI_CHECK(MPI_Barrier(comm_)); }
  void post(std::shared_ptr<P2pBatch> batch) override { messages_->post(comm_, std::move(batch)); }
  std::shared_ptr<char> map_shared(int64_t num_bytes) override {
    const bool is_wanted = environment::get_flag("TESSERA_SHARED_MEMORY").value_or(true);
    if (!is_on_one_machine_) return nullptr;
    SharedFile file;
    SharedFileOffer offer;
    if (rank_ == 0) offer = file.create(num_bytes);
    TESSERA_MPI_CHECK(MPI_Bcast(&offer, sizeof offer, MPI_BYTE, 0, comm_));
    if (rank_ != 0) file.open(offer, num_bytes);
    // If one rank cannot map the file, or its environment forbids it, all ranks do without.
    const int own = file.memory() != nullptr && is_wanted ? 1 : 0;
    int all = 0;
    TESSERA_MPI_CHECK(MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_MIN, comm_));
    return all == 1 ? file.memory() : nullptr;
  }
  std::unique_ptr<Transport> split(int64_t color, int64_t key) override {
    MPI_Comm part = MPI_COMM_NULL;
    TESSERA_MPI_CHECK(MPI_Comm_split(comm_, static_cast<int>(color), static_cast<int>(key), &part));
    return std::make_unique<MpiTransport>(part, machine_, messages_);
  }

 private:
  MPI_Comm comm_;
  int machine_, rank_ = 0, size_ = 1;
  bool is_on_one_machine_ = false;
  std::shared_ptr<MessageThread> messages_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_world_transport() {
  MPI_Comm world = MPI_COMM_NULL;
  TESSERA_MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &world));
  MPI_Comm machine = MPI_COMM_NULL;
  TESSERA_MPI_CHECK(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine));
  // A machine's number is the rank of the first of its ranks.
  int name = 0;
  TESSERA_MPI_CHECK(MPI_Comm_rank(world, &name));
  TESSERA_MPI_CHECK(MPI_Bcast(&name, 1, MPI_INT, 0, machine));
  TESSERA_MPI_CHECK(MPI_Comm_free(&machine));
  return std::make_unique<MpiTransport>(world, name, std::make_shared<MessageThread>());
}

}  // namespace tessera::comm::detail

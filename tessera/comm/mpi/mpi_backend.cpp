#include "tessera/comm/mpi/mpi_backend.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "tessera/comm/mpi/mpi_check.h"
#include "tessera/comm/mpi/shared_file.h"
#include "tessera/core/environment.h"

namespace tessera::comm::detail {
namespace {

// `num_bytes` bytes as one element, so that messages above 2 GiB need no counts above INT_MAX.
class ByteBlock {
 public:
  explicit ByteBlock(int64_t num_bytes) {
    constexpr int64_t kChunk = int64_t{1} << 20;
    const int64_t num_chunks = num_bytes / kChunk;
    TESSERA_MPI_CHECK(MPI_Type_contiguous(static_cast<int>(kChunk), MPI_BYTE, &chunk_));
    int lengths[2] = {static_cast<int>(num_chunks), static_cast<int>(num_bytes % kChunk)};
    MPI_Aint offsets[2] = {0, static_cast<MPI_Aint>(num_chunks * kChunk)};
    MPI_Datatype types[2] = {chunk_, MPI_BYTE};
    TESSERA_MPI_CHECK(MPI_Type_create_struct(2, lengths, offsets, types, &type_));
    TESSERA_MPI_CHECK(MPI_Type_commit(&type_));
  }
  ~ByteBlock() {
    MPI_Type_free(&type_);
    MPI_Type_free(&chunk_);
  }
  ByteBlock(const ByteBlock&) = delete;
  ByteBlock& operator=(const ByteBlock&) = delete;
  MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype chunk_ = MPI_DATATYPE_NULL, type_ = MPI_DATATYPE_NULL;
};

// Calls f(count, type) with plain bytes where an int holds their number, else with one block.
template <class F>
void with_bytes(int64_t num_bytes, F f) {
  constexpr int64_t kPlainLimit = int64_t{1} << 28;
  if (num_bytes <= kPlainLimit) {
    f(static_cast<int>(num_bytes), MPI_BYTE);
  } else {
    const ByteBlock block(num_bytes);
    f(1, block.type());
  }
}

class MpiBackend : public Backend {
 public:
  explicit MpiBackend(MPI_Comm comm) : comm_(comm) {
    TESSERA_MPI_CHECK(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    TESSERA_MPI_CHECK(MPI_Comm_rank(comm_, &rank_));
    TESSERA_MPI_CHECK(MPI_Comm_size(comm_, &size_));
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
    // Offsets that an int does not hold.
    if (own != input) std::memmove(own, input, static_cast<size_t>(own_bytes));
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
  void broadcast(void* data, int64_t num_bytes, int64_t root) override {
    with_bytes(num_bytes, [&](int count, MPI_Datatype type) {
      TESSERA_MPI_CHECK(MPI_Bcast(data, count, type, static_cast<int>(root), comm_));
    });
  }
  void barrier() override { TESSERA_MPI_CHECK(MPI_Barrier(comm_)); }
  void send(const void* data, int64_t num_bytes, int64_t destination, int tag) override {
    with_bytes(num_bytes, [&](int count, MPI_Datatype type) {
      TESSERA_MPI_CHECK(MPI_Send(data, count, type, static_cast<int>(destination), tag, comm_));
    });
  }
  void recv(void* data, int64_t num_bytes, int64_t source, int tag) override {
    with_bytes(num_bytes, [&](int count, MPI_Datatype type) {
      TESSERA_MPI_CHECK(MPI_Recv(data, count, type, static_cast<int>(source), tag, comm_, MPI_STATUS_IGNORE));
    });
  }
  std::shared_ptr<char> map_shared(int64_t num_bytes) override {
    const bool is_wanted = environment::get_flag("TESSERA_SHARED_MEMORY").value_or(true);
    if (!is_on_one_node()) return nullptr;
    SharedFile file;
    SharedFileOffer offer;
    if (rank_ == 0) offer = file.create(num_bytes);
    TESSERA_MPI_CHECK(MPI_Bcast(&offer, sizeof offer, MPI_BYTE, 0, comm_));
    if (rank_ != 0) file.open(offer, num_bytes);
    const int own = file.memory() != nullptr && is_wanted ? 1 : 0;
    int all = 0;
    TESSERA_MPI_CHECK(MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_MIN, comm_));
    return all == 1 ? file.memory() : nullptr;
  }
  std::unique_ptr<Backend> split(int64_t color, int64_t key) override {
    MPI_Comm part = MPI_COMM_NULL;
    TESSERA_MPI_CHECK(MPI_Comm_split(comm_, static_cast<int>(color), static_cast<int>(key), &part));
    return std::make_unique<MpiBackend>(part);
  }

 private:
  // The same on every rank: a group lies on one machine when one rank finds all others on its own.
  bool is_on_one_node() const {
    MPI_Comm node = MPI_COMM_NULL;
    TESSERA_MPI_CHECK(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node));
    int node_size = 0;
    TESSERA_MPI_CHECK(MPI_Comm_size(node, &node_size));
    TESSERA_MPI_CHECK(MPI_Comm_free(&node));
    return node_size == size_;
  }

  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
};

}  // namespace

std::unique_ptr<Backend> make_mpi_world_backend() {
  MPI_Comm world = MPI_COMM_NULL;
  TESSERA_MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &world));
  return std::make_unique<MpiBackend>(world);
}

}  // namespace tessera::comm::detail

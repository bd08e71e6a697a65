#include "tessera/parallel/fsdp/unit_param.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "tessera/core/error.h"
#include "tessera/device/memory_scope.h"
#include "tessera/parallel/fsdp/hollow.h"

namespace tessera::parallel::detail {
namespace {

// Returns the piece of each rank along the last axis, as a run of elements of what the axes before it leave
// to this rank. fully_shard() cuts on dim 0, so each piece is one run.
std::vector<comm::ElementRange> pieces_by_layout(const ShardedParameter& owned, int64_t num_ranks) {
  const size_t last = owned.layout.axes().size() - 1;
  const Box whole =
      owned.layout.first_axes(last).local_box({owned.coordinates.begin(), owned.coordinates.end() - 1});
  std::vector<int64_t> coordinates = owned.coordinates;
  std::vector<comm::ElementRange> pieces;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    coordinates[last] = rank;
    const auto runs = contiguous_runs(whole.size, relative_to(whole, owned.layout.local_box(coordinates)));
    TESSERA_ASSERT(runs.size() <= 1, "a tile is one run of what is gathered");
    pieces.push_back(runs.empty() ? comm::ElementRange{}
                                  : comm::ElementRange{runs[0].global_begin, runs[0].count});
  }
  return pieces;
}

// Replaces the memory of the tensor's storage in place, so everything that shares the storage sees the new
// memory.
void set_memory(const at::Tensor& tensor, at::DataPtr memory, int64_t num_bytes) {
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(std::move(memory));
  storage->set_nbytes(num_bytes);
}

}  // namespace

UnitParam::UnitParam(const at::Tensor& parameter, ShardedParameter& owned,
                     const comm::Communicator& shard_group, int64_t num_secondary, const std::string& unit)
    : owned(&owned),
      parameter(parameter),
      pieces(pieces_by_layout(owned, shard_group.size())),
      secondary_pieces(comm::even_pieces(parameter.numel(), num_secondary)),
      is_tile(owned.tile.is_same(parameter)) {
  if (is_tile) return;
  whole = parameter.detach();
  hollow = make_hollow(whole, owned.name, unit);
  hollow_gradient = make_hollow(whole, owned.name, unit, /*is_gradient=*/true);
  put_in_place(parameter, hollow);
}

int64_t UnitParam::num_bytes() const {
  return parameter.numel() * static_cast<int64_t>(parameter.element_size());
}

std::optional<ops::RowCodes> UnitParam::make_codes(int bits, at::ScalarType type) const {
  if (parameter.dim() < 2 || parameter.numel() == 0 || !at::isFloatingType(type)) return std::nullopt;
  const int64_t row_numel = parameter.numel() / parameter.size(0);
  const ops::RowCodes codes(bits, row_numel);
  const int64_t plain = row_numel * static_cast<int64_t>(c10::elementSize(type));
  return codes.num_bytes(row_numel) < plain ? std::optional(codes) : std::nullopt;
}

int64_t UnitParam::gathered_bytes(ShardKind kind, int64_t numel) const {
  const ops::RowCodes* const codes = codes_of(kind);
  return codes != nullptr ? codes->num_bytes(numel) : numel * static_cast<int64_t>(parameter.element_size());
}

at::Tensor UnitParam::shard_of(ShardKind kind) const {
  return kind == ShardKind::Primary ? owned->tile.detach() : secondary;
}

at::Tensor UnitParam::allocate() {
  const MemoryScope memory(MemoryCategory::GatheredParameters);
  const c10::DeviceGuard device(whole.device());
  set_memory(whole, whole.storage().allocator()->allocate(num_bytes()), num_bytes());
  return at::empty({0}, whole.options().requires_grad(false)).set_(whole.storage(), 0, whole.sizes());
}

void UnitParam::attach(const at::Tensor& bytes, int64_t offset) {
  // Each parameter's storage keeps the slot's memory alive by itself: the context of the pointer is a
  // reference.
  auto* const owner = new at::Tensor(bytes);
  set_memory(whole,
             at::DataPtr(
                 static_cast<char*>(bytes.mutable_data_ptr()) + offset, owner,
                 [](void* held) { delete static_cast<at::Tensor*>(held); }, bytes.device()),
             num_bytes());
}

void UnitParam::show() { put_in_place(parameter, whole); }

void UnitParam::free() {
  set_memory(whole, at::DataPtr(nullptr, whole.device()), 0);
  put_in_place(parameter, hollow);
}

}  // namespace tessera::parallel::detail

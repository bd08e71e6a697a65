#include "tessera/parallel/fsdp/gather.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>

#include "tessera/core/error.h"
#include "tessera/core/round_up.h"
#include "tessera/device/memory_scope.h"
#include "tessera/ops/cast.h"

namespace tessera::parallel::detail {
namespace {

constexpr int64_t kLine = 64;  // bytes of a cache line

// Byte offsets at which the parameters that are gathered begin when they lie one behind the other, each on a
// cache line.
struct Places {
  std::vector<int64_t> offsets;
  int64_t num_bytes = 0;

  template <class BytesOf>
  Places(const std::vector<UnitParam>& params, BytesOf&& bytes_of) {
    for (const UnitParam& param : params) {
      offsets.push_back(num_bytes);
      if (!param.is_tile) num_bytes += round_up(bytes_of(param), kLine);
    }
  }
};

// A shard of this rank on its way to `place`, in the type of the compute.
struct Placed {
  at::Tensor place, shard;
  const ops::RowCodes* codes;  // null: sent as it is
};

// Views the bytes from `offset` on as a tensor of the type of `like` and of shape `shape`.
at::Tensor at_offset(const at::Tensor& bytes, int64_t offset, const at::Tensor& like, at::IntArrayRef shape) {
  const int64_t num_bytes = c10::multiply_integers(shape) * static_cast<int64_t>(like.element_size());
  return bytes.narrow(0, offset, num_bytes).view(like.scalar_type()).view(shape);
}

// [Note: who may touch a slot, and when]
// A slot goes from unit to unit, so a writer must come after the readers of the unit before it.
//  - On the host, a slot is written by the ranks together (Communicator::write_shared). No rank's write
//    begins before all ranks have submitted the operation, and each submits it after it has given the slot
//    back. All ranks take and give back in the same order, so they mean the same slot.
//  - On a device, take() lets the current stream wait for the event that the last reader has left in the
//    slot, and the casts and the all-gather are submitted behind it. finish() lets the current stream wait
//    for them before the unit reads.
//  - With offloaded tiles, the copies run on the copy stream instead. is_due_ puts them behind the current
//    stream (the optimizer's update of the tiles, the last reader of the slot), and is_here_ puts the unit's
//    compute behind them.
//
// Gathers into a slot, which becomes the storage of `whole`.
class SlotGather : public Gather {
 public:
  SlotGather(std::vector<UnitParam>& params, ShardKind kind, Places places, GatherSlots& slots,
             GatherSlot slot, const std::string& hint)
      : params_(params),
        places_(std::move(places)),
        slots_(slots),
        slot_(std::move(slot)),
        is_due_(slots.group().device()),
        is_here_(slots.group().device()) {
    const MemoryScope memory(MemoryCategory::Communication);
    work_ = slots.are_shared() ? write_shards(kind, hint) : gather_shards(kind, hint);
  }

  void finish() override {
    wait();
    for (size_t i = 0; i < params_.size(); ++i) {
      if (!params_[i].is_tile) params_[i].attach(slot_->bytes, places_.offsets[i]);
    }
  }
  void free() override {
    if (work_ != nullptr) wait();
    slots_.give_back(std::move(*slot_));
    slot_.reset();
  }
  bool can_free_one() const override { return false; }

 private:
  void wait() {
    work_->wait();
    work_ = nullptr;
    is_here_.wait();
  }
  // Pairs this rank's shards with their places in the slot.
  std::vector<Placed> shards(ShardKind kind) const {
    std::vector<Placed> shards;
    for (size_t i = 0; i < params_.size(); ++i) {
      const UnitParam& param = params_[i];
      if (param.is_tile) continue;
      const at::Tensor shard = param.shard_of(kind);
      if (shard.numel() == 0) continue;
      const int64_t begin = param.pieces_of(kind)[slots_.group().rank()].begin *
                            static_cast<int64_t>(param.parameter.element_size());
      shards.push_back({at_offset(slot_->bytes, places_.offsets[i] + begin, param.whole, shard.sizes()),
                        shard, param.codes_of(kind)});
    }
    return shards;
  }
  // Copies the shards to their places and casts them to the compute type. A shard from the host is copied
  // first, and cast on the device. May run on a thread of the communicator (write_shared), whose grad mode is
  // its own.
  static void cast(const std::vector<Placed>& shards) {
    const at::NoGradGuard no_grad;
    for (const auto& [to, from, codes] : shards) {
      if (codes != nullptr) {
        codes->round(to, from);
        continue;
      }
      if (to.device() == from.device()) {
        ops::cast_into(to, from);
        continue;
      }
      const bool is_cast = to.scalar_type() != from.scalar_type();
      const at::Tensor arrived = is_cast ? at::empty(from.sizes(), from.options().device(to.device())) : to;
      arrived.copy_(from, /*non_blocking=*/true);
      if (is_cast) ops::cast_into(to, arrived);
    }
  }

  std::shared_ptr<comm::Work> write_shards(ShardKind kind, const std::string& hint) {
    int64_t num_bytes = 0;
    for (const UnitParam& param : params_) {
      if (!param.is_tile) num_bytes += param.gathered_bytes(kind, param.parameter.numel());
    }
    return slots_.group().write_shared(
        num_bytes, [shards = shards(kind), slot = slot_->bytes] { cast(shards); }, true, {comm::hint(hint)});
  }
  std::shared_ptr<comm::Work> gather_shards(ShardKind kind, const std::string& hint) {
    // The tiles' last update and the slot's last reader are on the current stream, so the copy stream waits
    // for it.
    std::optional<c10::StreamGuard> beside;
    if (kind == ShardKind::Primary && std::ranges::any_of(params_, &UnitParam::is_offloaded)) {
      is_due_.record();
      beside.emplace(slots_.copy_stream());
      is_due_.wait();
    }
    cast(shards(kind));
    std::vector<comm::GatherPart> parts;
    for (size_t i = 0; i < params_.size(); ++i) {
      const UnitParam& param = params_[i];
      if (param.is_tile || param.parameter.numel() == 0) continue;
      // The all-gather is in place: this rank's input is its piece of the output, where cast() has put it.
      comm::GatherPart part;
      part.output = at_offset(slot_->bytes, places_.offsets[i], param.whole, {param.parameter.numel()});
      const auto& pieces = param.pieces_of(kind);
      int64_t begin = 0;
      for (const comm::ElementRange& piece : pieces) {
        TESSERA_ASSERT(piece.count == 0 || piece.begin == begin, "ranks hold rows in their order");
        begin += piece.count;
        part.counts.push_back(piece.count);
      }
      const comm::ElementRange& own = pieces[slots_.group().rank()];
      part.input = part.output.narrow(0, own.begin, own.count);
      parts.push_back(std::move(part));
    }
    auto work = slots_.group().all_gather_parts(std::move(parts), true, {comm::hint(hint)});
    // In a group of one rank nothing else orders the copies before the unit's compute.
    if (beside) is_here_.record();
    return work;
  }

  std::vector<UnitParam>& params_;
  const Places places_;
  GatherSlots& slots_;
  std::optional<GatherSlot> slot_;
  DeviceEvent is_due_, is_here_;  // order the copies from the host
  std::shared_ptr<comm::Work> work_;
};

// Gathers through a buffer, in which the shards of each rank lie in one part, one part behind the other. A
// shard that is sent in codes lies there in codes, and every rank decodes all of them, its own too.
class CopyGather : public Gather {
 public:
  CopyGather(std::vector<UnitParam>& params, ShardKind kind, comm::Communicator& group,
             const std::string& hint)
      : params_(params), kind_(kind) {
    const MemoryScope memory(MemoryCategory::Communication);
    std::vector<int64_t> counts;
    int64_t num_bytes = 0;
    for (int64_t rank = 0; rank < group.size(); ++rank) {
      parts_.emplace_back(params, [kind, rank](const UnitParam& param) {
        return param.gathered_bytes(kind, param.pieces_of(kind)[rank].count);
      });
      counts.push_back(parts_.back().num_bytes);
      for (int64_t& offset : parts_.back().offsets) offset += num_bytes;
      num_bytes += counts.back();
    }
    const at::Device device = params.front().whole.device();
    buffer_ = at::empty({num_bytes}, at::TensorOptions().dtype(at::kByte).device(device));
    const Places& own = parts_[group.rank()];
    for (size_t i = 0; i < params.size(); ++i) {
      if (params[i].is_tile) continue;
      const at::Tensor shard = params[i].shard_of(kind).to(device, /*non_blocking=*/true);
      if (shard.numel() == 0) continue;
      if (const ops::RowCodes* const codes = params[i].codes_of(kind)) {
        codes->encode(buffer_.narrow(0, own.offsets[i], codes->num_bytes(shard.numel())), shard);
      } else {
        ops::cast_into(at_offset(buffer_, own.offsets[i], params[i].whole, shard.sizes()), shard);
      }
    }
    // The input is this rank's part of the output, so nothing is copied for it.
    const at::Tensor input = buffer_.narrow(0, own.offsets.front(), counts[group.rank()]);
    work_ = group.all_gather_v(buffer_, input, counts, true, {comm::hint(hint)});
  }

  void finish() override {
    work_->wait();
    work_ = nullptr;
    for (size_t i = 0; i < params_.size(); ++i) {
      if (params_[i].is_tile) continue;
      const at::Tensor whole = params_[i].allocate().view({-1});
      for (size_t rank = 0; rank < parts_.size(); ++rank) {
        const auto [begin, count] = params_[i].pieces_of(kind_)[rank];
        if (count == 0) continue;
        const at::Tensor piece = whole.narrow(0, begin, count);
        if (const ops::RowCodes* const codes = params_[i].codes_of(kind_)) {
          codes->decode(piece, buffer_.narrow(0, parts_[rank].offsets[i], codes->num_bytes(count)));
        } else {
          piece.copy_(at_offset(buffer_, parts_[rank].offsets[i], whole, {count}));
        }
      }
    }
    buffer_ = at::Tensor();
  }
  void free() override {
    // The buffer belongs to the operation until it is over.
    if (work_ != nullptr) work_->wait();
  }
  bool can_free_one() const override { return true; }

 private:
  std::vector<UnitParam>& params_;
  const ShardKind kind_;
  std::vector<Places> parts_;  // by rank: offsets of its shards in the buffer
  at::Tensor buffer_;
  std::shared_ptr<comm::Work> work_;
};

// The "gather" of one rank that holds all values: a cast, which finish() makes; starting it does nothing.
class CastGather : public Gather {
 public:
  explicit CastGather(std::vector<UnitParam>& params) : params_(params) {}
  void finish() override {
    for (UnitParam& param : params_) {
      if (param.is_tile) continue;
      const at::Tensor whole = param.allocate();
      if (whole.numel() > 0) ops::cast_into(whole, param.owned->tile.detach());
    }
  }
  void free() override {}
  bool can_free_one() const override { return true; }

 private:
  std::vector<UnitParam>& params_;
};

}  // namespace

std::unique_ptr<Gather> start_gather(std::vector<UnitParam>& params, ShardKind kind, GatherSlots& slots,
                                     const std::string& hint) {
  const at::NoGradGuard no_grad;
  const bool is_offloaded = std::ranges::any_of(params, &UnitParam::is_offloaded);
  if (slots.group().size() == 1 && !is_offloaded) return std::make_unique<CastGather>(params);
  // All ranks get the same answer from take(), so all choose the same way.
  Places places(params, [](const UnitParam& param) { return param.num_bytes(); });
  // Ranks that share memory write decoded values. Others send codes, which a slot has no room for.
  const bool sends_codes = !slots.are_shared() && std::ranges::any_of(params, [kind](const UnitParam& param) {
    return param.codes_of(kind) != nullptr;
  });
  if (sends_codes) return std::make_unique<CopyGather>(params, kind, slots.group(), hint);
  if (std::optional<GatherSlot> slot = slots.take(places.num_bytes)) {
    return std::make_unique<SlotGather>(params, kind, std::move(places), slots, std::move(*slot), hint);
  }
  return std::make_unique<CopyGather>(params, kind, slots.group(), hint);
}

}  // namespace tessera::parallel::detail

// The rules by which optimizers update parameters. A rule says what it keeps of a parameter and how an update
// changes it; make_ruled() (ruled_optimizer.h) runs the rules over tiles.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/options.h"
#include "tessera/nn/parameter_role.h"
#include "tessera/nn/row_blocks.h"
#include "tessera/parallel/layout.h"

namespace tessera::optim {

// A parameter as a rule sees it before there are values.
struct RuleParameter {
  std::vector<int64_t> shape;  // of the whole parameter
  // Type in which updates are computed: float64 for a parameter of float64, else float32.
  at::ScalarType type = at::kFloat;
  nn::ParameterRole role = nn::ParameterRole::Other;
  // These three are those of OptimizedTile.
  std::string name = "";
  nn::RowBlocks row_blocks = {};
  std::optional<bool> is_target = {};

  int64_t numel() const;
};

// A value or tensor that a rule keeps of a parameter between updates.
struct RuleState {
  // Tile: a value for every element, cut as the parameter is. Whole: values of a shape of their own, which
  // every rank that holds a part of the parameter has alike.
  enum class Form { Tile, Whole };
  std::string name;
  Form form = Form::Tile;
  std::vector<int64_t> shape = {};                       // of Whole
  std::optional<at::ScalarType> type = {};               // unset, RuleParameter::type
  enum class Start { Zero, Value } start = Start::Zero;  // Value: a Tile begins as a copy of the parameter
  bool is_on_host = false;                               // of Whole: read by the host, wherever the tile lies
};

// One update of a tile, or of consecutive elements of it.
struct RuleUpdate {
  // The values of the tile, or of some of its rows, which the rule changes in place, and the gradient,
  // scaled, which it may overwrite: of RuleParameter::type, dense; flat for an element-wise rule.
  at::Tensor value, gradient;
  std::vector<at::Tensor> states;  // as the rule listed them; Tile states in the shape of `value`
  double lr = 0.0, weight_decay = 0.0;
  int64_t step = 1;  // 1 for the first update
  // The result of measure() in each round, joined over all tiles of the parameter.
  std::vector<at::Tensor> totals = {};
  const RuleParameter* parameter = nullptr;
  const parallel::Box* box = nullptr;  // where `value` lies in the parameter
};

// A rule has no state of its own, so that one object serves all parameters. Its functions are called without
// autograd.
class Rule {
 public:
  virtual ~Rule() = default;
  virtual std::vector<RuleState> states(const RuleParameter& parameter) const = 0;

  // Says that apply() computes each element from that element alone; it then gets a few of them at a time,
  // possibly on several threads.
  virtual bool is_elementwise() const { return true; }
  // Begins an update: changes Whole states that the host reads, once for each update.
  virtual void begin(RuleUpdate& update) const;
  // Ahead of apply() come `num_rounds` rounds. In each, measure() measures a tile that has elements, and may
  // change its Tile states, but not the value; measured_size() says how many float64 values it returns. They
  // are joined over all tiles of the parameter, and absorb() then finds the result as the last of the totals
  // on every rank, to change Whole states. A tile is measured and applied a few rows (of its first dim) at a
  // time, each with the box of these rows, unless the rule transforms matrices.
  virtual int64_t num_rounds() const { return 0; }
  virtual comm::ReduceOp joined_by() const { return comm::ReduceOp::Sum; }
  virtual int64_t measured_size(int64_t round, const RuleParameter& parameter) const;
  virtual at::Tensor measure(int64_t round, RuleUpdate& update) const;
  virtual void absorb(int64_t round, RuleUpdate& update) const;
  virtual void apply(RuleUpdate& update) const = 0;
  // Says whether measure() changes Tile states in this round; round num_rounds() stands for apply(). States
  // that are as they were need not go back to a drive.
  virtual bool changes_tiles(int64_t /*round*/) const { return true; }

  // A rule that examines gradients may ask, between its first round and the second, that one of the ranks
  // that hold a tile looks at the whole gradient of a matrix: examined_shape() says of which shape the result
  // of examine() is, the same on all ranks, or is empty where this update asks for nothing; keep() then
  // finds the result on every rank, to change Whole states.
  virtual bool examines() const { return false; }
  virtual std::vector<int64_t> examined_shape(const RuleUpdate& update) const;
  virtual at::Tensor examine(const at::Tensor& gradient, const RuleParameter& parameter) const;
  virtual void keep(RuleUpdate& update, const at::Tensor& examined) const;

  // A rule with a matrix() transforms it as a whole, on one of the ranks that hold a tile of it, between the
  // rounds and apply(): matrix() returns this tile's part, of a type that depends on the parameter alone, and
  // may change its Tile states, which apply() may not read; apply() finds its part of the result as the last
  // of the totals. Such a rule has a round at least, which may measure nothing: in it the ranks agree on the
  // parameters that have gradients.
  virtual bool transforms() const { return false; }
  virtual at::Tensor matrix(RuleUpdate& update) const;
  virtual at::Tensor transformed(const at::Tensor& whole) const;

  // A rule that has an average takes gradients at one point and evaluates and saves another. Moves a tile
  // from the first point to the second (`is_average`), or back.
  virtual bool has_average() const { return false; }
  virtual void move_to_average(bool is_average, const at::Tensor& value,
                               const std::vector<at::Tensor>& states) const;
};

using RulePtr = std::shared_ptr<const Rule>;

}  // namespace tessera::optim

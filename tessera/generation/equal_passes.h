// Passes of a model that ranks make together, although each works on texts of its own.
#pragma once

#include "tessera/comm/communicator.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/nn/kv_cache.h"

namespace tessera::generation {

// Makes all ranks run the model equally often, as they must where they gather its parameters or exchange the
// tokens of its experts in each pass. A rank that has no text to work on runs it on a token that nobody
// reads. With one rank this does nothing.
class EqualPasses {
 public:
  // The model and `world`, the ranks that share it, must outlive this object.
  EqualPasses(models::CausalLM& model, comm::Communicator& world);

  // Call it before each pass of this rank. It returns when every other rank is in begin() or catch_up().
  void begin() { agree(true); }
  // Makes passes as long as any other rank begins one. All ranks must come to it equally often. Collective.
  void catch_up();

 private:
  // Returns whether any rank has a pass to make.
  bool agree(bool has_pass);

  models::CausalLM& model_;
  comm::Communicator& world_;
  nn::KvCache cache_;
};

}  // namespace tessera::generation

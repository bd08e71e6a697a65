// The library's public headers, all at once (docs/library.md). Each can be included alone, which compiles
// sooner.
#pragma once

#include "tessera/checkpoint/random_source.h"
#include "tessera/checkpoint/state_dict.h"
#include "tessera/comm/bootstrap.h"
#include "tessera/core/cpu_features.h"
#include "tessera/core/error.h"
#include "tessera/nn/call_hook.h"
#include "tessera/nn/embedding.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/mlp.h"
#include "tessera/nn/norm.h"
#include "tessera/nn/transformer_block.h"
#include "tessera/optim/gradient_norm.h"
#include "tessera/optim/optimizer.h"
#include "tessera/parallel/activation_checkpoint.h"
#include "tessera/parallel/context_parallel/context_parallel.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/parallel/fully_shard.h"
#include "tessera/parallel/pipeline/pipeline.h"
#include "tessera/parallel/tensor_parallel/tensor_parallel.h"

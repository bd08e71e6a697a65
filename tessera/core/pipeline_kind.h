// The kinds of pipeline schedule, as recipes name them.
#pragma once

namespace tessera {

enum class PipelineKind { GPipe, OneFOneB, Interleaved, ZeroBubble };

}  // namespace tessera

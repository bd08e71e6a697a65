// The shared matrices of VeRA in an adapter's files.
#pragma once

#include <string>

#include "tessera/io/model_files.h"
#include "tessera/peft/vera_projections.h"

namespace tessera::peft {

constexpr const char* kProjectionA = "base_model.vera_A";
constexpr const char* kProjectionB = "base_model.vera_B";

// Tells whether a tensor of an adapter's file is one of the shared matrices.
bool is_projection(const std::string& stored);

// Gives the projections the values that the files hold. Throws Error(Model, "ADAPTER") where the files lack
// one of the matrices, or hold one that is too small, of another rank, or has a value that is not finite.
void read_projections(VeraProjections& projections, const io::ModelFiles& files);

}  // namespace tessera::peft

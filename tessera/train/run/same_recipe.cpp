#include "tessera/train/run/same_recipe.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <string>
#include <vector>

#include <torch/version.h>

#include "tessera/config/load_recipe.h"
#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/core/version.h"
#include "tessera/device/deterministic.h"

namespace tessera::train {
namespace {

std::string trimmed(const std::string& line) {
  const size_t begin = line.find_first_not_of(" -");
  return begin == std::string::npos ? "" : line.substr(begin);
}

struct Difference {
  std::string first, other;  // lines; empty where the text has ended
};

Difference first_difference(const std::string& first, const std::string& other) {
  std::istringstream first_stream(first), other_stream(other);
  std::string first_line, other_line;
  while (true) {
    const bool has_first = static_cast<bool>(std::getline(first_stream, first_line));
    const bool has_other = static_cast<bool>(std::getline(other_stream, other_line));
    if (!has_first) first_line.clear();
    if (!has_other) other_line.clear();
    if (first_line != other_line || (!has_first && !has_other))
      return {trimmed(first_line), trimmed(other_line)};
  }
}

}  // namespace

void check_same_program(const std::string& program, comm::Communicator& world) {
  const std::vector<std::string> programs = world.all_gather_string(program);
  const auto rank = first_other(programs);
  if (!rank) return;
  throw Error(ErrorKind::Config, "RANKS-DIFFER",
              "rank " + std::to_string(*rank) + " runs a different program from rank 0")
      .got(programs[*rank])
      .need(programs[0])
      .hint("install the same version on every machine");
}

void check_same_recipe(const config::Recipe& recipe, comm::Communicator& world) {
  if (world.size() == 1) return;
  const std::string text = config::dump_recipe(recipe);
  const auto rank = first_other(world.all_gather_string(std::to_string(stream_of(text.c_str()))));
  if (!rank) return;
  // The texts themselves travel only now, when the run is over anyway.
  const std::vector<std::string> texts = world.all_gather_string(text);
  const Difference difference = first_difference(texts[0], texts[*rank]);
  const std::string& line = difference.first.empty() ? difference.other : difference.first;
  throw Error(ErrorKind::Config, "RANKS-DIFFER",
              "rank " + std::to_string(*rank) + " was started with a different recipe from rank 0: key '" +
                  line.substr(0, line.find(':')) + "'")
      .got(difference.other.empty() ? "nothing" : "'" + difference.other + "'")
      .need(difference.first.empty() ? "nothing" : "'" + difference.first + "'")
      .hint("start every rank with the same recipe and overrides");
}

std::optional<size_t> first_other(const std::vector<std::string>& texts) {
  const auto other = std::ranges::find_if(texts, [&](const std::string& text) { return text != texts[0]; });
  if (other == texts.end()) return std::nullopt;
  return other - texts.begin();
}

void agree_on_start(const config::Recipe& recipe, comm::Communicator& world) {
  check_same_program(std::string("Tessera ") + program_version() + ", LibTorch " TORCH_VERSION, world);
  check_same_recipe(recipe, world);
  if (recipe.deterministic) compute_deterministically();
  world.set_default_timeout(
      std::chrono::milliseconds(static_cast<int64_t>(recipe.collective_timeout_s * 1000.0)));
}

}  // namespace tessera::train

#include "tessera/serving/served_model.h"

#include "tessera/io/file.h"
#include "tessera/io/json_reader.h"

namespace tessera::serving {

void read_generation_config(const std::string& folder, Sampling& defaults) {
  const std::string file = io::join_path(folder, "generation_config.json");
  if (!io::exists(file)) return;
  const io::JsonReader reader = io::JsonReader::open(file);
  defaults.temperature = reader.number("temperature", 0.0, 100.0, defaults.temperature);
  defaults.top_p = reader.number("top_p", 1e-9, 1.0, defaults.top_p);
  defaults.min_p = reader.number("min_p", 0.0, 1.0, defaults.min_p);
  defaults.top_k = reader.integer("top_k", 0, int64_t{1} << 31, defaults.top_k);
  defaults.repetition_penalty = reader.number("repetition_penalty", 1e-9, 100.0, defaults.repetition_penalty);
}

}  // namespace tessera::serving

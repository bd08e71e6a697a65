#include "tessera/checkpoint/special_tokens.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/io/json_values.h"

namespace tessera::checkpoint {
namespace {

using nlohmann::ordered_json;

// Puts the id of an end token before those that the file has. `keeps_one` tells whether a single other id
// stays too.
void put_end(ordered_json& json, int64_t id, bool keeps_one) {
  ordered_json& held = json["eos_token_id"];
  if (held.is_array()) {
    if (std::find(held.begin(), held.end(), ordered_json(id)) == held.end()) held.insert(held.begin(), id);
  } else if (held != ordered_json(id)) {
    const bool joins = keeps_one && io::integer_of(held).value_or(-1) >= 0;
    held = joins ? ordered_json::array({id, held}) : ordered_json(id);
  }
}

std::string with_ids(const std::string& text, const SpecialTokenIds& ids, bool keeps_one) {
  ordered_json json = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return text;
  const ordered_json before = json;
  if (ids.bos) json["bos_token_id"] = *ids.bos;
  if (ids.pad) json["pad_token_id"] = *ids.pad;
  if (ids.eos) put_end(json, *ids.eos, keeps_one);
  return json == before ? text : json.dump(2) + "\n";
}

}  // namespace

SpecialTokenIds special_token_ids(const text::Tokenizer& tokenizer) {
  return {tokenizer.bos_id(), tokenizer.eos_id(), tokenizer.pad_id()};
}

BaseFiles with_special_tokens(BaseFiles files, const SpecialTokenIds& ids) {
  const ordered_json config = ordered_json::parse(files.config, nullptr, /*allow_exceptions=*/false);
  const auto size = config.find("vocab_size");
  const int64_t limit = size != config.end() ? io::integer_of(*size).value_or(INT64_MAX) : INT64_MAX;
  SpecialTokenIds known = ids;
  for (std::optional<int64_t>* id : {&known.bos, &known.eos, &known.pad}) {
    if (*id && **id >= limit) id->reset();
  }
  files.config = with_ids(files.config, known, /*keeps_one=*/false);
  if (!files.generation.empty()) files.generation = with_ids(files.generation, known, /*keeps_one=*/true);
  return files;
}

}  // namespace tessera::checkpoint

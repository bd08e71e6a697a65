// The small files of a merged model: its configuration and its tokenizer.
#pragma once

#include <map>
#include <string>

namespace tessera::peft {

struct SideFiles {
  std::map<std::string, std::string> texts;  // by name
  bool has_own_tokens = false;               // whether the adapter brings a tokenizer, or settings of one
};

// Tells whether the config.json of this folder may tie the output projection to the embedding.
bool may_tie(const std::string& folder);

// Tells whether the adapter's folder has the config.json of a classifier, whose head it then brings.
bool brings_classifier(const std::string& adapter);

// Reads the small files of the result of a merge, as they are now in the folders of base and adapter. The
// config.json is that of a classifier if the adapter brings one.
SideFiles read_side_files(const std::string& base, const std::string& adapter);

// Writes the files into the folder of the merged model, which holds its weights already, and makes
// config.json and generation_config.json agree with both: they name the special tokens of a tokenizer that
// the adapter brings, and do not tie an embedding and a head that differ.
void write_side_files(const SideFiles& files, const std::string& folder);

}  // namespace tessera::peft

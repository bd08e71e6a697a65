// Makes one recipe from files and arguments of other tools.
#pragma once

#include <string>
#include <vector>

namespace tessera::config {

// Returns one recipe as YAML, with a comment behind each value that says where it was set. `files` may be
// configuration files of Accelerate, DeepSpeed, LLaMA-Factory, Transformers' and TRL's trainers, and recipes;
// `arguments` is the text of a command line ("--learning_rate 2e-4 --bf16"), "" for none. Each file's keys
// tell which tool it belongs to. All of them are read together, and two that set one native key must agree.
// Required keys that nobody sets become comments to fill in. Throws the errors of load_recipe() for keys and
// values, and E-CONFIG-ARGUMENTS for a malformed `arguments`.
std::string convert_to_recipe(const std::vector<std::string>& files, const std::string& arguments);

}  // namespace tessera::config

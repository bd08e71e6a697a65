// One recipe of files and arguments of other tools.
#pragma once

#include <string>
#include <vector>

namespace tessera::config {

// A recipe, with a comment behind each value that says where it comes from, of configuration files of
// Accelerate, of DeepSpeed, of LLaMA-Factory and of Transformers' and TRL's trainers, of recipes, and of
// `arguments`, the text of a command line ("--learning_rate 2e-4 --bf16"), all at once: what they say must
// agree. Which tool a file is of, its keys tell. Required keys that none has are left to fill in. Throws what
// load_recipe() throws for keys and values, and E-CONFIG-ARGUMENTS.
std::string convert_to_recipe(const std::vector<std::string>& files, const std::string& arguments);

}  // namespace tessera::config

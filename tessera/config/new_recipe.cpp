#include "tessera/config/new_recipe.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>

#include "tessera/config/bind.h"
#include "tessera/config/key_help.h"
#include "tessera/config/load_recipe.h"

namespace tessera::config {
namespace {

constexpr std::array<std::string_view, 32> kUsual = {"chat_template",
                                                     "val_set_size",
                                                     "sequence_len",
                                                     "sample_packing",
                                                     "train_on_inputs",
                                                     "micro_batch_size",
                                                     "gradient_accumulation_steps",
                                                     "num_epochs",
                                                     "max_steps",
                                                     "optimizer",
                                                     "lr_scheduler",
                                                     "warmup_ratio",
                                                     "weight_decay",
                                                     "max_grad_norm",
                                                     "dtype",
                                                     "gradient_checkpointing",
                                                     "seed",
                                                     "output_dir",
                                                     "overwrite_output_dir",
                                                     "logging_steps",
                                                     "evals_per_epoch",
                                                     "saves_per_epoch",
                                                     "save_total_limit",
                                                     "auto_resume_from_checkpoints",
                                                     "adapter",
                                                     "lora_r",
                                                     "lora_alpha",
                                                     "lora_dropout",
                                                     "lora_target_linear",
                                                     "tensor_parallel_size",
                                                     "context_parallel_size",
                                                     "zero_stage"};

// Returns the lines of a YAML text by the key at the left margin that they belong to.
std::map<std::string, std::string> lines_by_key(const std::string& yaml) {
  std::map<std::string, std::string> lines;
  std::istringstream text(yaml);
  std::string key;
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with(' ')) key = line.substr(0, line.find(':'));
    lines[key] += line + '\n';
  }
  return lines;
}

// Wraps `text` into comment lines of YAML.
std::string comment(const std::string& text) {
  constexpr size_t kWidth = 100;
  std::istringstream words(text);
  std::string out, line = "#";
  for (std::string word; words >> word;) {
    if (line.size() > 1 && line.size() + 1 + word.size() > kWidth) {
      out += line;
      out += '\n';
      line.resize(1);
    }
    line += ' ';
    line += word;
  }
  return line.size() > 1 ? out + line + '\n' : out;
}

// Returns the first sentence of `text`.
std::string first_sentence(const std::string& text) {
  const size_t end = text.find(". ");
  return end == std::string::npos ? text : text.substr(0, end);
}

std::string commented_out(const std::string& lines) {
  std::istringstream text(lines);
  std::string out;
  for (std::string line; std::getline(text, line);) {
    out += '#';
    out += line;
    out += '\n';
  }
  return out;
}

}  // namespace

std::string new_recipe(const std::vector<std::string>& assignments, bool with_all_keys) {
  const Recipe recipe = parse_recipe("", "new recipe", assignments);
  const auto lines = lines_by_key(write_yaml(recipe));
  const auto given = lines_by_key(write_yaml(recipe, KeysToWrite::Given));
  std::string text =
      "# A recipe of Tessera: tessera train THIS_FILE --nproc 2\n"
      "# Keys after a # have their default values. docs/recipes.md explains all keys.\n";
  for (const KeyGroup& group : key_groups()) {
    std::string part;
    for (const std::string& key : group.keys) {
      const auto value = given.find(key);
      const bool is_usual = std::find(kUsual.begin(), kUsual.end(), key) != kUsual.end();
      if (value == given.end() && !is_usual && !with_all_keys) continue;
      part += '\n' + comment(first_sentence(key_help(key)));
      const auto line = lines.find(key);
      part += value != given.end() ? value->second
                                   : commented_out(line == lines.end() ? key + ":\n" : line->second);
    }
    if (!part.empty()) text += "\n# ---- " + group.title + '\n' + part;
  }
  return text;
}

std::string guess_dataset_type(const std::string& file) {
  std::ifstream stream(file);
  std::string row(4096, '\0');
  stream.read(row.data(), static_cast<std::streamsize>(row.size()));
  row.resize(static_cast<size_t>(std::max<std::streamsize>(stream.gcount(), 0)));
  const auto has = [&](const char* name) {
    std::string quoted(1, '"');
    quoted.append(name).append(1, '"');
    return row.find(quoted) != std::string::npos;
  };
  if (has("input_ids")) return "";
  if (has("messages")) return "chat_template";
  if (has("prompt") && has("completion")) return "prompt_completion";
  if (has("conversations")) return "sharegpt";
  if (has("instruction")) return "alpaca";
  return has("text") ? "completion" : "";
}

}  // namespace tessera::config

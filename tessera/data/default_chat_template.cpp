#include "tessera/data/default_chat_template.h"

#include <algorithm>
#include <set>
#include <vector>

#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/data/prompts/prompt.h"
#include "tessera/text/select_chat_template.h"

namespace tessera::data {

std::shared_ptr<const text::ChatTemplate> default_chat_template(const config::DataConfig& config,
                                                                const text::Tokenizer& tokenizer) {
  const bool named = !config.chat_template.empty() || !config.chat_template_jinja.empty();
  if (!named && tokenizer.chat_template().empty()) return nullptr;
  return text::select_chat_template(config.chat_template, config.chat_template_jinja, config.source_folder,
                                    tokenizer);
}

std::string trained_chat_template(const config::DataConfig& config, const text::Tokenizer& tokenizer) {
  const auto of_all = default_chat_template(config, tokenizer);
  std::set<std::string> used;
  for (const config::DatasetConfig& dataset : config.datasets) {
    if (!uses_chat_template(dataset)) continue;
    const bool has_own = !dataset.chat_template.empty() || !dataset.chat_template_jinja.empty();
    const auto chosen = !has_own
                            ? of_all
                            : text::select_chat_template(dataset.chat_template, dataset.chat_template_jinja,
                                                         config.source_folder, tokenizer);
    if (chosen != nullptr) used.insert(chosen->source());
  }
  if (used.size() == 1) return *used.begin();
  const std::string kept = of_all != nullptr ? of_all->source() : tokenizer.chat_template();
  if (used.size() > 1) {
    log::warn("the datasets are written in " + std::to_string(used.size()) +
              " chat templates; the result's template is " +
              (config.chat_template.empty() && config.chat_template_jinja.empty() ? "the model's own"
                                                                                  : "the recipe's"));
  }
  return kept;
}

void warn_of_missing_tokens(const config::DataConfig& config, const text::Tokenizer& tokenizer) {
  const std::vector<std::string> builtin = text::ChatTemplate::builtin_names();
  std::set<std::string> names = {config.chat_template};
  for (const config::DatasetConfig& dataset : config.datasets) names.insert(dataset.chat_template);
  for (const std::string& name : names) {
    if (std::find(builtin.begin(), builtin.end(), name) == builtin.end()) continue;
    const std::string source = text::ChatTemplate::builtin(name).source();
    std::vector<std::string> missing;
    for (size_t begin = source.find("<|"); begin != std::string::npos; begin = source.find("<|", begin + 2)) {
      const std::string token = source.substr(begin, source.find("|>", begin) + 2 - begin);
      if (!tokenizer.token_to_id(token) && std::find(missing.begin(), missing.end(), token) == missing.end())
        missing.push_back(token);
    }
    if (missing.empty()) continue;
    log::warn("chat_template: " + name + " writes " + join(missing, ", ") +
              ", which the model's vocabulary lacks: they are split into ordinary tokens, and none of them "
              "ends an answer");
  }
}

}  // namespace tessera::data

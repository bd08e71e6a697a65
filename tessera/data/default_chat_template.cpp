#include "tessera/data/default_chat_template.h"

#include <set>

#include "tessera/core/log.h"
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
    if (dataset.type != "chat_template" && dataset.type != "sharegpt") continue;
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
              " chat templates; the result names " +
              (config.chat_template.empty() && config.chat_template_jinja.empty() ? "the model's own"
                                                                                  : "the recipe's"));
  }
  return kept;
}

}  // namespace tessera::data

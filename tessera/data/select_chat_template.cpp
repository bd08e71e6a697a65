#include "tessera/data/select_chat_template.h"

#include <set>
#include <string_view>

#include "tessera/config/resolve_paths.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/data/readers/file_bytes.h"

namespace tessera::data {
namespace {

constexpr std::string_view kDefault = "tokenizer_default";
constexpr std::string_view kFallback = "tokenizer_default_fallback_";
constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

std::shared_ptr<const text::ChatTemplate> shared(text::ChatTemplate parsed) {
  return std::make_shared<const text::ChatTemplate>(std::move(parsed));
}

std::string read_template(const std::string& path) {
  FileBytes bytes(path);
  std::string text;
  for (std::string_view block = bytes.peek(); !block.empty(); block = bytes.peek()) {
    text += block;
    bytes.consume(block.size());
    if (text.size() > kMaxTemplateBytes) {
      throw Error(ErrorKind::Model, "TEMPLATE-SIZE", "the chat template is too long")
          .in(path)
          .need("at most 1 MiB");
    }
  }
  return text;
}

std::shared_ptr<const text::ChatTemplate> from_jinja(const std::string& jinja, const std::string& folder) {
  const bool inline_text = jinja.find("{{") != std::string::npos || jinja.find("{%") != std::string::npos ||
                           jinja.find('\n') != std::string::npos;
  if (inline_text) return shared(text::ChatTemplate::parse(jinja, "chat_template_jinja"));
  const std::string path = config::resolve_path(jinja, folder);
  return shared(text::ChatTemplate::parse(read_template(path), path));
}

}  // namespace

std::shared_ptr<const text::ChatTemplate> select_chat_template(const std::string& name,
                                                               const std::string& jinja,
                                                               const std::string& folder,
                                                               const text::Tokenizer& tokenizer) {
  if (name == "jinja" || (name.empty() && !jinja.empty())) {
    if (jinja.empty()) {
      throw Error(ErrorKind::Config, "CHAT-TEMPLATE", "chat_template: jinja needs chat_template_jinja")
          .need("a template or the name of a file with one");
    }
    return from_jinja(jinja, folder);
  }
  const bool has_fallback = name.starts_with(kFallback);
  if (name.empty() || name == kDefault || has_fallback) {
    if (!tokenizer.chat_template().empty()) {
      return shared(text::ChatTemplate::parse(tokenizer.chat_template(), "the model's chat template"));
    }
    if (has_fallback) return shared(text::ChatTemplate::builtin(name.substr(kFallback.size())));
    throw Error(ErrorKind::Model, "NO-CHAT-TEMPLATE", "the model has no chat template")
        .hint(
            "name a built-in one, such as chatml: by chat_template in a recipe (or chat_template_jinja), by "
            "--chat-template of chat and generate");
  }
  return shared(text::ChatTemplate::builtin(name));
}

std::shared_ptr<const text::ChatTemplate> recipe_chat_template(const config::Recipe& recipe,
                                                               const text::Tokenizer& tokenizer) {
  const bool named = !recipe.chat_template.empty() || !recipe.chat_template_jinja.empty();
  if (!named && tokenizer.chat_template().empty()) return nullptr;
  return select_chat_template(recipe.chat_template, recipe.chat_template_jinja, recipe.source_folder,
                              tokenizer);
}

std::string trained_chat_template(const config::Recipe& recipe, const text::Tokenizer& tokenizer) {
  const auto of_recipe = recipe_chat_template(recipe, tokenizer);
  std::set<std::string> used;
  for (const config::DatasetConfig& dataset : recipe.datasets) {
    if (dataset.type != "chat_template" && dataset.type != "sharegpt") continue;
    const bool has_own = !dataset.chat_template.empty() || !dataset.chat_template_jinja.empty();
    const auto chosen = !has_own ? of_recipe
                                 : select_chat_template(dataset.chat_template, dataset.chat_template_jinja,
                                                        recipe.source_folder, tokenizer);
    if (chosen != nullptr) used.insert(chosen->source());
  }
  if (used.size() == 1) return *used.begin();
  const std::string kept = of_recipe != nullptr ? of_recipe->source() : tokenizer.chat_template();
  if (used.size() > 1) {
    log::warn("the datasets are written in " + std::to_string(used.size()) +
              " chat templates; the result names " +
              (recipe.chat_template.empty() && recipe.chat_template_jinja.empty() ? "the model's own"
                                                                                  : "the recipe's"));
  }
  return kept;
}

}  // namespace tessera::data

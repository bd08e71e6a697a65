#include "tessera/text/select_chat_template.h"

#include <string_view>

#include "tessera/config/resolve_paths.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/io/file_bytes.h"

namespace tessera::text {
namespace {

constexpr std::string_view kDefault = "tokenizer_default";
constexpr std::string_view kNamed = "tokenizer_default.";
constexpr std::string_view kFallback = "tokenizer_default_fallback_";
constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

std::shared_ptr<const ChatTemplate> shared(ChatTemplate parsed) {
  return std::make_shared<const ChatTemplate>(std::move(parsed));
}

std::string read_template(const std::string& path) {
  io::FileBytes bytes(path);
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

std::shared_ptr<const ChatTemplate> from_jinja(const std::string& jinja, const std::string& folder) {
  const bool inline_text = jinja.find("{{") != std::string::npos || jinja.find("{%") != std::string::npos ||
                           jinja.find('\n') != std::string::npos;
  if (inline_text) return shared(ChatTemplate::parse(jinja, "chat_template_jinja"));
  const std::string path = config::resolve_path(jinja, folder);
  return shared(ChatTemplate::parse(read_template(path), path));
}

std::vector<std::string> names_of(const Tokenizer& tokenizer) {
  std::vector<std::string> names;
  for (const auto& [name, source] : tokenizer.chat_templates()) names.push_back(name);
  return names;
}

// Returns the model's default template, with the one for tools where the model has one.
std::shared_ptr<const ChatTemplate> models_own(const Tokenizer& tokenizer) {
  ChatTemplate parsed = ChatTemplate::parse(tokenizer.chat_template(), "the model's chat template");
  const auto tools = tokenizer.chat_templates().find(kToolTemplate);
  if (tools != tokenizer.chat_templates().end())
    parsed.set_tool_template(tools->second, "the model's chat template tool_use");
  return shared(std::move(parsed));
}

std::shared_ptr<const ChatTemplate> models_named(const Tokenizer& tokenizer, const std::string& name) {
  const auto found = tokenizer.chat_templates().find(name);
  if (found != tokenizer.chat_templates().end())
    return shared(ChatTemplate::parse(found->second, "the model's chat template " + name));
  const std::vector<std::string> names = names_of(tokenizer);
  throw Error(ErrorKind::Config, "CHAT-TEMPLATE", "the model has no chat template of this name")
      .got("'" + name + "'")
      .need(names.empty() ? "a model that has chat templates" : "one of " + join(names, ", "));
}

[[noreturn]] void refuse_without_default(const Tokenizer& tokenizer) {
  const std::vector<std::string> names = names_of(tokenizer);
  if (!names.empty()) {
    throw Error(ErrorKind::Model, "NO-CHAT-TEMPLATE",
                "the model has several chat templates, and none of them is called default")
        .got(join(names, ", "))
        .hint("choose one, with chat_template: " + std::string(kNamed) + names.front() +
              " in a recipe or --chat-template " + std::string(kNamed) + names.front() +
              " of chat and generate");
  }
  throw Error(ErrorKind::Model, "NO-CHAT-TEMPLATE", "the model has no chat template")
      .hint(
          "choose a built-in one, such as chatml, with chat_template (or chat_template_jinja) in a recipe or "
          "--chat-template of chat and generate");
}

}  // namespace

std::shared_ptr<const ChatTemplate> select_chat_template(const std::string& name, const std::string& jinja,
                                                         const std::string& folder,
                                                         const Tokenizer& tokenizer) {
  if (name == "jinja" || (name.empty() && !jinja.empty())) {
    if (jinja.empty()) {
      throw Error(ErrorKind::Config, "CHAT-TEMPLATE", "chat_template: jinja needs chat_template_jinja")
          .need("a template or the name of a file with one");
    }
    return from_jinja(jinja, folder);
  }
  const bool has_fallback = name.starts_with(kFallback);
  if (name.empty() || name == kDefault || has_fallback) {
    if (!tokenizer.chat_template().empty()) return models_own(tokenizer);
    if (has_fallback) return shared(ChatTemplate::builtin(name.substr(kFallback.size())));
    refuse_without_default(tokenizer);
  }
  if (name.starts_with(kNamed)) return models_named(tokenizer, name.substr(kNamed.size()));
  return shared(ChatTemplate::builtin(name));
}

}  // namespace tessera::text

#include "tessera/text/chat_template/chat_template.h"

#include <algorithm>
#include <ctime>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/text/chat_template/builtins.h"
#include "tessera/text/chat_template/interpreter.h"
#include "tessera/text/chat_template/json_text.h"
#include "tessera/text/chat_template/parser.h"

namespace tessera::text {

namespace {

using Json = nlohmann::ordered_json;

std::vector<RenderedSegment> segments_of(const jinja::Text& text) {
  std::vector<RenderedSegment> segments;
  const auto add = [&](size_t begin, size_t end, const jinja::Origin& origin) {
    if (begin == end) return;
    segments.push_back(
        {text.bytes.substr(begin, end - begin), origin.content, origin.message, origin.generation});
  };
  size_t at = 0;
  for (const jinja::Text::Span& span : text.spans) {
    add(at, span.begin, {});
    add(span.begin, span.end, span.origin);
    at = span.end;
  }
  add(at, text.size(), {});
  return segments;
}

// Sets the variables that a template reads; names that it does not read are skipped.
class Variables {
 public:
  Variables(const jinja::SyntaxTree& tree, jinja::Runtime& runtime)
      : tree_(tree), runtime_(runtime), scope_(std::make_shared<jinja::Scope>()) {}

  void set(std::string_view name, jinja::Value value) {
    const auto found = std::find(tree_.names.begin(), tree_.names.end(), name);
    if (found == tree_.names.end()) return;
    scope_->set(static_cast<int32_t>(found - tree_.names.begin()), std::move(value));
  }
  void set_token(std::string_view name, const std::string& token) {
    if (!token.empty()) set(name, jinja::Value::string(runtime_, token));
  }
  void set_messages(const Json& messages) {
    std::vector<jinja::Value> items;
    for (const Json& message : messages) {
      items.push_back(jinja::message_from_json(runtime_, message, static_cast<int32_t>(items.size())));
    }
    set("messages",
        jinja::Value::sequence(runtime_, jinja::Kind::List, std::move(items), {}, {true, false, -1}));
  }
  const std::shared_ptr<jinja::Scope>& scope() const { return scope_; }

 private:
  const jinja::SyntaxTree& tree_;
  jinja::Runtime& runtime_;
  std::shared_ptr<jinja::Scope> scope_;
};

}  // namespace

std::string RenderedChat::text() const {
  std::string out;
  for (const RenderedSegment& segment : segments) out += segment.text;
  return out;
}

struct ChatTemplate::Impl {
  std::string source, name;
  jinja::SyntaxTree tree;

  RenderedChat render(jinja::Runtime& runtime, const Json& messages, const Json& tools,
                      const RenderOptions& options) const;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::parse(std::string_view source, std::string_view name) {
  auto impl = std::make_unique<Impl>();
  impl->source = source;
  impl->name = name;
  impl->tree = jinja::parse_template(source, name);
  return ChatTemplate(std::move(impl));
}

ChatTemplate ChatTemplate::builtin(std::string_view name) {
  const std::string_view source = jinja::builtin_source(name);
  if (source.empty()) {
    const std::string near = nearest_name(name, builtin_names());
    throw Error(ErrorKind::Config, "CHAT-TEMPLATE",
                "there is no built-in chat template '" + std::string(name) + "'")
        .need("one of " + join(builtin_names(), ", "))
        .hint(near.empty() ? "" : "did you mean '" + near + "'?");
  }
  return parse(source, "chat template " + std::string(name));
}

std::vector<std::string> ChatTemplate::builtin_names() { return jinja::builtin_template_names(); }

RenderedChat ChatTemplate::Impl::render(jinja::Runtime& runtime, const Json& messages, const Json& tools,
                                        const RenderOptions& options) const {
  if (!messages.is_array()) runtime.fail("the messages are not an array");
  if (!tools.is_null() && !tools.is_array()) runtime.fail("the tools are neither an array nor null");
  Variables variables(tree, runtime);
  variables.set_token("bos_token", options.bos_token);
  variables.set_token("eos_token", options.eos_token);
  variables.set_token("pad_token", options.pad_token);
  variables.set_token("unk_token", options.unk_token);
  variables.set("add_generation_prompt", jinja::Value::boolean(options.add_generation_prompt));
  variables.set("tools", jinja::from_json(runtime, tools, {true, false, -1}));
  variables.set("documents", jinja::Value());
  variables.set_messages(messages);
  if (options.variables && !options.variables->is_null()) {
    if (!options.variables->is_object()) runtime.fail("the variables of the chat template are not an object");
    for (const auto& [name, value] : options.variables->items()) {
      if (name == "messages" || name == "tools" || name == "add_generation_prompt") {
        runtime.fail("'" + name + "' is given by the data and cannot be a variable of the chat template");
      }
      variables.set(name, jinja::from_json(runtime, value, {}));
    }
  }
  jinja::Interpreter interpreter(tree, runtime);
  return RenderedChat{segments_of(interpreter.run(variables.scope()))};
}

int64_t local_clock() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  return seconds + parts.tm_gmtoff;
}

RenderedChat ChatTemplate::render(const Json& messages, const Json& tools,
                                  const RenderOptions& options) const {
  jinja::Runtime runtime(impl_->name, options.now);
  try {
    return impl_->render(runtime, messages, tools, options);
  } catch (const jinja::TextTooLong&) {
    runtime.fail_limit("the template makes a text of more than 8 MiB");
  }
}

bool ChatTemplate::has_generation_blocks() const { return impl_->tree.has_generation; }
const std::string& ChatTemplate::source() const { return impl_->source; }

}  // namespace tessera::text

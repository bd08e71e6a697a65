#include "tessera/text/chat_template/chat_template.h"

#include <algorithm>
#include <ctime>
#include <mutex>
#include <set>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/text/chat_template/builtins.h"
#include "tessera/text/chat_template/interpreter.h"
#include "tessera/text/chat_template/json_text.h"
#include "tessera/text/chat_template/message_form.h"
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

namespace {

// Returns the names and words of a template's source.
std::set<std::string, std::less<>> words_of(std::string_view source) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  std::set<std::string, std::less<>> words;
  size_t end = 0;
  for (size_t at = source.find_first_of(kLetters); at != std::string_view::npos;
       at = source.find_first_of(kLetters, end)) {
    end = std::min(source.find_first_not_of(kLetters, at), source.size());
    words.emplace(source.substr(at, end - at));
  }
  return words;
}

}  // namespace

struct ChatTemplate::Impl {
  std::string source, name;
  jinja::SyntaxTree tree;
  std::set<std::string, std::less<>> words;
  // The template of conversations with tools, or null; and the error of one that cannot be parsed.
  std::unique_ptr<Impl> for_tools;
  std::optional<Error> tools_error;

  Impl(std::string_view text, std::string_view title)
      : source(text), name(title), tree(jinja::parse_template(text, title)), words(words_of(text)) {}

  RenderedChat render(const Json& messages, const Json& tools, const RenderOptions& options) const;
  RenderedChat render(jinja::Runtime& runtime, const Json& messages, const Json& tools,
                      const RenderOptions& options) const;
  // Returns the text of a conversation that serves to learn of the template; nothing if it refuses it.
  std::optional<std::string> try_render(const Json& messages, const Json& tools) const;
  const MessageForm& form() const;
  bool writes_whole_messages() const;

 private:
  // Both are found when they are first asked for.
  mutable std::once_flag form_once_, whole_once_;
  mutable MessageForm form_;
  mutable bool writes_whole_ = false;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::parse(std::string_view source, std::string_view name) {
  return ChatTemplate(std::make_unique<Impl>(source, name));
}

void ChatTemplate::set_tool_template(const std::string& source, std::string_view name) {
  try {
    impl_->for_tools = std::make_unique<Impl>(source, name);
  } catch (const Error& error) {
    impl_->tools_error = error;
  }
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

RenderedChat ChatTemplate::Impl::render(const Json& messages, const Json& tools,
                                        const RenderOptions& options) const {
  jinja::Runtime runtime(name, options.now);
  try {
    return render(runtime, messages, tools, options);
  } catch (const jinja::TextTooLong&) {
    runtime.fail_limit("the template produces a text of more than 8 MiB");
  }
}

std::optional<std::string> ChatTemplate::Impl::try_render(const Json& messages, const Json& tools) const {
  RenderOptions options;
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  options.now = 0;
  try {
    return render(messages, tools, options).text();
  } catch (const Error&) {
    return std::nullopt;
  }
}

const MessageForm& ChatTemplate::Impl::form() const {
  std::call_once(form_once_, [&] {
    form_ = find_message_form(
        [&](const Json& messages, const Json& tools) { return try_render(messages, tools); });
  });
  return form_;
}

bool ChatTemplate::Impl::writes_whole_messages() const {
  std::call_once(whole_once_, [&] {
    Json probe = {{{"role", "user"}, {"content", "question"}},
                  {{"role", "assistant"}, {"content", "answer"}}};
    for (Json& message : probe) message["field_of_no_template"] = "value";
    const auto text = try_render(probe, nullptr);
    writes_whole_ = text && text->find("field_of_no_template") != std::string::npos;
  });
  return writes_whole_;
}

const ChatTemplate::Impl& ChatTemplate::impl_for(const Json& tools) const {
  if (tools.is_null()) return *impl_;
  if (impl_->tools_error) throw Error(*impl_->tools_error);
  return impl_->for_tools != nullptr ? *impl_->for_tools : *impl_;
}

RenderedChat ChatTemplate::render(const Json& messages, const Json& tools,
                                  const RenderOptions& options) const {
  const Impl& impl = impl_for(tools);
  const MessageForm form = has_tool_calls(messages) ? impl.form() : MessageForm{};
  return impl.render(shape_messages(messages, form), tools, options);
}

RenderedChat ChatTemplate::render_as_given(const Json& messages, const Json& tools,
                                           const RenderOptions& options) const {
  return impl_for(tools).render(messages, tools, options);
}

bool ChatTemplate::has_generation_blocks(const Json& tools) const {
  return impl_for(tools).tree.has_generation;
}

bool ChatTemplate::reads(const std::string& field, const Json& tools) const {
  const Impl& impl = impl_for(tools);
  const auto is_named = [&](const char* name) { return impl.words.contains(name); };
  if (is_named(field.c_str())) return true;
  if (is_reasoning_field(field) && (is_named("reasoning_content") || is_named("thinking"))) return true;
  return impl.writes_whole_messages();
}

const std::string& ChatTemplate::source() const { return impl_->source; }

std::string ChatTemplate::all_sources() const {
  return impl_->source + (impl_->for_tools != nullptr ? '\0' + impl_->for_tools->source : "");
}

}  // namespace tessera::text

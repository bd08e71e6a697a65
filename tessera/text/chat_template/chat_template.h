// Chat templates: the Jinja sources that models ship, interpreted in a sandbox.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tessera::text {

struct RenderOptions {
  bool add_generation_prompt = false;
  // Texts of the special tokens; an empty one is undefined in the template, as for a tokenizer without it.
  std::string bos_token, eos_token, pad_token, unk_token;
  // Object of further variables, such as {"enable_thinking": false}; null or absent for none. Their strings
  // count as scaffold, since they come from the recipe and not from the data. They must not replace messages,
  // tools or add_generation_prompt.
  std::shared_ptr<const nlohmann::ordered_json> variables;
  // Time that strftime_now() shows, in seconds since 1970 and as UTC; without it, the system's clock in local
  // time.
  std::optional<int64_t> now;
};

// A piece of rendered text. Scaffold is text that the template itself wrote; only there may control tokens
// such as <|im_start|> be recognised. Content is text that came from the messages, and always plain text.
struct RenderedSegment {
  std::string text;
  bool is_content = false;
  // Index of the message that a content piece came from, or -1.
  int64_t message = -1;
  // The piece was written inside {% generation %} ... {% endgeneration %}.
  bool in_generation = false;
};

// Returns the local wall-clock time in the form of RenderOptions::now: seconds since 1970 that read as UTC
// show the local time.
int64_t local_clock();

struct RenderedChat {
  std::vector<RenderedSegment> segments;  // pieces in order; joined they are the text
  std::string text() const;
};

// Immutable after parsing; render() is thread-safe.
class ChatTemplate {
 public:
  // Parses a template. `name` is the file or key that the source came from, for errors. Throws Error(Model)
  // with line and column for an unknown construct, tag, filter or test.
  static ChatTemplate parse(std::string_view source, std::string_view name);
  // Returns the built-in template `name`. Throws Error(Config) for a name that is not in builtin_names().
  static ChatTemplate builtin(std::string_view name);
  static std::vector<std::string> builtin_names();

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Gives conversations with tools a template of their own. What is wrong with its source is thrown when the
  // first of them is rendered.
  void set_tool_template(const std::string& source, std::string_view name);

  // Renders a conversation. `messages` is an array of {role, content, ...}; `tools` is an array or null. The
  // messages are first brought into the form that the template takes (message_form.h), which is the same for
  // all conversations. Throws Error(Model) if the template raises, or exceeds its step limit (1,000,000) or
  // its output limit (8 MiB), and what shape_messages() throws.
  RenderedChat render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                      const RenderOptions& options) const;
  // Does the same with the messages as they are.
  RenderedChat render_as_given(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                               const RenderOptions& options) const;
  // Returns whether the template for a conversation with these tools has {% generation %} blocks; only then
  // does in_generation mean something.
  bool has_generation_blocks(const nlohmann::ordered_json& tools) const;
  // Returns whether that template may read this field of a message: it names it, or one that it is copied to,
  // or writes messages whole.
  bool reads(const std::string& field, const nlohmann::ordered_json& tools) const;
  // Returns the source, without that of the template for tools.
  const std::string& source() const;
  // Returns the sources of both.
  std::string all_sources() const;

 private:
  struct Impl;
  const Impl& impl_for(const nlohmann::ordered_json& tools) const;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::text

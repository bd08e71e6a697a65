// Chat templates: the Jinja that models ship, interpreted in a sandbox.
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
  // An empty token is undefined in the template, as for a tokenizer without it.
  std::string bos_token, eos_token, pad_token, unk_token;
  // Object of further variables, such as {"enable_thinking": false}; null or absent for none. Their strings
  // count as scaffold: they come from the recipe, not from the data. They may not replace messages or tools.
  std::shared_ptr<const nlohmann::ordered_json> variables;
  // What strftime_now() calls now, in seconds since 1970 and shown in UTC; without it the system's clock, in
  // local time.
  std::optional<int64_t> now;
};

// A piece of rendered text. Scaffold is what the template itself wrote: only there may control tokens such
// as <|im_start|> be recognised. Content is what came from the messages: always plain text.
struct RenderedSegment {
  std::string text;
  bool is_content = false;
  // Index of the message that a content piece came from, or -1.
  int64_t message = -1;
  // Inside {% generation %} ... {% endgeneration %}.
  bool in_generation = false;
};

// What the clocks of this place show, as RenderOptions::now.
int64_t local_clock();

struct RenderedChat {
  std::vector<RenderedSegment> segments;  // in order; joined they are the text
  std::string text() const;
};

// Immutable after parsing; render() is thread-safe.
class ChatTemplate {
 public:
  // `name` is the file or key the source came from, for errors. Throws Error(Model) with line and column
  // for an unknown construct, tag, filter or test.
  static ChatTemplate parse(std::string_view source, std::string_view name);
  // chatml, llama3, mistral or alpaca. Throws Error(Config) for another name, listing these.
  static ChatTemplate builtin(std::string_view name);
  static std::vector<std::string> builtin_names();

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `messages`: array of {role, content, ...}; `tools`: array, or null. Throws Error(Model) where the
  // template raises, runs over its step limit (1,000,000) or its output limit (8 MiB).
  RenderedChat render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                      const RenderOptions& options) const;
  // Whether the source has {% generation %} blocks, so that in_generation means something.
  bool has_generation_blocks() const;
  const std::string& source() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::text

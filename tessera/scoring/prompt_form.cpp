#include "tessera/scoring/prompt_form.h"

#include <atomic>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/text/chat_template/text.h"

namespace tessera::scoring {
namespace {

using Messages = nlohmann::ordered_json;

std::string joined(const std::vector<PromptPart>& parts) {
  std::string text;
  for (const PromptPart& part : parts) text += part.text + part.delimiter;
  return text;
}

// Returns the parts with all between the system's message and an answer that has begun in one message.
std::vector<PromptPart> in_one_turn(std::vector<PromptPart> parts) {
  std::vector<PromptPart> turns;
  if (parts.front().role == "system") {
    turns.push_back(parts.front());
    parts.erase(parts.begin());
  }
  std::vector<PromptPart> begun;
  if (parts.back().role == "assistant") {
    begun.push_back(parts.back());
    parts.pop_back();
  }
  parts.back().delimiter.clear();
  turns.push_back({"user", joined(parts), ""});
  turns.insert(turns.end(), begun.begin(), begun.end());
  return turns;
}

// Cuts a rendered conversation behind its last message, as continue_final_message of Transformers does: the
// template may have stripped the message.
std::string cut_behind(const std::string& rendered, const std::string& message) {
  const std::string stripped = text::jinja::strip(text::jinja::Text(message), std::nullopt, true, true).bytes;
  const size_t at = rendered.rfind(stripped);
  if (at == std::string::npos) {
    throw Error(ErrorKind::Model, "CHAT-TEMPLATE", "the chat template leaves the last message out")
        .got(message)
        .hint("without gen_prefix in the task, or without --apply_chat_template, no message goes on");
  }
  const bool keeps_space = rendered.compare(at, message.size(), message) == 0;
  return rendered.substr(0, at + (keeps_space ? message.size() : stripped.size()));
}

}  // namespace

std::string PromptForm::render(const std::vector<PromptPart>& parts) const {
  if (!is_chat()) return joined(parts);
  const std::vector<PromptPart> turns = is_multiturn ? parts : in_one_turn(parts);
  const bool goes_on = turns.back().role == "assistant";
  text::RenderOptions with_prompt = options;
  with_prompt.add_generation_prompt = !goes_on;
  const auto render_from = [&](size_t first) {
    Messages messages = Messages::array();
    for (size_t i = first; i < turns.size(); ++i)
      messages.push_back({{"role", turns[i].role}, {"content", turns[i].text}});
    const std::string text = chat_template->render(messages, nullptr, with_prompt).text();
    return goes_on ? cut_behind(text, turns.back().text) : text;
  };
  if (turns.front().role != "system") return render_from(0);
  try {
    return render_from(0);
  } catch (const Error& error) {
    static std::atomic<bool> is_told = false;
    std::string text = render_from(1);
    if (!is_told.exchange(true))
      log::warn("prompts leave the system message out, which the chat template refuses: " +
                std::string(error.what()));
    return text;
  }
}

}  // namespace tessera::scoring

#include "tessera/text/tool_calls/tool_format.h"

#include <algorithm>

#include "tessera/core/error.h"

namespace tessera::text {
namespace {

using Kind = CallPart::Kind;

constexpr CallPart kSpace{Kind::Space}, kName{Kind::Name};
constexpr CallPart mark(std::string_view text) { return {Kind::Mark, text}; }
constexpr CallPart maybe(std::string_view text) { return {Kind::Maybe, text}; }
constexpr CallPart value(std::string_view brackets) { return {Kind::Value, brackets}; }
constexpr CallPart until(std::string_view text) { return {Kind::Until, text}; }

// Returns a shape with a value of JSON between two marks, of which the last may be missing.
CallShape between(std::string_view first, std::string_view brackets, std::string_view last) {
  return {{mark(first), kSpace, value(brackets), kSpace, maybe(last)}};
}

std::vector<ToolFormat> make_formats() {
  constexpr std::string_view kCallsBegin = "<｜tool▁calls▁begin｜>", kCallsEnd = "<｜tool▁calls▁end｜>",
                             kCallBegin = "<｜tool▁call▁begin｜>", kCallEnd = "<｜tool▁call▁end｜>",
                             kSep = "<｜tool▁sep｜>";
  const CallPart begin = maybe(kCallsBegin), end = maybe(kCallsEnd);
  return {
      // Hermes, Qwen 2.5 and Qwen 3.
      {"hermes", {between("<tool_call>", "{[", "</tool_call>")}},
      // Qwen3-Coder and Qwen 3.5.
      {"qwen3-coder",
       {{{maybe("<tool_call>"), kSpace, mark("<function="), kName, mark(">"), until("</function>"), kSpace,
          maybe("</tool_call>")},
         CallBody::Tags,
         {"<parameter=", ">", "", "</parameter>"}}}},
      // GLM 4.5 and later.
      {"glm",
       {{{mark("<tool_call>"), kSpace, kName, until("</tool_call>")},
         CallBody::Tags,
         {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}}}},
      // The older form is an array; the newer one has a name before each call, and perhaps an id.
      {"mistral",
       {between("[TOOL_CALLS]", "[", ""),
        {{mark("[TOOL_CALLS]"), kSpace, kName, mark("[ARGS]"), kSpace, value("{")}, CallBody::Arguments},
        {{mark("[TOOL_CALLS]"), kSpace, kName, mark("[CALL_ID]"), kName, mark("[ARGS]"), kSpace, value("{")},
         CallBody::Arguments}},
       9},
      // DeepSeek V3 and R1; then V3.1.
      {"deepseek",
       {{{begin, kSpace, mark(kCallBegin), mark("function"), mark(kSep), kName, kSpace, mark("```json"),
          kSpace, value("{"), kSpace, mark("```"), kSpace, maybe(kCallEnd), kSpace, end},
         CallBody::Arguments},
        {{begin, kSpace, mark(kCallBegin), kName, mark(kSep), kSpace, value("{"), kSpace, maybe(kCallEnd),
          kSpace, end},
         CallBody::Arguments}}},
      {"jamba", {between("<tool_calls>", "[", "</tool_calls>")}},
      {"granite", {between("<|tool_call|>", "[{", "<|/tool_call|>")}},
      {"internlm2",
       {{{mark("<|action_start|>"), kSpace, mark("<|plugin|>"), kSpace, value("{"), kSpace,
          maybe("<|action_end|>")}}}},
      // Command R, and then Command R7B and A.
      {"command-r",
       {{{mark("Action:"), kSpace, mark("```json"), kSpace, value("["), kSpace, mark("```")}},
        between("<|START_ACTION|>", "[", "<|END_ACTION|>")}},
      // Phi-4-mini, which writes the word, its marks, or both.
      {"functools",
       {{{maybe("<|tool_call|>"), kSpace, mark("functools"), kSpace, value("[{"), kSpace,
          maybe("<|/tool_call|>")}},
        between("<|tool_call|>", "[{", "<|/tool_call|>")}},
      // gpt-oss.
      {"harmony",
       {{{mark("<|start|>"), mark("<|channel|>"), mark("<|constrain|>"), mark("<|message|>"), mark("<|end|>"),
          mark("<|call|>"), mark("<|return|>")}}},
       0,
       /*has_channels=*/true},
      // Python within marks (LFM2, Llama 4), then without.
      {"pythonic",
       {{{mark("<|tool_call_start|>"), kSpace, value("["), kSpace, maybe("<|tool_call_end|>")},
         CallBody::Python},
        {{mark("<|python_start|>"), kSpace, value("["), kSpace, maybe("<|python_end|>")}, CallBody::Python},
        {{value("[")}, CallBody::Python}}},
      // Llama 3.1 and later. The templates of Llama 4 show JSON, and its instructions Python.
      {"llama",
       {{{mark("<|python_tag|>"), kSpace, value("{")}},
        {{maybe(";"), kSpace, maybe("<|python_tag|>"), kSpace, value("{")}},
        {{maybe("<|python_start|>"), kSpace, value("["), kSpace, maybe("<|python_end|>")},
         CallBody::Python}}},
      // An array without any mark.
      {"json", {{{value("[")}}}},
  };
}

}  // namespace

std::vector<std::string_view> CallShape::first_marks() const {
  std::vector<std::string_view> marks;
  for (const CallPart& part : parts) {
    if (part.kind == Kind::Space) continue;
    if (part.kind != Kind::Mark && part.kind != Kind::Maybe) return {};
    marks.push_back(part.text);
    if (part.kind == Kind::Mark) break;
  }
  return marks;
}

std::vector<std::string_view> ToolFormat::marks() const {
  std::vector<std::string_view> marks;
  for (const CallShape& shape : shapes) {
    for (const CallPart& part : shape.parts) {
      if (part.kind == Kind::Mark || part.kind == Kind::Maybe || part.kind == Kind::Until)
        marks.push_back(part.text);
    }
  }
  return marks;
}

std::span<const ToolFormat> tool_formats() {
  static const std::vector<ToolFormat> formats = make_formats();
  return formats;
}

std::string tool_format_names() {
  std::string names;
  for (const ToolFormat& format : tool_formats())
    names += (names.empty() ? "" : ", ") + std::string(format.name);
  return names;
}

const ToolFormat& find_tool_format(const std::string& name) {
  const auto found = std::ranges::find(tool_formats(), name, &ToolFormat::name);
  if (found != tool_formats().end()) return *found;
  throw Error(ErrorKind::Config, "TOOL-FORMAT", "there is no such format of tool calls")
      .got(name)
      .need(tool_format_names());
}

}  // namespace tessera::text

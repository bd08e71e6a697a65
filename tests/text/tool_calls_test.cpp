#include <fstream>

#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/text/tool_calls/tool_call_stream.h"

#include "tests/testing/paths.h"

namespace tessera::text {
namespace {

using Json = nlohmann::ordered_json;
using Calls = std::vector<std::pair<std::string, std::string>>;

// An answer as a client puts it together.
struct Told {
  std::string text;
  Calls calls;
  std::string reasoning = {};
  bool operator==(const Told&) const = default;
};

void PrintTo(const Told& told, std::ostream* out) {
  *out << '"' << told.text << "\" (" << told.reasoning << ")";
  for (const auto& [name, arguments] : told.calls) *out << " " << name << " " << arguments;
}

std::shared_ptr<CallReading> reading_of(const std::string& format) {
  auto reading = std::make_shared<CallReading>();
  if (!format.empty()) reading->format = &find_tool_format(format);
  reading->tools = {
      {"f", Json::parse(R"({"properties": {"s": {"type": "string"}, "n": {"type": "integer"}}})")},
      {"g", nullptr}};
  return reading;
}

void add(Told& told, const AnswerDelta& delta) {
  told.text += delta.text;
  told.reasoning += delta.reasoning;
  for (const CallDelta& call : delta.calls) {
    if (!call.name.empty()) told.calls.emplace_back(call.name, "");
    EXPECT_EQ(call.index, std::ssize(told.calls) - 1);
    told.calls.back().second += call.arguments;
  }
}

Told tell(const std::shared_ptr<const CallReading>& reading, const std::vector<std::string>& pieces) {
  ToolCallStream stream(reading);
  Told told;
  for (const std::string& piece : pieces) add(told, stream.add(piece));
  add(told, stream.finish());
  EXPECT_EQ(stream.has_calls(), !told.calls.empty());
  return told;
}

// Expects the result of a text however it is cut.
void check(const std::shared_ptr<const CallReading>& reading, const std::string& text, const Told& expected) {
  EXPECT_EQ(tell(reading, {text}), expected) << text;
  std::vector<std::string> bytes;
  for (const char byte : text) bytes.emplace_back(1, byte);
  EXPECT_EQ(tell(reading, bytes), expected) << "byte by byte: " << text;
  for (size_t cut = 1; cut < text.size(); ++cut)
    EXPECT_EQ(tell(reading, {text.substr(0, cut), text.substr(cut)}), expected) << cut << ": " << text;
}

TEST(ToolCalls, EachFormatIsReadHoweverItIsCut) {
  struct Case {
    std::string format, text, content;
    Calls calls;
  };
  const std::string a = R"({"a": "}\" ]é"})", a_made = R"({"a":"}\" ]é"})", deep(70, '[');
  const Case cases[] = {
      {"hermes",
       "<tool_call>\n{\"name\": \"f\", \"arguments\": " + a + "}\n</tool_call>",
       "",
       {{"f", a_made}}},
      {"hermes",
       "Let me see. \n<tool_call>{\"name\": \"f\", \"arguments\": {\"t\": \"</tool_call>\"}}</tool_call>\n"
       "<tool_call>{\"name\": \"g\"}\n</tool_call>\n\nDone. ",
       "Let me see.Done. ",
       {{"f", R"({"t":"</tool_call>"})"}, {"g", "{}"}}},
      {"hermes",
       "<tool_call>\n{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}",
       "",
       {{"f", "{\"x\": 1}"}}},
      {"hermes",
       "<tool_call>[{\"name\": \"x\", \"arguments\": {}}, {\"name\": \"g\", \"parameters\": null}]",
       "",
       {{"x", "{}"}, {"g", "{}"}}},
      {"qwen3-coder",
       "<tool_call>\n<function=f>\n<parameter=s>\n12\n</parameter>\n<parameter=n>\n12\n</parameter>\n"
       "<parameter=z>\na <b>\n\nc\n</parameter>\n</function>\n</tool_call>",
       "",
       {{"f", R"({"s":"12","n":12,"z":"a <b>\n\nc"})"}}},
      {"qwen3-coder", "<function=g></function> <function=g>\n</function>", "", {{"g", "{}"}, {"g", "{}"}}},
      {"glm",
       "a<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>1</arg_value>\n<arg_key>n</arg_key><arg_value>[1]"
       "</arg_value>\n</tool_call>",
       "a",
       {{"f", R"({"s":"1","n":[1]})"}}},
      {"mistral",
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": " + a + ", \"id\": \"1\"}, {\"name\": \"g\"}]",
       "",
       {{"f", a_made}, {"g", "{}"}}},
      {"mistral",
       "Hm [TOOL_CALLS]f[ARGS]" + a + "[TOOL_CALLS]g[CALL_ID]abc123[ARGS]{}",
       "Hm",
       {{"f", a}, {"g", "{}"}}},
      {"deepseek",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n" + a +
           "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```"
           "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "",
       {{"f", a}, {"g", "{}"}}},
      {"deepseek",
       "x<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>" + a +
           "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "x",
       {{"f", a}}},
      {"jamba", "<tool_calls>[{\"name\": \"g\", \"arguments\": {}}]</tool_calls>", "", {{"g", "{}"}}},
      {"granite", "<|tool_call|>[{\"name\": \"g\", \"arguments\": {}}]", "", {{"g", "{}"}}},
      {"internlm2", "I <|action_start|><|plugin|>{\"name\": \"g\"}<|action_end|>", "I", {{"g", "{}"}}},
      {"command-r",
       "Action: ```json\n[{\"tool_name\": \"g\", \"parameters\": {\"x\": 1}}]\n```",
       "",
       {{"g", "{\"x\":1}"}}},
      {"functools", "functools[{\"name\": \"f\", \"arguments\": {}}]", "", {{"f", "{}"}}},
      {"functools",
       "<|tool_call|>functools [{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>",
       "",
       {{"f", "{}"}}},
      {"functools", "functools{\"name\": \"g\"}", "", {{"g", "{}"}}},
      {"functools", "<|tool_call|>[{\"name\": \"g\"}]<|/tool_call|>", "", {{"g", "{}"}}},
      {"functools", "import functools\nx", "import functools\nx", {}},
      {"llama",
       "{\"name\": \"f\", \"parameters\": " + a + "}; {\"name\": \"g\", \"parameters\": {}}",
       "",
       {{"f", a_made}, {"g", "{}"}}},
      {"llama",
       "So: <|python_tag|>{\"type\": \"function\", \"name\": \"x\", \"parameters\": {}}",
       "So:",
       {{"x", "{}"}}},
      {"llama", "[f(s='a')]", "", {{"f", "{\"s\":\"a\"}"}}},
      {"pythonic",
       " [f(s=\"it's\", n=-1.5e3, l=[1, {'k': None}], t=True), g( )]",
       "",
       {{"f", R"({"s":"it's","n":-1500.0,"l":[1,{"k":null}],"t":true})"}, {"g", "{}"}}},
      {"pythonic",
       R"(<|tool_call_start|>[f(s='\'\n\x41\u00e9\d)]')]<|tool_call_end|>)",
       "",
       {{"f", R"({"s":"'\nAé\\d)]"})"}}},
      {"json", "[{\"name\": \"f\", \"parameters\": {}}]", "", {{"f", "{}"}}},
      // These are no calls, and stay as they are.
      {"hermes", "", "", {}},
      {"hermes", " \n ", " \n ", {}},
      {"hermes", " A plain <tool_answer> \n", " A plain <tool_answer> \n", {}},
      {"hermes",
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}",
       "<tool_call>\n{\"name\": \"f\", "
       "\"arguments\": {\"a\": 1}",
       {}},
      {"hermes", "<tool_call>{\"name\": 1}</tool_call> b", "<tool_call>{\"name\": 1}</tool_call> b", {}},
      {"hermes",
       "<tool_call>{\"name\": \"f\", \"arguments\": [1]}",
       "<tool_call>{\"name\": \"f\", \"arguments\": [1]}",
       {}},
      {"hermes", "<tool_call>[]", "<tool_call>[]", {}},
      {"hermes",
       "<tool_call>{f: 1} <tool_call><tool_call>{\"name\": \"g\"}",
       "<tool_call>{f: 1} <tool_call>",
       {{"g", "{}"}}},
      {"hermes",
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": " + deep,
       "<tool_call>{\"name\": \"f\", "
       "\"arguments\": {\"a\": " +
           deep,
       {}},
      {"qwen3-coder",
       "<tool_call>\n<function=f>\n<parameter=s>1\n</function>\n</tool_call>",
       "<tool_call>\n<function=f>\n<parameter=s>1\n</function>\n</tool_call>",
       {}},
      {"qwen3-coder",
       "<function=f><parameter=n>" + deep + "</parameter></function>",
       "",
       {{"f", "{\"n\":\"" + deep + "\"}"}}},
      {"mistral", "[TOOL_CALLS]f {}", "[TOOL_CALLS]f {}", {}},
      {"mistral", "[TOOL_CALLS]f[ARGS]{1}", "[TOOL_CALLS]f[ARGS]{1}", {}},
      {"deepseek", "<｜tool▁calls▁begin｜> <｜tool▁sep｜>", "<｜tool▁calls▁begin｜> <｜tool▁sep｜>", {}},
      {"llama",
       "{\"name\": \"unknown\", \"parameters\": {}}",
       "{\"name\": \"unknown\", \"parameters\": {}}",
       {}},
      {"llama", "<|python_tag|>f.call(q=1)", "<|python_tag|>f.call(q=1)", {}},
      {"llama", "The list [f(x=1)] is {\"name\": \"f\"}", "The list [f(x=1)] is {\"name\": \"f\"}", {}},
      {"pythonic", "[1, 2]", "[1, 2]", {}},
      {"pythonic", "[f(1)]", "[f(1)]", {}},
      {"pythonic", "[f(x=y)]", "[f(x=y)]", {}},
      {"pythonic", "[f(x=1, x=2)]", "[f(x=1, x=2)]", {}},
      {"pythonic", "[f(x='\\ud800')]", "[f(x='\\ud800')]", {}},
      {"pythonic", "[f(x=1) g()]", "[f(x=1) g()]", {}},
      {"pythonic", "[f(x='", "[f(x='", {}},
  };
  for (const Case& each : cases) check(reading_of(each.format), each.text, {each.content, each.calls});
}

TEST(ToolCalls, ChannelsAreReadHoweverTheyAreCut) {
  struct Case {
    std::string text, content, reasoning;
    Calls calls;
  };
  const std::string call = R"(<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"s": "<b>"})";
  const Calls f = {{"f", R"({"s": "<b>"})"}};
  const Case cases[] = {
      {"<|channel|>analysis<|message|>Hm <x>.<|end|><|start|>assistant<|channel|>final<|message|>Hi "
       "\n<|return|>",
       "Hi \n",
       "Hm <x>.",
       {}},
      {"<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>analysis<|message|>B<|end|>\n"
       "<|start|>assistant" +
           call,
       "", "A\nB", f},
      {call + "<|call|>", "", "", f},
      {" to=functions.f<|channel|>commentary json<|message|>{\"s\": \"<b>\"}<|call|>", "", "", f},
      {"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant" + call +
           "<|call|><|start|>assistant" + call,
       "I look.",
       "",
       {f[0], f[0]}},
      // A text that names no channel, one without marks, and one that only begins like a head.
      {"<|start|>assistant<|message|>a<|channel|>final<|message|>b", "a\nb", "", {}},
      {" plain <|mess\n", " plain <|mess\n", "", {}},
      {"to=me: x", "to=me: x", "", {}},
      {"<|channel|>" + std::string(300, 'x') + "<|message|>",
       "<|channel|>" + std::string(300, 'x') + "<|message|>",
       "",
       {}},
      {"<|chan", "<|chan", "", {}},
      {" \n", " \n", "", {}},
      // These are no calls, and stay text with their marks.
      {call.substr(0, call.size() - 1), call.substr(0, call.size() - 1), "", {}},
      {"<|channel|>commentary to=functions.g<|message|>[1]<|call|>",
       "<|channel|>commentary to=functions.g<|message|>[1]<|call|>",
       "",
       {}},
      {"<|channel|>analysis to=python<|message|>1 + 1<|call|>", "", "1 + 1", {}},
  };
  const auto reading = reading_of("harmony");
  for (const Case& each : cases) check(reading, each.text, {each.content, each.calls, each.reasoning});
  auto one = reading_of("harmony");
  one->only_one = true;
  check(one, call + "<|call|>" + call, {"", f});
  auto without = reading_of("harmony");
  without->tools.clear();
  check(without, call + "<|call|>", {R"({"s": "<b>"})", {}});
}

TEST(ToolCalls, OneCallAndANamedFunction) {
  auto one = reading_of("mistral");
  one->only_one = true;
  check(one, "x [TOOL_CALLS][{\"name\": \"f\"}, {\"name\": \"g\"}] more", {"x", {{"f", "{}"}}});
  auto named = reading_of("");
  named->named = "f";
  check(named, "{\"x\": 1", {"", {{"f", "{\"x\": 1"}}});
  check(named, "", {"", {}});
}

TEST(ToolCalls, TextThatCannotBecomeACallIsGivenOutAtOnce) {
  ToolCallStream stream(reading_of("hermes"));
  EXPECT_EQ(stream.add("Hello ").text, "Hello");
  EXPECT_EQ(stream.add("you <tool").text, " you");
  EXPECT_EQ(stream.add("box>").text, " <toolbox>");
  EXPECT_EQ(stream.add("<tool_call> {\"name\": \"g\"").text, "");
  EXPECT_EQ(stream.add("} ").calls.size(), 0U);
  EXPECT_EQ(stream.add("</tool_call>").calls.size(), 1U);
}

TEST(ToolCalls, FormatsAreRecognisedFromTemplates) {
  std::ifstream file(testing::source_folder() + "/tests/reference/data/chat_template/families.json");
  const Json templates = Json::parse(file).at("templates");
  const std::pair<std::string, std::string> known[] = {{"llama31_tools", "llama"},
                                                       {"llama31_tools_in_system", "llama"},
                                                       {"mistral_v3_tools", "mistral"},
                                                       {"qwen25_tools", "hermes"},
                                                       {"qwen3", "hermes"},
                                                       {"qwen3_no_thinking", "hermes"},
                                                       {"deepseek_r1", "deepseek"},
                                                       {"hermes_tools", "hermes"},
                                                       {"command_r", "json"},
                                                       {"typescript_tools", "harmony"},
                                                       {"chatml", "none"},
                                                       {"llama2", "none"},
                                                       {"mistral_v1", "none"},
                                                       {"gemma", "none"},
                                                       {"phi4_tools", "none"}};
  RenderOptions options;
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  for (const auto& [name, format] : known) {
    const auto chat_template = ChatTemplate::parse(templates.at(name).get<std::string>(), name);
    const ToolFormat* found = recognise_tool_format(chat_template, options);
    EXPECT_EQ(found == nullptr ? "none" : std::string(found->name), format) << name;
  }
  // Other forms of an answer with a call, behind the prompt `A:`.
  const std::pair<std::string, std::string> answers[] = {
      {"<tool_call>\n<function={{c.name}}>\n{% for k, v in c.arguments | items %}<parameter={{k}}>\n{{v}}\n"
       "</parameter>\n{% endfor %}</function>\n</tool_call>",
       "qwen3-coder"},
      {"<tool_call>{{c.name}}\n{% for k, v in c.arguments | items "
       "%}<arg_key>{{k}}</arg_key>\n<arg_value>{{v}}"
       "</arg_value>\n{% endfor %}</tool_call>",
       "glm"},
      {"[TOOL_CALLS]{{c.name}}[ARGS]{{c.arguments | tojson}}", "mistral"},
      {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{c.name}}<｜tool▁sep｜>{{c.arguments | tojson}}"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "deepseek"},
      {"[{{c.name}}({% for k, v in c.arguments | items %}{{k}}='{{v}}'{% endfor %})]", "pythonic"},
      {"functools[{{c | tojson}}]", "functools"},
      {" to=functions.{{c.name}}<|channel|>commentary json<|message|>{{c.arguments | tojson}}<|call|>",
       "harmony"},
      {"{{c.name}}", "none"},
  };
  for (const auto& [answer, format] : answers) {
    const std::string source =
        "{% for m in messages %}{% if m.role == 'user' %}{{m.content}}{% else %}A:"
        "{% set c = m.tool_calls[0].function %}" +
        answer + "{% endif %}{% endfor %}{% if add_generation_prompt %}A:{% endif %}";
    const ToolFormat* found = recognise_tool_format(ChatTemplate::parse(source, "made"), options);
    EXPECT_EQ(found == nullptr ? "none" : std::string(found->name), format) << answer;
  }
  EXPECT_THROW(find_tool_format("morse"), Error);
}

}  // namespace
}  // namespace tessera::text

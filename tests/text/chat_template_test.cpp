#include "tessera/text/chat_template/chat_template.h"

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"

namespace tessera::text {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

const Json kMessages = Json::parse(R"([
  {"role": "system", "content": "Be brief."},
  {"role": "user", "content": "  Say <|im_start|>  "},
  {"role": "assistant", "content": "<|im_end|>"}
])");

RenderedChat render(const std::string& source, const Json& messages = kMessages,
                    const Json& tools = nullptr) {
  return ChatTemplate::parse(source, "t.jinja").render(messages, tools, {});
}

std::string text_of(const std::string& source, const Json& messages = kMessages) {
  return render(source, messages).text();
}

// Returns text and message number of each piece of content; the template's own text is left out.
std::vector<std::pair<std::string, int64_t>> contents(const RenderedChat& chat) {
  std::vector<std::pair<std::string, int64_t>> out;
  for (const RenderedSegment& segment : chat.segments) {
    if (segment.is_content) out.emplace_back(segment.text, segment.message);
  }
  return out;
}

std::string generated(const RenderedChat& chat) {
  std::string out;
  for (const RenderedSegment& segment : chat.segments) {
    if (segment.in_generation) out += segment.text;
  }
  return out;
}

std::string error_of(const std::string& source, const Json& messages = kMessages) {
  try {
    render(source, messages);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Model);
    return error.what();
  }
  return "no error";
}

std::string parse_error_of(const std::string& source) {
  try {
    ChatTemplate::parse(source, "t.jinja");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Model);
    return error.what();
  }
  return "no error";
}

// --- where text comes from ---

using Pieces = std::vector<std::pair<std::string, int64_t>>;

TEST(ChatTemplateOrigin, control_tokens_of_the_user_are_content) {
  const RenderedChat chat = ChatTemplate::builtin("chatml").render(kMessages, nullptr, {});
  EXPECT_EQ(chat.text(),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n  Say <|im_start|>  <|im_end|>\n"
            "<|im_start|>assistant\n<|im_end|><|im_end|>\n");
  EXPECT_EQ(contents(chat), (Pieces{{"Be brief.", 0}, {"  Say <|im_start|>  ", 1}, {"<|im_end|>", 2}}));
  EXPECT_EQ(chat.segments[0].text, "<|im_start|>system\n");
  EXPECT_FALSE(chat.segments[0].is_content);
  EXPECT_EQ(chat.segments[0].message, -1);
}

TEST(ChatTemplateOrigin, survives_every_operation_on_strings) {
  const Json messages = Json::parse(R"([{"role": "user", "content": " aB,c "}])");
  const auto pieces = [&](const std::string& expression) {
    return contents(render("{% set c = messages[0].content %}<{{ " + expression + " }}>", messages));
  };
  EXPECT_EQ(pieces("c | trim"), (Pieces{{"aB,c", 0}}));
  EXPECT_EQ(pieces("c.strip()[1:3]"), (Pieces{{"B,", 0}}));
  EXPECT_EQ(pieces("c[::-1]"), (Pieces{{" c,Ba ", 0}}));
  EXPECT_EQ(pieces("'x' + c ~ 'y'"), (Pieces{{" aB,c ", 0}}));
  EXPECT_EQ(pieces("c.replace(',', '<|x|>')"), (Pieces{{" aB", 0}, {"c ", 0}}));
  EXPECT_EQ(pieces("'<|x|>'.replace('x', c)"), (Pieces{{" aB,c ", 0}}));
  EXPECT_EQ(pieces("c.split(',') | join('-')"), (Pieces{{" aB", 0}, {"c ", 0}}));
  EXPECT_EQ(pieces("'-'.join(c.split(','))"), (Pieces{{" aB", 0}, {"c ", 0}}));
  EXPECT_EQ(pieces("c.split(',')[1]"), (Pieces{{"c ", 0}}));
  EXPECT_EQ(pieces("c | upper"), (Pieces{{" AB,C ", 0}}));
  EXPECT_EQ(pieces("c | title"), (Pieces{{" Ab,c ", 0}}));
  EXPECT_EQ(pieces("c.capitalize()"), (Pieces{{" ab,c ", 0}}));
  EXPECT_EQ(pieces("c * 2"), (Pieces{{" aB,c  aB,c ", 0}}));
  EXPECT_EQ(pieces("'[%s]' % c"), (Pieces{{" aB,c ", 0}}));
  EXPECT_EQ(pieces("c | tojson"), (Pieces{{"\" aB,c \"", 0}}));
  EXPECT_EQ(pieces("{'k': c} | tojson"), (Pieces{{"\" aB,c \"", 0}}));
  EXPECT_EQ(pieces("[c]"), (Pieces{{" aB,c ", 0}}));
  EXPECT_EQ(pieces("c | list | join"), (Pieces{{" aB,c ", 0}}));
  EXPECT_EQ(pieces("c | reverse"), (Pieces{{" c,Ba ", 0}}));
  EXPECT_EQ(pieces("c | indent"), (Pieces{{" aB,c ", 0}}));
  EXPECT_EQ(pieces("c | escape"), (Pieces{{" aB,c ", 0}}));
  EXPECT_EQ(pieces("c | default('x')"), (Pieces{{" aB,c ", 0}}));
  EXPECT_EQ(pieces("c.splitlines() | first"), (Pieces{{" aB,c ", 0}}));
  EXPECT_EQ(pieces("c.partition(',')[2]"), (Pieces{{"c ", 0}}));
  EXPECT_EQ(pieces("c.removeprefix(' a')"), (Pieces{{"B,c ", 0}}));
  EXPECT_EQ(pieces("messages | map(attribute='content') | map('trim') | join"), (Pieces{{"aB,c", 0}}));
}

TEST(ChatTemplateOrigin, survives_statements) {
  const Json messages = Json::parse(R"([{"role": "user", "content": "C"}])");
  const auto pieces = [&](const std::string& source) { return contents(render(source, messages)); };
  const std::string c = "messages[0].content";
  EXPECT_EQ(pieces("{% set x %}<{{ " + c + " }}>{% endset %}{{ x }}"), (Pieces{{"C", 0}}));
  EXPECT_EQ(pieces("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(" + c + ") | trim }}"), (Pieces{{"C", 0}}));
  EXPECT_EQ(pieces("{% filter upper %}<{{ " + c + " }}>{% endfilter %}"), (Pieces{{"C", 0}}));
  EXPECT_EQ(pieces("{% set ns = namespace(x='') %}{% for i in [1, 2] %}{% set ns.x = ns.x + '-' + " + c +
                   " %}{% endfor %}{{ ns.x }}"),
            (Pieces{{"C", 0}, {"C", 0}}));
  EXPECT_EQ(pieces("{% for l in " + c + " %}{{ l }}{% endfor %}"), (Pieces{{"C", 0}}));
}

TEST(ChatTemplateOrigin, the_role_is_scaffold_and_the_rest_of_a_message_is_content) {
  const Json messages = Json::parse(
      R"([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"k": "v"}}}]}])");
  const RenderedChat chat = render(
      "{% for m in messages %}{{ m['role'] }}:{{ m.content }}{% for t in m.tool_calls or [] %}"
      "{{ t.function.name }}({% for k, v in t.function.arguments.items() %}{{ k }}={{ v }}{% endfor %})"
      "{% endfor %};{% endfor %}",
      messages);
  EXPECT_EQ(chat.text(), "user:a;assistant:f(k=v);");
  EXPECT_EQ(contents(chat), (Pieces{{"a", 0}, {"f", 1}, {"k", 1}, {"v", 1}}));
}

TEST(ChatTemplateOrigin, json_of_data_is_one_content_piece) {
  const Json tools = Json::parse(R"([{"name": "f<|x|>", "n": 1, "list": [true, null]}])");
  const RenderedChat chat = render("<tools>{{ tools | tojson }}</tools>", kMessages, tools);
  EXPECT_EQ(contents(chat), (Pieces{{R"([{"name": "f<|x|>", "n": 1, "list": [true, null]}])", -1}}));
  const RenderedChat one = render("{{ messages[1] | tojson(indent=1) }}");
  EXPECT_EQ(one.segments.front().message, 1);
  const RenderedChat shown = render("{{ tools }}", kMessages, tools);
  EXPECT_EQ(contents(shown), (Pieces{{"[{'name': 'f<|x|>', 'n': 1, 'list': [True, None]}]", -1}}));
}

TEST(ChatTemplateOrigin, variables_are_scaffold) {
  RenderOptions options;
  options.variables =
      std::make_shared<const Json>(Json::parse(R"({"greeting": "<|hi|>", "thinking": false})"));
  const RenderedChat chat =
      ChatTemplate::parse("{{ greeting }}{{ thinking is false }}", "t").render(kMessages, nullptr, options);
  ASSERT_EQ(chat.segments.size(), 1u);
  EXPECT_EQ(chat.segments[0].text, "<|hi|>True");
  EXPECT_FALSE(chat.segments[0].is_content);
  options.variables = std::make_shared<const Json>(Json::parse(R"({"messages": []})"));
  EXPECT_THROW(ChatTemplate::parse("", "t").render(kMessages, nullptr, options), Error);
}

// --- generation ---

TEST(ChatTemplateGeneration, marks_what_is_inside) {
  const RenderedChat chat = render(
      "{% for m in messages %}{% if m.role == 'assistant' %}A:{% generation %}{{ m.content }}<e>{% "
      "endgeneration %}"
      "{% else %}U:{{ m.content }}{% endif %}{% endfor %}");
  EXPECT_EQ(generated(chat), "<|im_end|><e>");
  ASSERT_GE(chat.segments.size(), 2u);
  const RenderedSegment& words = chat.segments[chat.segments.size() - 2];
  EXPECT_EQ(std::tie(words.text, words.is_content, words.message, words.in_generation),
            std::make_tuple(std::string("<|im_end|>"), true, int64_t{2}, true));
  EXPECT_TRUE(ChatTemplate::parse("{% generation %}{% endgeneration %}", "t").has_generation_blocks(nullptr));
  EXPECT_FALSE(ChatTemplate::parse("{{ generation }}", "t").has_generation_blocks(nullptr));
}

TEST(ChatTemplateGeneration, survives_macros_and_block_sets) {
  EXPECT_EQ(generated(render("{% macro f() %}a{% generation %}b{% endgeneration %}c{% endmacro %}{{ f() }}")),
            "b");
  EXPECT_EQ(
      generated(render("{% set x %}a{% generation %}b{% endgeneration %}c{% endset %}-{{ x | upper }}")),
      "B");
}

// --- the built-in templates ---

std::string builtin_text(const std::string& name, const Json& messages, bool prompt = false) {
  RenderOptions options;
  options.add_generation_prompt = prompt;
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  return ChatTemplate::builtin(name).render(messages, nullptr, options).text();
}

const Json kTwoTurns = Json::parse(R"([
  {"role": "system", "content": "S"}, {"role": "user", "content": "U1"}, {"role": "assistant", "content": "A1"},
  {"role": "user", "content": "U2"}, {"role": "assistant", "content": "A2"}
])");

TEST(ChatTemplateBuiltin, formats) {
  EXPECT_EQ(
      builtin_text("chatml", kTwoTurns, true),
      "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU1<|im_end|>\n<|im_start|>assistant\nA1<|im_end|>\n"
      "<|im_start|>user\nU2<|im_end|>\n<|im_start|>assistant\nA2<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(builtin_text("llama3", kTwoTurns),
            "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nU1<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nA1<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nU2<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nA2<|eot_id|>");
  EXPECT_EQ(builtin_text("mistral", kTwoTurns), "<s>[INST] S\n\nU1 [/INST] A1</s>[INST] U2 [/INST] A2</s>");
  EXPECT_EQ(builtin_text("alpaca", kTwoTurns),
            "<s>S\n\n### Instruction:\nU1\n\n### Response:\nA1</s>\n\n### Instruction:\nU2\n\n### "
            "Response:\nA2</s>");
  const Json one = Json::parse(R"([{"role": "user", "content": "U"}])");
  EXPECT_EQ(builtin_text("alpaca", one, true), "<s>### Instruction:\nU\n\n### Response:\n");
  EXPECT_EQ(builtin_text("llama3", one, true),
            "<s><|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|><|start_header_id|>assistant<|end_"
            "header_id|>\n\n");
  EXPECT_EQ(builtin_text("mistral", one, true), "<s>[INST] U [/INST]");
}

TEST(ChatTemplateBuiltin, generation_holds_the_words_and_their_end) {
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"chatml", "A1<|im_end|>A2<|im_end|>"},
      {"llama3", "A1<|eot_id|>A2<|eot_id|>"},
      {"mistral", "A1</s>A2</s>"},
      {"alpaca", "A1</s>A2</s>"},
      {"gemma4", "A1<turn|>A2<turn|>"},
      {"jamba", "A1<|eom|>A2<|eom|>"},
      {"mistral_v7_tekken", "A1</s>A2</s>"},
      {"phi_4", "A1<|im_end|>A2<|im_end|>"},
      {"exaone4", "<think>\n\n</think>\n\nA1[|endofturn|]<think>\n\n</think>\n\nA2[|endofturn|]"},
      {"deepseek_v3", "A1<｜end▁of▁sentence｜>A2<｜end▁of▁sentence｜>"}};
  RenderOptions options;
  options.eos_token = "</s>";
  for (const auto& [name, words] : expected) {
    const ChatTemplate one = ChatTemplate::builtin(name);
    EXPECT_TRUE(one.has_generation_blocks(nullptr)) << name;
    const RenderedChat chat = one.render(kTwoTurns, nullptr, options);
    EXPECT_EQ(generated(chat), words) << name;
    EXPECT_EQ(contents(chat), (Pieces{{"S", 0}, {"U1", 1}, {"A1", 2}, {"U2", 3}, {"A2", 4}})) << name;
  }
  const std::vector<std::string> names = ChatTemplate::builtin_names();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 31U);
}

TEST(ChatTemplateBuiltin, unknown_name_is_an_error_of_the_recipe) {
  try {
    ChatTemplate::builtin("chatlm");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Config);
    EXPECT_THAT(error.what(), HasSubstr("alpaca, chatml, llama3, mistral"));
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'chatml'"));
  }
}

TEST(ChatTemplateBuiltin, refuses_conversations_out_of_its_format) {
  EXPECT_THROW(builtin_text("mistral", Json::parse(R"([{"role": "assistant", "content": "A"}])")), Error);
  EXPECT_THROW(builtin_text("alpaca", Json::parse(R"([{"role": "tool", "content": "A"}])")), Error);
  EXPECT_THROW(builtin_text("alpaca", Json::parse(R"([{"role": "user", "content": "U"},
                                                      {"role": "system", "content": "S"}])")),
               Error);
  EXPECT_THROW(builtin_text("chatml", Json::parse(R"([{"role": "user"}])")), Error);
  // Their families' default system messages are not written.
  for (const char* const name : {"mistral_v7_tekken", "phi_4"}) {
    EXPECT_THROW(builtin_text(name, Json::parse(R"([{"role": "user", "content": "U"}])")), Error) << name;
    EXPECT_THROW(builtin_text(name, Json::array()), Error) << name;
  }
}

// --- errors ---

TEST(ChatTemplateErrors, syntax_names_line_and_column) {
  EXPECT_THAT(parse_error_of("a\n  {{ 1 + }}"), HasSubstr("t.jinja:2:10: unexpected '}}'"));
  EXPECT_THAT(parse_error_of("{% if x %}\n\n"), HasSubstr("the template ends inside a block"));
  EXPECT_THAT(parse_error_of("{% if x %}"), HasSubstr("need {% endif %}"));
  EXPECT_THAT(parse_error_of("é{{ 'é' 1 }}"), HasSubstr("t.jinja:1:9"));
  EXPECT_THAT(parse_error_of("x\n\n{# a"), HasSubstr("t.jinja:3:1: this comment has no closing #}"));
  EXPECT_THAT(parse_error_of("{{ 'a"), HasSubstr("t.jinja:1:4: this string has no closing quote"));
  EXPECT_THAT(parse_error_of("{{ (1] }}"), HasSubstr("t.jinja:1:6: unexpected ']'"));
  EXPECT_THAT(parse_error_of("{{ 99999999999999999999 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(parse_error_of("\xff{{ 1 }}"), HasSubstr("t.jinja: byte 0"));
  EXPECT_THAT(parse_error_of("{{ range(*x, *x) }}"), HasSubstr("t.jinja:1:14: arguments are spread twice"));
}

TEST(ChatTemplateErrors, unknown_parts_are_found_when_parsing) {
  EXPECT_THAT(parse_error_of("{% if false %}{{ x | nosuch }}{% endif %}"),
              HasSubstr("error[E-MODEL-TEMPLATE-UNKNOWN]: t.jinja:1:22: unknown filter 'nosuch'"));
  EXPECT_THAT(parse_error_of("{{ x is nosuch }}"), HasSubstr("t.jinja:1:9: unknown test 'nosuch'"));
  EXPECT_THAT(parse_error_of("\n{% nosuch %}"), HasSubstr("t.jinja:2:4: unknown tag 'nosuch'"));
  EXPECT_THAT(parse_error_of("{{ nosuch(1) }}"), HasSubstr("t.jinja:1:4: unknown function 'nosuch'"));
  EXPECT_THAT(parse_error_of("{{ x.nosuch(1) }}"), HasSubstr("t.jinja:1:6: unknown method 'nosuch'"));
  EXPECT_THAT(parse_error_of("{{ x | map('nosuch') }}"), HasSubstr("t.jinja:1:12: unknown filter 'nosuch'"));
  EXPECT_THAT(parse_error_of("{{ x | selectattr('a', 'nosuch') }}"), HasSubstr("unknown test 'nosuch'"));
  EXPECT_THAT(parse_error_of("{{ x | reject('nosuch') }}"), HasSubstr("unknown test 'nosuch'"));
  EXPECT_THAT(parse_error_of("{% for x in y recursive %}{% endfor %}"), HasSubstr("t.jinja:1:15"));
  for (const char* tag :
       {"include 'a'", "import 'a' as b", "extends 'a'", "block x", "do x", "autoescape true"}) {
    EXPECT_THAT(parse_error_of("{% " + std::string(tag) + " %}"), HasSubstr("unknown tag")) << tag;
  }
}

TEST(ChatTemplateErrors, attributes_of_python_objects_are_out_of_reach) {
  EXPECT_THAT(parse_error_of("{{ ''.__class__.__mro__ }}"), HasSubstr("out of reach"));
  EXPECT_THAT(parse_error_of("{{ x['__globals__'] }}"), HasSubstr("out of reach"));
  EXPECT_THAT(parse_error_of("{{ x | attr('y') }}"), HasSubstr("unknown filter"));
  EXPECT_EQ(text_of("{{ messages['__cla' ~ 'ss__'] is defined }}{{ range['func_code'] is defined }}"),
            "FalseFalse");
  EXPECT_THAT(error_of("{{ messages.append(1) }}"), HasSubstr("may not change"));
}

TEST(ChatTemplateErrors, running_names_the_place) {
  EXPECT_THAT(error_of("\n {{ nope.x }}"),
              HasSubstr("error[E-MODEL-TEMPLATE-RUN]: t.jinja:2:10: 'nope' is undefined"));
  EXPECT_THAT(error_of("{{ 'a' + 1 }}"),
              HasSubstr("t.jinja:1:8: unsupported operand types for +: 'str' and 'int'"));
  EXPECT_THAT(error_of("{{ messages[0].nope + 'x' }}"), HasSubstr("'dict object' has no attribute 'nope'"));
  EXPECT_THAT(error_of("{% for a, b in [1] %}{% endfor %}"), HasSubstr("not iterable"));
  EXPECT_THAT(error_of("{% for a in [1] %}{% for b in loop %}{% endfor %}{% endfor %}"),
              HasSubstr("taking the items of 'loop' itself is not supported"))
      << "for Jinja it is iterable";
  EXPECT_THAT(error_of("{{ raise_exception('roles must alternate') }}"),
              HasSubstr("error[E-MODEL-TEMPLATE-RAISED]: t.jinja:1:4: the chat template refuses the "
                        "conversation: roles must alternate"));
  EXPECT_THAT(error_of("{{ 'x' | replace('a') }}"), HasSubstr("'replace' needs argument 'new'"));
  EXPECT_THAT(error_of("{{ 'x' | trim(y=1) }}"), HasSubstr("'trim' has no argument 'y'"));
  EXPECT_THAT(error_of("x", Json::object()), HasSubstr("not an array"));
}

// --- limits ---

TEST(ChatTemplateLimits, steps) {
  const std::string loops = "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}";
  EXPECT_THAT(error_of(loops), HasSubstr("error[E-MODEL-TEMPLATE-LIMIT]"));
  EXPECT_THAT(error_of(loops), HasSubstr("1000000 steps"));
  EXPECT_THAT(error_of("{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}"),
              HasSubstr("too deeply"));
  // Each level doubles the size. Work and output are bounded, even if values are shared in memory.
  const std::string doubled =
      "{% set ns = namespace(x=['a']) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  EXPECT_THAT(error_of(doubled + "{{ ns.x }}"), HasSubstr("TEMPLATE-LIMIT"));
  EXPECT_THAT(error_of(doubled + "{{ ns.x | tojson }}"), HasSubstr("TEMPLATE-LIMIT"));
  EXPECT_THAT(
      error_of("{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}"
               "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}"),
      HasSubstr("TEMPLATE-LIMIT"));
}

TEST(ChatTemplateLimits, sizes) {
  for (const char* source :
       {"{{ 'a' * 10**9 }}", "{{ 10**9 * 'ab' }}", "{{ [1] * 10**9 }}", "{{ range(10**12) }}",
        "{{ range(0 - 10**18, 10**18) }}", "{{ 'x' | indent(10**9) }}", "{{ [1] | tojson(indent=10**9) }}",
        "{{ '%1000000000d' % 1 }}", "{{ 2**64 }}", "{{ 10**18 * 10 }}",
        "{{ ('a' * 10**6).replace('a', 'b' * 10**6) }}", "{{ ('a' * 10**6) | join('b' * 10**6) }}",
        "{{ ('a,' * 11 * 10**5).split(',') }}", "{{ [1] | batch(10**12, 0) | list }}",
        "{% set ns = namespace(s='ab') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for i in range(10) %}{{ s }}{% endfor %}"}) {
    EXPECT_THAT(error_of(source), HasSubstr("TEMPLATE-LIMIT")) << source;
  }
  EXPECT_EQ(text_of("{{ 'a' * 8 * 2**20 }}").size(), 8u << 20);
  EXPECT_THAT(parse_error_of(std::string((1u << 20) + 1, 'a')), HasSubstr("TEMPLATE-LIMIT"));
}

// Each of these templates once took minutes or gigabytes although it looks small: in a filter, a method, an
// operator or a value that was not counted, or was slower than linear.
TEST(ChatTemplateLimits, everything_that_grows_or_is_read_is_counted) {
  const std::string long_text = "{% set a = 'a' * 8000000 %}";
  const std::string pairs =
      "{% set t = namespace(x=(1,)) %}{% for i in range(100) %}{% set t.x = (t.x, t.x) %}"
      "{% endfor %}";
  for (
      const std::string& source : std::vector<std::string>{
          "{% set n = namespace(l=[]) %}{% for i in range(200) %}"
          "{% set n.l = n.l + [range(100000) | batch(1) | list] %}{% endfor %}",
          "{% set n = namespace(l=[]) %}{% for i in range(200) %}{% set n.l = n.l + ['a' * 8000000] %}"
          "{% endfor %}",
          "{% set n = namespace(l=[]) %}{% for i in range(200) %}{% set n.l = n.l + [messages[0][i * 'x']] %}"
          "{% for j in range(9999) %}{% set n.l = [n.l, 'a' * 9999][:1] %}{% endfor %}{% endfor %}",
          "{% for i in range(200) %}{% filter upper %}{{ 'a' * 8000000 }}{% endfilter %}{% endfor %}",
          "{% for i in range(200) %}{% set x %}{{ 'a' * 8000000 }}{% endset %}{% endfor %}",
          "{% macro m() %}{{ 'a' * 8000000 }}{% endmacro %}{% for i in range(200) %}{% set x = m() %}{% "
          "endfor %}",
          pairs + "{{ {t.x: 1} | length }}",
          pairs + "{{ [t.x] | unique | list | length }}",
          "{{ ('a' * 8000000).strip('b' * 4000000 ~ 'a') | length }}",
          "{{ ('a\r' * 4000000).splitlines() | length }}",
          "{{ ('a\r' * 4000000) | indent | length }}",
          "{{ ('a ' * 4000000).split() | length }}",
          "{{ ('a' * 2000000) | list | length }}",
          "{{ ('a.' * 4000000) | length }}{{ [1] | map(attribute='a.' * 4000000) | list }}",
          long_text + "{% for i in range(99999) %}{% set x = a | int %}{% endfor %}",
          long_text + "{% for i in range(99999) %}{% set x = a | float %}{% endfor %}",
          long_text + "{% for i in range(99999) %}{% set x = a is lower %}{% endfor %}",
          long_text + "{% for i in range(99999) %}{% set x = a.rfind('b') %}{% endfor %}",
          long_text + "{% for i in range(99999) %}{% set x = a.isalpha() %}{% endfor %}",
          long_text + "{% set t = ('b' * 8000000,) * 100000 %}{{ a.endswith(t) }}{% for i in range(99999) %}"
                      "{% set x = a.endswith(a) %}{% endfor %}",
          long_text + "{% set d = {a ~ '1': 1, a ~ '2': 2} %}{% set k = a ~ '3' %}{% for i in range(99999) %}"
                      "{% set x = k in d %}{% endfor %}",
          "{{ (messages[0].content[0] + 'a') * 1000000 }}",
          "{% set s = messages[0].content[0] + 'a' %}{% for i in range(20) %}{% set s = s + s %}{{ s }}{{ s "
          "}}"
          "{{ s * 300000 }}{% endfor %}",
          "{{ ('%(a)f' * 1600000) | format(a=1) | length }}",
          "{{ range(100000) | list | tojson(indent=9999) }}",
          "{{ range(100000) | list | tojson(separators=['a' * 8000000, 'b']) }}",
          "{{ range(100000) | list | unique | list }}",
          "{% set d = dict(range(1000) | map('string') | batch(2)) %}{{ namespace(**d) }}",
          "{% macro m(a) %}{{ kwargs }}{% endmacro %}{{ m(**dict(range(1000) | map('string') | batch(2))) "
          "}}"}) {
    EXPECT_THAT(error_of(source), HasSubstr("TEMPLATE-LIMIT")) << source;
  }
  EXPECT_EQ(text_of("{{ ('a' * 4000000) in ('a' * 3999999 + 'b') * 2 }}"), "False");
  EXPECT_EQ(text_of("{{ ('b' ~ 'a' * 3999999) in 'a' * 8000000 }}"), "False");
  EXPECT_EQ(text_of("{{ ('a' * 8000000).find('a' * 3999999 ~ 'b') }}"), "-1");
  EXPECT_EQ(text_of("{{ ('a' * 2000000).rfind('b' ~ 'a' * 999999) }}"), "-1");
  EXPECT_EQ(text_of("{{ [] * 9223372036854775807 }}"), "[]");
  EXPECT_EQ(text_of("{{ ('a' * 2000000).count('a' * 999999 ~ 'b') }}"), "0");
}

TEST(ChatTemplateLimits, chains_of_loops_are_as_deep_as_other_values) {
  EXPECT_THAT(error_of("{% set n = namespace(p=0) %}{% for i in range(9999) %}{% for j in [n.p] %}"
                       "{% set n.p = loop %}{% endfor %}{% endfor %}"),
              HasSubstr("nests more than 128 deep"));
}

TEST(ChatTemplateLimits, messages_and_names_are_short) {
  EXPECT_LT(error_of("{{ raise_exception('a' * 8000000) }}").size(), 3000u);
  EXPECT_LT(error_of("{{ [1] | map('a' * 8000000) | list }}").size(), 3000u);
  EXPECT_LT(error_of("{{ [1] | select('a' * 100000) | list }}").size(), 3000u);
  EXPECT_LT(error_of("{{ messages[0]['a' * 8000000].x }}").size(), 3000u);
  EXPECT_THAT(parse_error_of("{{ " + std::string(300, 'a') + " }}"), HasSubstr("255 bytes"));
  std::string arguments;
  for (int i = 0; i < 300; ++i) arguments += "a" + std::to_string(i) + "=1,";
  EXPECT_THAT(parse_error_of("{{ range(" + arguments + ") }}"), HasSubstr("255 arguments"));
  EXPECT_THAT(parse_error_of("{% macro m(" + arguments + ") %}{% endmacro %}"), HasSubstr("255 arguments"));
}

TEST(ChatTemplateLimits, searches_from_the_right_find_what_they_found) {
  EXPECT_EQ(text_of("{{ 'aXbXc'.rsplit('X', 1) }}"), "['aXb', 'c']");
  EXPECT_EQ(text_of("{{ 'aXXXc'.rsplit('XX', 2) }}"), "['aX', 'c']");
  EXPECT_EQ(text_of("{{ 'XaX'.rsplit('X', 9) }}"), "['', 'a', '']");
  EXPECT_EQ(text_of("{{ 'aXbXc'.rpartition('X') }}{{ 'abab'.rfind('ab') }}{{ 'ab'.rfind('') }}"),
            "('aXb', 'X', 'c')22");
}

std::string repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(ChatTemplateLimits, depth) {
  constexpr int kDeep = 10000;
  const std::vector<std::string> sources = {
      "{{ " + repeated("(", kDeep) + "1" + repeated(")", kDeep) + " }}",
      "{{ " + repeated("[", kDeep) + repeated("]", kDeep) + " }}",
      "{{ " + repeated("{1: ", kDeep) + "1" + repeated("}", kDeep) + " }}",
      "{{ " + repeated("x[", kDeep) + "1" + repeated("]", kDeep) + " }}",
      "{{ " + repeated("range(", kDeep) + "1" + repeated(")", kDeep) + " }}",
      "{{ " + repeated("not ", kDeep) + "1 }}",
      "{{ " + repeated("-", kDeep) + "1 }}",
      "{{ 1" + repeated(" + 1", kDeep) + " }}",
      "{{ 1" + repeated(" and 1", kDeep) + " }}",
      "{{ x" + repeated(".y", kDeep) + " }}",
      "{{ 'x'" + repeated(" | trim", kDeep) + " }}",
      "{{ 1" + repeated(" if 1 else 1", kDeep) + " }}",
      repeated("{% if 1 %}", kDeep) + repeated("{% endif %}", kDeep),
      repeated("{% for a in b %}", kDeep) + repeated("{% endfor %}", kDeep),
      repeated("{% macro a() %}", kDeep) + repeated("{% endmacro %}", kDeep),
      "{% for " + repeated("(", kDeep) + "a" + repeated(")", kDeep) + " in b %}{% endfor %}",
      repeated("{% if 1 %}", kDeep),
  };
  for (const std::string& source : sources) {
    EXPECT_THAT(parse_error_of(source), HasSubstr("deep")) << source.substr(0, 20);
  }
  EXPECT_THAT(error_of("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(1) }}"), HasSubstr("too deeply"));
  EXPECT_THAT(
      error_of("{% set ns = namespace(x=1) %}{% for i in range(10000) %}{% set ns.x = [ns.x] %}{% endfor %}"),
      HasSubstr("nests more than 128 deep"));
  Json deep = "x";
  for (int i = 0; i < 1000; ++i) deep = Json::array({std::move(deep)});
  EXPECT_THAT(error_of("x", Json::array({{{"role", "user"}, {"content", deep}}})), HasSubstr("128 deep"));
  EXPECT_THAT(error_of("{% set a = namespace() %}{% set a.a = a %}{{ a }}"), HasSubstr("TEMPLATE-LIMIT"));
}

TEST(ChatTemplateLimits, ordinary_recursion_and_long_chats_are_far_from_them) {
  EXPECT_EQ(
      text_of("{% macro f(n) %}{% if n %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) | length }}"),
      "71");
  Json messages = Json::array();
  for (int i = 0; i < 2000; ++i) {
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(1000, 'x')}});
  }
  const RenderedChat chat = ChatTemplate::builtin("llama3").render(messages, nullptr, {});
  EXPECT_EQ(contents(chat).size(), 2000u);
  EXPECT_EQ(chat.segments.back().message, -1);
}

Json call_with(const Json& arguments, const Json& more = Json::object()) {
  Json message = {{"role", "assistant"}};
  message.update(more);
  message["tool_calls"] =
      Json::array({{{"type", "function"}, {"function", {{"name", "f"}, {"arguments", arguments}}}}});
  return Json::array({{{"role", "user"}, {"content", "q"}}, message});
}

TEST(MessageForm, ArgumentsAreHandedOverAsTheTemplateTakesThem) {
  const auto loop = [](const std::string& arguments) {
    return "{% for m in messages if m.tool_calls %}{% for c in m.tool_calls %}" + arguments +
           "{% endfor %}{% endfor %}";
  };
  struct Case {
    std::string source, text, object;  // what the two forms give
  };
  const std::string given = "{\"a\":  1}", plain = "{\"a\": 1}";
  const Case cases[] = {
      // It joins texts, as DeepSeek-V3's does: text stays as it came, and an object becomes JSON.
      {loop("{{ 'call ' + c['function']['arguments'] }}"), "call " + given, "call " + plain},
      // It takes both, as Qwen3's does.
      {loop("{% set a = c.function.arguments %}{{ a if a is string else a | tojson }}"), given, plain},
      {loop("{{ c.function.arguments }}"), given, "{'a': 1}"},
      // These need an object.
      {loop("{{ c.function.arguments | tojson }}"), plain, plain},
      {loop("{{ c.function | tojson }}"), "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
       "{\"name\": \"f\", \"arguments\": {\"a\": 1}}"},
      {loop("{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}"), "a=1", "a=1"},
      // It writes no call at all.
      {"{{ messages | length }}", "2", "2"},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(text_of(one.source, call_with(given)), one.text) << one.source;
    EXPECT_EQ(text_of(one.source, call_with({{"a", 1}})), one.object) << one.source;
  }
  const ChatTemplate needs_object = ChatTemplate::parse(cases[3].source, "t");
  EXPECT_EQ(needs_object.render(call_with(""), nullptr, {}).text(), "{}");
  try {
    needs_object.render(call_with("{broken"), nullptr, {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-DATA-TOOL-ARGUMENTS");
    EXPECT_THAT(error.what(), HasSubstr("got {broken"));
  }
}

TEST(MessageForm, KeysThatAreNullAreLeftOut) {
  const std::string source =
      "{% for m in messages %}{{ m.role }}:{% if 'content' in m %}{% if m.content is string %}{{ m.content }}"
      "{% else %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}{% endif %}"
      "{{ m.name if 'name' in m else '' }};{% endfor %}";
  EXPECT_EQ(text_of(source, call_with("{}", {{"content", nullptr}, {"name", nullptr}})),
            "user:q;assistant:;");
  EXPECT_EQ(text_of("{{ messages[1]['content'] }}", call_with("{}", {{"content", nullptr}})), "");
  // DeepSeek-V3's first template writes calls only where the content is null.
  const std::string by_null =
      "{% for m in messages %}{% if m['role'] == 'assistant' and m['content'] is none %}"
      "{{ m['tool_calls'][0]['function']['arguments'] + ' call' }}{% else %}{{ 'text ' + m['content'] }}"
      "{% endif %};{% endfor %}";
  EXPECT_EQ(text_of(by_null, call_with("{}", {{"content", nullptr}})), "text q;{} call;");
  EXPECT_EQ(text_of(by_null, call_with("{}")), "text q;{} call;");
}

TEST(MessageForm, ReasoningStandsUnderEachName) {
  for (const char* given : {"reasoning_content", "thinking", "reasoning"}) {
    const Json messages = {{{"role", "assistant"}, {"content", "a"}, {given, "because"}}};
    EXPECT_EQ(text_of("{{ messages[0].thinking }}, {{ messages[0]['reasoning_content'] }}", messages),
              "because, because");
  }
  const Json both = {
      {{"role", "assistant"}, {"content", "a"}, {"thinking", "t"}, {"reasoning_content", "r"}}};
  EXPECT_EQ(text_of("{{ messages[0].thinking }}, {{ messages[0].reasoning_content }}", both), "t, r");
}

TEST(ChatTemplate, TellsWhichFieldsItReads) {
  const auto reads = [](const std::string& source, const char* field) {
    return ChatTemplate::parse(source, "t").reads(field, nullptr);
  };
  EXPECT_TRUE(reads("{{ messages[0].name }}", "name"));
  EXPECT_TRUE(reads("{{ messages[0]['name'] }}", "name"));
  EXPECT_FALSE(reads("{{ messages[0].names }}", "name"));
  EXPECT_TRUE(reads("{{ messages[0].thinking }}", "reasoning_content"));
  EXPECT_TRUE(reads("{{ messages[0].reasoning_content }}", "thinking"));
  EXPECT_FALSE(reads("{{ messages[0].content }}", "thinking"));
  EXPECT_TRUE(reads("{{ messages | tojson }}", "name"));
  EXPECT_TRUE(
      reads("{% for m in messages %}{% for k, v in m.items() %}{{ k }}{% endfor %}{% endfor %}", "name"));
}

}  // namespace
}  // namespace tessera::text

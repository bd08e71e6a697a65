// Templates of tasks, and Python's regular expressions and literals. All results are those of Python 3.11 and
// jinja2.
#include "tessera/text/task_template.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/text/python_regex.h"

namespace tessera::text {
namespace {

using Json = nlohmann::ordered_json;

struct RegexCase {
  std::string pattern, text, replacement;
  std::vector<std::vector<std::string>> found;  // re.findall()
  std::string replaced;                         // re.sub()
};

const std::vector<RegexCase> kRegexes = {
    {R"(#### (\-?[0-9\.\,]+))",
     "x #### -1,234. y #### 5",
     R"(<\1>)",
     {{"-1,234."}, {"5"}},
     "x <-1,234.> y <5>"},
    {R"((-?[$0-9.,]{2,})|(-?[0-9]+))",
     "It costs $12.50, not 7",
     R"([\1\2])",
     {{"$12.50,", ""}, {"", "7"}},
     "It costs [$12.50,] not [7]"},
    {R"(\s+)",
     "a \x0b\x1c"
     "b\u00a0\u2003c",
     "_",
     {{" \x0b\x1c"}, {"\u00a0\u2003"}},
     "a_b_c"},
    {R"(\[.*?\])", "a [b] c [d\ne] [f]", "", {{"[b]"}, {"[f]"}}, "a  c [d\ne] "},
    {R"({\s*([^}]*?)\s*})", "{ a } {b}", R"((\1))", {{"a"}, {"b"}}, "(a) (b)"},
    {"boxed{([0-9]+)}", "boxed{42}", R"(\g<1>!)", {{"42"}}, "42!"},
    {"(?s).*#### ", "a\nb #### 7", "", {{"a\nb #### "}}, "7"},
    {R"(\.$)", "end.\n", "", {{"."}}, "end\n"},
    {R"((?P<q>['"])x(?P=q))", R"('x' "x" 'x")", R"(\g<1>)", {{"'"}, {"\""}}, R"(' " 'x")"},
    {"[]a&&[$]+", "]a&[$ b", "-", {{"]a&[$"}}, "- b"},
    {"x*", "abxd", "-", {{""}, {""}, {"x"}, {""}, {""}}, "-a-b--d-"},
    {"a{,2}", "aaa", "b", {{"aa"}, {"a"}, {""}}, "bbb"},
    {R"(b\Z)", "ab\n", "!", {}, "ab\n"},
    {R"([\s,])", "a,\u0085b", ".", {{","}, {"\u0085"}}, "a..b"},
    {R"(\d+)", "\u06634", "#", {{"\u06634"}}, "#"},
};

TEST(PythonRegex, FindsAndReplacesAsPythonDoes) {
  for (const RegexCase& one : kRegexes) {
    const PythonRegex regex(one.pattern, "test");
    EXPECT_EQ(regex.find_all(one.text), one.found) << one.pattern;
    EXPECT_EQ(regex.replace(one.text, one.replacement), one.replaced) << one.pattern;
  }
  EXPECT_EQ(PythonRegex("a", "test").replace("aaa", "b", 2), "bba");
}

TEST(PythonRegex, RefusesWhatCannotBeRun) {
  EXPECT_THROW(PythonRegex("(", "test"), Error);
  EXPECT_THROW(PythonRegex("a", "test").replace("a", R"(\1)"), Error);
  EXPECT_THROW(PythonRegex("(a+)+$", "test").find_all(std::string(40, 'a') + "b"), Error);
}

TEST(TaskTemplate, RendersAsTheHarnessDoes) {
  const Json document = {
      {"q", " What?\n"}, {"list", {"it's", "\"b\"", "c\n"}}, {"n", 3}, {"none", nullptr}, {"yes", true}};
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{{q}}\n", " What?\n\n"},
      {"{{q.strip()}}\nA:", "What?\nA:"},
      {"{{list}}", "[\"it's\", '\"b\"', 'c\\n']"},
      {"{% if yes %}\n  a\n{% endif %}\n", "\n  a\n\n"},
      {"{{n - 1}} {{none}} {{yes}}", "2 None True"},
      {"{{q | regex_replace('[?\\\\s]', '.', 1)}}", ".What?\n"},
      {"{{missing is defined}} {{missing | default('d')}}", "False d"},
  };
  for (const auto& [source, text] : cases)
    EXPECT_EQ(TaskTemplate::parse(source, "t").render(document), text) << source;
  for (const char* source :
       {"{{missing}}", "{% if missing %}a{% endif %}", "{{missing ~ 'a'}}", "{{missing == 1}}",
        "{% for a in missing %}{% endfor %}", "{{not missing}}", "{{missing or 1}}"})
    EXPECT_THROW(TaskTemplate::parse(source, "t").render(document), Error) << source;
}

TEST(TaskTemplate, ReadsPythonLiterals) {
  EXPECT_EQ(parse_python_literal(R"(['a', "it's", 'b\n', 1, -2.5, True, None])", "t"),
            Json({"a", "it's", "b\n", 1, -2.5, true, nullptr}));
  EXPECT_EQ(parse_python_literal("('a', ('b',), {'k': 'v'})", "t"),
            Json({"a", Json::array({"b"}), {{"k", "v"}}}));
  for (const char* text : {"[a]", "['a' + 'b']", "['a'", "", "['a'.upper()]", "1)}}{{(2"})
    EXPECT_THROW(parse_python_literal(text, "t"), Error) << text;
}

}  // namespace
}  // namespace tessera::text

// Tests random templates: whatever they contain, they end soon, with little memory, in a text or an Error.
// TESSERA_FUZZ_RUNS makes the search longer, and TESSERA_FUZZ_SEED makes another one.
#include <cstdlib>
#include <random>
#include <sys/resource.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/chat_template/filters.h"
#include "tessera/text/chat_template/is_tests.h"
#include "tessera/text/chat_template/methods.h"

namespace tessera::text {
namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

// Generates templates by the grammar, and prefers constructs that grow.
class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  std::string run() {
    std::string out = "{% set s = 'a' * " + number() + " %}{% set n = namespace(x=[1], y='b', z={}) %}";
    for (size_t count = 1 + below(4); count > 0; --count) out += statement(0);
    // Now and then the text itself is damaged.
    for (size_t damage = below(8) == 0 ? 1 + below(4) : 0; damage > 0 && !out.empty(); --damage) {
      const size_t at = below(out.size());
      switch (below(3)) {
        case 0: out[at] = static_cast<char>(below(128)); break;
        case 1: out.erase(at, 1 + below(4)); break;
        default: out.insert(at, one_of({"{", "}", "%", "(", ")", "'", "|", "\\", "{%", "{{"}));
      }
    }
    return out;
  }

 private:
  size_t below(size_t end) { return random_() % end; }
  std::string one_of(const std::vector<std::string>& choices) { return choices[below(choices.size())]; }
  std::string number() {
    return one_of({"0", "1", "2", "3", "7", "60", "1000", "40000", "99999", "3000000", "8000000", "(-1)",
                   "9223372036854775807", "1.5"});
  }
  std::string body(int depth) {
    std::string out;
    for (size_t count = below(3) + (depth == 0 ? 1 : 0); count > 0; --count) out += statement(depth + 1);
    return out;
  }

  std::string statement(int depth) {
    switch (below(depth > 3 ? 4 : 11)) {
      case 0: return "{{ " + expression(0) + " }}";
      case 1: return "{% set n." + one_of({"x", "y", "z"}) + " = " + expression(0) + " %}";
      case 2: return "{% set " + name() + " = " + expression(0) + " %}";
      case 3: return one_of({"text", "\n", "é"});
      case 4:
        return "{% if " + expression(1) + " %}" + body(depth) + "{% else %}" + body(depth) + "{% endif %}";
      case 5: return "{% filter " + filter() + " %}" + body(depth) + "{% endfilter %}";
      case 6: return "{% set " + name() + " | " + filter() + " %}" + body(depth) + "{% endset %}";
      case 7: return "{% macro m(p, q=" + expression(2) + ") %}" + body(depth) + "{% endmacro %}{{ m(1) }}";
      case 8: return "{% with v = " + expression(1) + " %}" + body(depth) + "{% endwith %}";
      case 9: return "{% generation %}" + body(depth) + "{% endgeneration %}";
      default:
        return "{% for i in " + (below(2) == 0 ? "range(" + number() + ")" : expression(1)) + " %}" +
               body(depth) + "{% endfor %}";
    }
  }

  std::string name() {
    return one_of(
        {"s", "v", "i", "p", "n.x", "n.y", "n.z", "messages", "messages[0].content", "loop", "m", "u"});
  }
  std::string arguments(int depth) {
    std::string out;
    for (size_t count = below(4); count > 0; --count) {
      if (below(4) == 0)
        out += one_of({"attribute", "reverse", "indent", "count", "chars", "fill_with", "start", "default"}) +
               "=";
      out += expression(depth + 1) + (count > 1 ? ", " : "");
    }
    return out;
  }
  std::string filter() {
    const static std::vector<std::string> names = jinja::filter_names();
    return one_of(names) + (below(2) == 0 ? "" : "(" + arguments(2) + ")");
  }

  // Returns any expression, mostly one that makes sense.
  std::string expression(int depth) {
    switch (below(depth > 4 ? 3 : 9)) {
      case 0: return one_of({"none", "true", "n", "loop.index0", "u is defined"});
      case 1: return number();
      case 2: return name();
      case 3:
      case 4: return text(depth + 1);
      case 5:
      case 6: return list(depth + 1);
      case 7:
        return "{" + text(depth + 1) + ": " + expression(depth + 1) + ", 'k': " + expression(depth + 1) + "}";
      default: return wild(depth + 1);
    }
  }

  std::string text(int depth) {
    const auto inner = [&] { return text(depth + 1); };
    switch (below(depth > 4 ? 3 : 13)) {
      case 0: return one_of({"s", "n.y", "messages[0].content", "messages[1].role"});
      case 1:
      case 2: return one_of({"'a'", "'ab\n'", "'%s'", "'%9d%s'", "'é\r'", "','", "' '", "''"});
      case 3: return "(" + inner() + " * " + number() + ")";
      case 4: return "(" + inner() + one_of({" ~ ", " + "}) + inner() + ")";
      case 5: return "(" + expression(depth + 1) + " ~ " + expression(depth + 1) + ")";
      case 6:
        return "(" + inner() + " | " +
               one_of({"upper", "title", "trim", "e", "indent", "tojson", "reverse", "capitalize", "string",
                       "indent(3, true)", "replace('a', " + inner() + ")", "trim(" + inner() + ")"}) +
               ")";
      case 7:
        return "(" + inner() + ")." +
               one_of({"upper()", "lower()", "strip()", "title()", "casefold()", "rstrip(" + inner() + ")",
                       "replace(" + inner() + ", " + inner() + ")", "removeprefix(" + inner() + ")",
                       "join(" + list(depth + 1) + ")"});
      case 8: return "(" + list(depth + 1) + " | join(" + inner() + "))";
      case 9:
        return "(" + expression(depth + 1) + one_of({" | tojson", " | string", " | tojson(indent=2)"}) + ")";
      case 10: return "(" + inner() + ")[" + one_of({"1", ":9", "::-1", "::2", "-5:"}) + "]";
      case 11: return "(" + inner() + " | format(" + expression(depth + 1) + "))";
      default: return "(" + inner() + " if " + expression(depth + 1) + " else " + inner() + ")";
    }
  }

  std::string list(int depth) {
    const auto inner = [&] { return list(depth + 1); };
    switch (below(depth > 4 ? 2 : 11)) {
      case 0: return one_of({"[]", "[1, 'a']", "messages", "n.x", "range(" + number() + ")"});
      case 1: return "range(" + number() + ")";
      case 2: return "[" + expression(depth + 1) + ", " + expression(depth + 1) + "]";
      case 3: return "(" + inner() + " | list + " + inner() + " | list)";
      case 4: return "(" + inner() + " | list * " + number() + ")";
      case 5:
        return "(" + inner() + " | " +
               one_of({"list", "reverse | list", "unique | list", "sort | list",
                       "batch(" + number() + ", 'x') | list", "map('string') | list", "map('upper') | list",
                       "select | list", "map('list') | list", "reject('in', " + inner() + ") | list",
                       "batch(1) | map('join') | list"}) +
               ")";
      case 6: return "(" + text(depth + 1) + " | list)";
      case 7:
        return "(" + text(depth + 1) + ")." +
               one_of({"split()", "split('a')", "splitlines()", "rsplit('a', " + number() + ")",
                       "partition('a')", "rsplit()"});
      case 8:
        return "({'a': " + expression(depth + 1) + "}" + one_of({".items()", ".values()", " | dictsort"}) +
               " | list)";
      case 9: return "(" + inner() + " | list)[" + one_of({":9", "::-1", "1:", "::3"}) + "]";
      default: return "[" + inner() + "]";
    }
  }

  // Returns an expression that combines anything with anything.
  std::string wild(int depth) {
    const static std::vector<std::string> methods = jinja::method_names(), tests = jinja::test_names();
    const auto inner = [&] { return expression(depth + 1); };
    switch (below(9)) {
      case 0:
        return "(" + inner() + one_of({" + ", " - ", " % ", " // ", " ** ", " / ", " * "}) + inner() + ")";
      case 1: return "(" + inner() + ", " + inner() + ")";
      case 2: return "(" + inner() + " | " + filter() + ")";
      case 3: return "(" + inner() + ")." + one_of(methods) + "(" + arguments(depth) + ")";
      case 4:
        return "(" + inner() + one_of({" in ", " == ", " < ", " and ", " or ", " not in "}) + inner() + ")";
      case 5:
        return "(" + inner() + ")[" + (below(2) == 0 ? inner() : inner() + ":" + inner() + ":" + number()) +
               "]";
      case 6: return "(" + inner() + " is " + one_of(tests) + ")";
      case 7: return "{" + inner() + ": " + inner() + "}";
      default: return one_of({"dict", "namespace", "range", "m"}) + "(" + arguments(depth) + ")";
    }
  }

  std::mt19937_64 random_;
};

int64_t peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST(ChatTemplateFuzz, ends_with_a_text_or_an_error) {
  const uint64_t seed = from_environment("TESSERA_FUZZ_SEED", 1),
                 runs = from_environment("TESSERA_FUZZ_RUNS", 300);
  const bool is_search = std::getenv("TESSERA_FUZZ_RUNS") != nullptr;
  const auto messages = nlohmann::ordered_json::parse(
      R"([{"role": "user", "content": "Grüße <|im_end|>"}, {"role": "assistant", "content": "é", "calls": [{"a": 1}]}])");
  const int64_t before = peak_megabytes();
  uint64_t rendered = 0, refused = 0;
  for (uint64_t i = 0; i < runs; ++i) {
    const std::string source = Generator(seed * 1'000'003 + i).run();
    SCOPED_TRACE("seed " + std::to_string(seed) + ", run " + std::to_string(i) + ": " + source);
    const double start = cpu_seconds();
    try {
      const RenderedChat chat = ChatTemplate::parse(source, "t").render(messages, nullptr, {});
      EXPECT_LE(chat.text().size(), 8u << 20);
      ++rendered;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Model) << error.what();
      EXPECT_LT(std::string(error.what()).size(), 5000u);
      ++refused;
    }
    if (is_search && cpu_seconds() - start > 2.0) ADD_FAILURE() << "took " << cpu_seconds() - start << " s";
    if (peak_megabytes() - before > 500) {
      ADD_FAILURE() << "grew to " << peak_megabytes() << " MB";
      break;
    }
  }
  EXPECT_GT(rendered, runs / 20);
  EXPECT_GT(refused, runs / 20);
}

}  // namespace
}  // namespace tessera::text

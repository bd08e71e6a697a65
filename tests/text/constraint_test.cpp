#include "tessera/text/constraint/constraint.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/io/file.h"

#include "tests/testing/paths.h"

namespace tessera::text {
namespace {

using Json = nlohmann::ordered_json;
using Kind = ConstraintSource::Kind;
using ::testing::HasSubstr;

// The rows of the table that check_constraints.py compares with xgrammar.
struct Row {
  ConstraintSource source;
  std::vector<std::string> accepted, rejected;
};

std::vector<Row> rows() {
  const std::map<std::string, Kind> kinds = {{"json_schema", Kind::JsonSchema},
                                             {"regex", Kind::Regex},
                                             {"choice", Kind::Choice},
                                             {"grammar", Kind::Grammar}};
  std::vector<Row> rows;
  const std::string path = testing::source_folder() + "/tests/reference/data/constraints.json";
  for (const Json& row : Json::parse(io::read_file(path, 1 << 20))) {
    rows.push_back({{kinds.at(row.at("kind")), row.at("value"), false},
                    row.at("accepted").get<std::vector<std::string>>(),
                    row.at("rejected").get<std::vector<std::string>>()});
  }
  return rows;
}

std::string name_of(const Row& row) { return row.source.value.dump().substr(0, 200); }

struct Reader {
  explicit Reader(const Automaton& automaton)
      : stacks(automaton), state(stacks.enter(stacks.node(automaton.start(), Stacks::kBottom))) {}
  Reader& take(const std::string& text) {
    for (const char byte : text) state = stacks.take(state, static_cast<uint8_t>(byte));
    return *this;
  }
  Stacks stacks;
  Stacks::State state;
};

bool accepts(const ConstraintSource& source, const std::string& text) {
  const Automaton automaton(read_constraint(source));
  return Reader(automaton).take(text).state.has_ended;
}

TEST(Constraint, TakesTheTextsOfTheTable) {
  const std::vector<Row> all = rows();
  EXPECT_GE(all.size(), 60U);
  for (const Row& row : all) {
    const Automaton automaton(read_constraint(row.source));
    for (const std::string& text : row.accepted)
      EXPECT_TRUE(Reader(automaton).take(text).state.has_ended) << name_of(row) << ": " << text;
    for (const std::string& text : row.rejected)
      EXPECT_FALSE(Reader(automaton).take(text).state.has_ended) << name_of(row) << ": " << text;
  }
}

// Returns all bytes, and pieces of the texts, as a vocabulary.
std::vector<std::string> vocabulary_of(const Row& row) {
  std::set<std::string> pieces = {"\"}", "\",\"", "]}", "}}", "1,", "00", "\xc3\xa9\"", "\\u00", "bb", "aab"};
  for (const auto* texts : {&row.accepted, &row.rejected}) {
    for (const std::string& text : *texts) {
      for (size_t i = 0; i < std::min<size_t>(text.size(), 40); ++i)
        for (const size_t size : {2, 3, 7}) pieces.insert(text.substr(i, size));
    }
  }
  std::vector<std::string> vocabulary(1);  // a token without bytes
  for (int byte = 0; byte < 256; ++byte) vocabulary.emplace_back(1, static_cast<char>(byte));
  vocabulary.insert(vocabulary.end(), pieces.begin(), pieces.end());
  return vocabulary;
}

TEST(Constraint, MasksHoldExactlyTheTokensThatLeadOn) {
  for (const Row& row : rows()) {
    const std::vector<std::string> vocabulary = vocabulary_of(row);
    const auto trie = std::make_shared<const TokenTrie>(vocabulary);
    const auto constraint = std::make_shared<Constraint>(row.source, trie);
    const Automaton automaton(read_constraint(row.source));
    const std::vector<int64_t> stop = {0};
    for (const std::string& text : row.accepted) {
      ConstraintState state(constraint);
      Reader reader(automaton);
      for (size_t i = 0; i <= std::min<size_t>(text.size(), 40); ++i) {
        const std::vector<uint64_t> mask = state.allowed(stop);
        EXPECT_EQ((mask[0] & 1) != 0, reader.state.has_ended) << name_of(row) << ": " << text.substr(0, i);
        for (size_t id = 1; id < vocabulary.size(); ++id) {
          Stacks::State ahead = reader.state;
          for (const char byte : vocabulary[id])
            if (!ahead.is_dead()) ahead = reader.stacks.take(ahead, static_cast<uint8_t>(byte));
          const bool leads_on = !ahead.is_dead();
          ASSERT_EQ((mask[id / 64] >> (id % 64) & 1) != 0, leads_on)
              << name_of(row) << ": '" << vocabulary[id] << "' behind " << text.substr(0, i);
        }
        if (i == text.size()) break;
        state.take(1 + static_cast<unsigned char>(text[i]));
        reader.take(text.substr(i, 1));
      }
    }
  }
}

TEST(Constraint, RefusesWhatIsNotSupported) {
  struct Case {
    Kind kind;
    std::string source;  // JSON of the value
    std::string code, part;
  };
  const std::string deep(150, '('), closed(150, ')');
  const Case cases[] = {
      {Kind::Regex, "\"a(?=b)\"", "REGEX", "lookahead"},
      {Kind::Regex, "\"(?<!b)a\"", "REGEX", "lookbehind"},
      {Kind::Regex, R"("(a)\\1")", "REGEX", "backreferences"},
      {Kind::Regex, R"("\\bword")", "REGEX", "boundaries"},
      {Kind::Regex, R"("\\p{L}")", "REGEX", "properties"},
      {Kind::Regex, "\"(?i)a\"", "REGEX", "flags"},
      {Kind::Regex, "\"a++\"", "REGEX", "possessive"},
      {Kind::Regex, "\"a^b\"", "REGEX", "anchor"},
      {Kind::Regex, "\"(a$)\"", "REGEX", "anchor"},
      {Kind::Regex, "\"*a\"", "REGEX", "repeat"},
      {Kind::Regex, "\"(a\"", "REGEX", "missing"},
      {Kind::Regex, "\"a)\"", "REGEX", "closes"},
      {Kind::Regex, "\"[a\"", "REGEX", "too early"},
      {Kind::Regex, "\"[z-a]\"", "REGEX", "range"},
      {Kind::Regex, "\"a{3,2}\"", "REGEX", "order"},
      {Kind::Regex, R"("\\ud800")", "REGEX", "character"},
      {Kind::Regex, "\"" + deep + closed + "\"", "REGEX", "deeper"},
      {Kind::Regex, "\"[^\\u0000-\\u10ff]{0}[]a-]{2000000}\"", "SIZE", "too large"},
      {Kind::Regex, "\"(a|b{9}c{9}){60000}(a|b{9}c{9}){60000}\"", "SIZE", "too large"},
      {Kind::Regex, "5", "TYPE", "text"},
      {Kind::Choice, "[]", "TYPE", "array"},
      {Kind::Choice, "[\"a\", 1]", "TYPE", "text"},
      {Kind::Grammar, "\"a ::= b\"", "GRAMMAR", "root"},
      {Kind::Grammar, "\"root ::= b\"", "RULE", "'b'"},
      {Kind::Grammar, "\"root ::= root \\\"a\\\" | \\\"a\\\"\"", "RECURSION", "root"},
      {Kind::Grammar, "\"root ::= x? root\\nx ::= \\\"a\\\"\"", "EMPTY", "no text"},
      {Kind::Grammar, "\"root ::= x? root | \\\"b\\\"\\nx ::= \\\"a\\\"\"", "RECURSION", "root"},
      {Kind::Grammar, "\"root ::= \\\"a\\\" root\"", "EMPTY", "no text"},
      {Kind::Grammar, "\"root ::= \\\"a\\\"\\nroot ::= \\\"b\\\"\"", "GRAMMAR", "twice"},
      {Kind::Grammar, "\"start: /a/\"", "GRAMMAR", "::="},
      {Kind::Grammar, "\"root ::= [a\"", "GRAMMAR", "too early"},
      {Kind::JsonSchema, "5", "SCHEMA", "object"},
      {Kind::JsonSchema, "false", "EMPTY", "no text"},
      {Kind::JsonSchema, R"({"type": "text"})", "SCHEMA", "#/type"},
      {Kind::JsonSchema, R"({"not": {}})", "SCHEMA", "'not'"},
      {Kind::JsonSchema, R"({"properties": {"a": {"if": {}}}})", "SCHEMA", "#/properties/a"},
      {Kind::JsonSchema, R"({"typ": "string"})", "SCHEMA", "'typ'"},
      {Kind::JsonSchema, R"({"type": "array", "uniqueItems": true})", "SCHEMA", "uniqueItems"},
      {Kind::JsonSchema, R"({"uniqueItems": true, "items": {"enum": [1, 2, 3, 4, 5, 6, 7, 8, 9]}})", "SCHEMA",
       "at most 8"},
      {Kind::JsonSchema, R"({"uniqueItems": true, "prefixItems": [{}, {}]})", "SCHEMA", "uniqueItems"},
      {Kind::JsonSchema, R"({"uniqueItems": true, "items": {"enum": [1]}, "minItems": 2})", "EMPTY",
       "no text"},
      {Kind::JsonSchema, R"({"type": "integer", "multipleOf": 1.5})", "SCHEMA", "multipleOf"},
      {Kind::JsonSchema, R"({"type": "integer", "multipleOf": 0})", "SCHEMA", "multipleOf"},
      {Kind::JsonSchema, R"({"type": "integer", "multipleOf": 1001})", "SCHEMA", "1000"},
      {Kind::JsonSchema, R"({"type": "integer", "multipleOf": 2, "minimum": 3})", "SCHEMA", "all from 0"},
      {Kind::JsonSchema, R"({"type": "number", "multipleOf": 0.1, "maximum": 3})", "SCHEMA", "minimum 0"},
      {Kind::JsonSchema, R"({"contains": {}, "maxContains": 1})", "SCHEMA", "maxContains"},
      {Kind::JsonSchema, R"({"contains": {}, "minItems": 2})", "SCHEMA", "minItems"},
      {Kind::JsonSchema, R"({"contains": {"const": "a"}, "items": {"type": "null"}})", "EMPTY", "no text"},
      {Kind::JsonSchema, R"({"not": {"required": ["a"]}})", "SCHEMA", "'not'"},
      {Kind::JsonSchema, R"({"not": {"enum": 1}})", "SCHEMA", "'not'"},
      {Kind::JsonSchema, R"({"type": "number", "not": {"const": 1}})", "SCHEMA", "#/not"},
      {Kind::JsonSchema, R"({"type": "number", "not": {"type": "integer"}})", "SCHEMA", "#/not"},
      {Kind::JsonSchema, R"({"type": "object", "not": {"const": {}}})", "SCHEMA", "object"},
      {Kind::JsonSchema, R"({"pattern": "a", "not": {"const": "b"}})", "SCHEMA", "#/not"},
      {Kind::JsonSchema, R"({"type": "object", "if": {"properties": {"a": {"const": 1}}}})", "SCHEMA",
       "#/if"},
      {Kind::JsonSchema, R"({"type": "number", "minimum": 1e300})", "SCHEMA", "minimum"},
      {Kind::JsonSchema, R"({"type": "string", "format": "regex"})", "SCHEMA", "date-time"},
      {Kind::JsonSchema, R"({"type": "string", "pattern": "(?=a)b"})", "REGEX", "#/pattern"},
      {Kind::JsonSchema, R"({"type": "string", "pattern": "a", "minLength": 1})", "SCHEMA", "only one"},
      {Kind::JsonSchema, R"({"type": "string", "maxLength": 100000000})", "SIZE", "too large"},
      {Kind::JsonSchema, R"({"type": "string", "maxLength": -1})", "SCHEMA", "maxLength"},
      {Kind::JsonSchema, R"({"type": "array", "maxItems": 1e30})", "SCHEMA", "maxItems"},
      {Kind::JsonSchema, R"({"$ref": "other.json"})", "SCHEMA", "$ref"},
      {Kind::JsonSchema, R"({"$ref": "#"})", "EMPTY", "no text"},
      {Kind::JsonSchema, R"({"$ref": "#", "type": "null"})", "SIZE", "without end"},
      {Kind::JsonSchema, R"({"allOf": [{"$ref": "#"}]})", "SCHEMA", "deeply"},
      {Kind::JsonSchema, R"({"enum": [1, 2], "minimum": 2})", "SCHEMA", "'minimum'"},
      {Kind::JsonSchema, R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})", "SCHEMA", "'pattern'"},
      {Kind::JsonSchema, R"({"type": "integer", "minimum": 5, "maximum": 4})", "EMPTY", "no text"},
      {Kind::JsonSchema, R"({"type": "array", "minItems": 2, "maxItems": 1})", "EMPTY", "no text"},
      {Kind::JsonSchema, R"({"properties": {"a": {}}, "maxProperties": 0})", "SCHEMA", "maxProperties"},
  };
  for (const Case& each : cases) {
    try {
      const Automaton automaton(read_constraint({each.kind, Json::parse(each.source)}));
      ADD_FAILURE() << "taken: " << each.source;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("[E-CONFIG-CONSTRAINT-" + each.code + "]")) << each.source;
      EXPECT_THAT(error.what(), HasSubstr(each.part)) << each.source;
    }
  }
}

TEST(Constraint, WhiteSpaceIsWhereJsonHasItAndBounded) {
  ConstraintSource source{Kind::JsonSchema, Json::parse(R"({"properties": {"a": {"items": {}}}})"), true};
  EXPECT_TRUE(accepts(source, "{\n  \"a\": [\n    1,\n\t2 ] }"));
  EXPECT_FALSE(accepts(source, "{  }"));
  EXPECT_FALSE(accepts(source, "{\n" + std::string(25, ' ') + "}"));
  EXPECT_FALSE(accepts(source, "{ }\n"));
  source.allows_space = false;
  EXPECT_FALSE(accepts(source, "{ }"));
}

TEST(Constraint, AListIsNoDeepStack) {
  const Automaton automaton(read_constraint({Kind::Grammar, "root ::= [0-9] root | \";\""}));
  Reader reader(automaton);
  for (int i = 0; i < 10000; ++i) reader.take("1");
  EXPECT_LT(reader.stacks.size(), 20);
}

TEST(Constraint, ADeepAnswerForgetsWhatItLeft) {
  const auto trie = std::make_shared<const TokenTrie>(std::vector<std::string>{"", "[", "]", "],"});
  ConstraintState state(std::make_shared<Constraint>(ConstraintSource{Kind::JsonSchema, true, false}, trie));
  for (int i = 0; i < 20000; ++i) state.take(1);
  for (int i = 0; i < 20000; ++i) {
    EXPECT_FALSE(state.must_end());
    state.take(2);
  }
  EXPECT_TRUE(state.must_end());
  EXPECT_THAT(state.allowed(std::vector<int64_t>{0}), ::testing::ElementsAre(1U));
}

TEST(Constraint, AVocabularyWithoutTheNextCharacterIsRefused) {
  const auto trie = std::make_shared<const TokenTrie>(std::vector<std::string>{"", "a"});
  ConstraintState state(std::make_shared<Constraint>(ConstraintSource{Kind::Regex, "ab"}, trie));
  state.take(1);
  EXPECT_THROW(state.allowed({}), Error);
}

TEST(Constraint, AReadingInTooManyWaysIsRefused) {
  const Automaton automaton(
      read_constraint({Kind::Grammar, "root ::= \"a\" root root root root \"b\" | \"a\""}));
  Reader reader(automaton);
  EXPECT_THROW(reader.take(std::string(50, 'a')), Error);
}

}  // namespace
}  // namespace tessera::text

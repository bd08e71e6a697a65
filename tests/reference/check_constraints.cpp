// Reads constraints with texts and tokens from standard input, as JSON, and writes what Tessera makes of
// them: check_constraints.py compares it with xgrammar.
#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/text/constraint/constraint.h"

namespace {

using namespace tessera::text;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

bool accepts(const Automaton& automaton, const std::string& text) {
  Stacks stacks(automaton);
  Stacks::State state = stacks.enter(stacks.node(automaton.start(), Stacks::kBottom));
  for (const char byte : text) state = stacks.take(state, static_cast<uint8_t>(byte));
  return state.has_ended;
}

ConstraintSource source_of(const Json& row) {
  const std::string kind = row.at("kind");
  ConstraintSource source{.value = row.at("value"), .allows_space = row.value("space", false)};
  if (kind == "regex") source.kind = ConstraintSource::Kind::Regex;
  if (kind == "choice") source.kind = ConstraintSource::Kind::Choice;
  if (kind == "grammar") source.kind = ConstraintSource::Kind::Grammar;
  return source;
}

Json checked(const Json& row, const std::shared_ptr<const TokenTrie>& trie, int64_t stop_id) {
  const auto begin = Clock::now();
  const auto constraint = std::make_shared<Constraint>(source_of(row), trie);
  Json result = {{"compile_ms", milliseconds(begin)}};
  const Automaton automaton(read_constraint(source_of(row)));
  for (const Json& text : row.at("texts")) result["texts"].push_back(accepts(automaton, text));
  // The tokens of each walk, with the mask before each of them and behind the last one.
  for (const Json& walk : row.value("walks", Json::array())) {
    ConstraintState state(constraint);
    Json masks = Json::array();
    for (size_t i = 0; i <= walk.size(); ++i) {
      const auto start = Clock::now();
      const auto mask = state.allowed(std::vector<int64_t>{stop_id});
      result["mask_ms"].push_back(milliseconds(start));
      Json words = Json::array();
      for (const uint64_t word : mask) words.push_back(word);
      masks.push_back(std::move(words));
      if (i == walk.size() || (mask[walk[i].get<size_t>() / 64] >> (walk[i].get<size_t>() % 64) & 1) == 0)
        break;
      state.take(walk[i].get<int64_t>());
    }
    result["walks"].push_back(std::move(masks));
  }
  return result;
}

}  // namespace

int main() {
  const Json input = Json::parse(std::cin);
  std::vector<std::string> bytes;
  for (const Json& token : input.at("vocabulary")) {
    std::string& text = bytes.emplace_back();
    for (const Json& byte : token) text += static_cast<char>(byte.get<int>());
  }
  const auto trie = std::make_shared<const TokenTrie>(bytes);
  Json results = Json::array();
  for (const Json& row : input.at("rows")) {
    try {
      results.push_back(checked(row, trie, input.at("stop_id")));
    } catch (const tessera::Error& error) {
      results.push_back({{"error", error.what()}});
    }
  }
  std::cout << results << '\n';
}

#include "tessera/text/constraint/constraint.h"

#include <algorithm>

#include "tessera/text/constraint/gbnf_reader.h"
#include "tessera/text/constraint/json_schema.h"
#include "tessera/text/constraint/regex_reader.h"

namespace tessera::text {
namespace {

const std::string& text_of(const nlohmann::ordered_json& value) {
  if (!value.is_string()) throw constraint_error("TYPE", "a text is needed");
  return value.get_ref<const std::string&>();
}

Grammar read_choice(const nlohmann::ordered_json& texts) {
  if (!texts.is_array() || texts.empty())
    throw constraint_error("TYPE", "an array of at least one text is needed");
  Grammar grammar;
  std::vector<Grammar::Expr> parts;
  for (const auto& each : texts) parts.push_back(grammar.text(text_of(each)));
  grammar.root = grammar.add_rule("choice");
  grammar.define(grammar.root, grammar.choice(std::move(parts)));
  return grammar;
}

}  // namespace

Grammar read_constraint(const ConstraintSource& source) {
  switch (source.kind) {
    case ConstraintSource::Kind::JsonSchema: return read_json_schema(source.value, source.allows_space);
    case ConstraintSource::Kind::Grammar: return read_gbnf(text_of(source.value));
    case ConstraintSource::Kind::Choice: return read_choice(source.value);
    case ConstraintSource::Kind::Regex: break;
  }
  Grammar grammar;
  grammar.root = grammar.add_rule("regular expression");
  grammar.define(grammar.root, read_regex(grammar, text_of(source.value)));
  return grammar;
}

Constraint::Constraint(const ConstraintSource& source, std::shared_ptr<const TokenTrie> trie)
    : automaton_(read_constraint(source)),
      trie_(std::move(trie)),
      first_stacks_(automaton_),
      first_(first_stacks_.enter(first_stacks_.node(automaton_.start(), Stacks::kBottom))),
      masks_(automaton_, *trie_) {
  first_stacks_.keep(first_);
}

void ConstraintState::take(int64_t token) {
  for (const char byte : constraint_->trie_->bytes(token))
    state_ = stacks_.take(state_, static_cast<uint8_t>(byte));
  TESSERA_ASSERT(!state_.is_dead(), "a token that the constraint allows");
  if (stacks_.size() <= many_nodes_) return;
  stacks_.keep(state_);
  many_nodes_ = std::max(many_nodes_, 2 * stacks_.size());
}

std::vector<uint64_t> ConstraintState::allowed(std::span<const int64_t> stop_ids) {
  const int64_t vocabulary = constraint_->trie_->vocabulary();
  std::vector<uint64_t> bits(static_cast<size_t>(vocabulary + 63) / 64);
  constraint_->masks_.allow(stacks_, state_, bits);
  for (const int64_t id : stop_ids) {
    if (id < 0 || id >= vocabulary) continue;
    uint64_t& word = bits[static_cast<size_t>(id) / 64];
    const uint64_t bit = uint64_t{1} << (id % 64);
    word = may_end() ? word | bit : word & ~bit;
  }
  if (std::ranges::all_of(bits, [](uint64_t word) { return word == 0; })) {
    throw constraint_error("VOCABULARY", "no token can follow the answer so far")
        .hint("the constraint needs a character that the vocabulary cannot write");
  }
  return bits;
}

std::shared_ptr<Constraint> ConstraintMaker::make(const ConstraintSource& source) {
  constexpr size_t kMostKept = 32;
  const std::string key = std::to_string(static_cast<int>(source.kind)) + (source.allows_space ? " " : "") +
                          source.value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::shared_ptr<const TokenTrie> trie;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(used_, key, [](const auto& entry) { return entry.first; });
    if (found != used_.end()) {
      used_.splice(used_.begin(), used_, found);
      return found->second;
    }
    if (trie_ == nullptr) trie_ = std::make_shared<const TokenTrie>(tokenizer_, vocabulary_);
    trie = trie_;
  }
  auto made = std::make_shared<Constraint>(source, trie);
  const std::lock_guard lock(mutex_);
  used_.emplace_front(key, made);
  if (used_.size() > kMostKept) used_.pop_back();
  return made;
}

}  // namespace tessera::text

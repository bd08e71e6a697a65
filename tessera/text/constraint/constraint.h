// Answers that have to match a schema, a regular expression, one of some texts, or a grammar.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/text/constraint/token_masks.h"

namespace tessera::text {

// A constraint as a user gives it.
struct ConstraintSource {
  enum class Kind { JsonSchema, Regex, Choice, Grammar };
  Kind kind = Kind::JsonSchema;
  // The schema; or the text of a regular expression (regex_reader.h) or a grammar (gbnf_reader.h); or an
  // array of texts.
  nlohmann::ordered_json value;
  bool allows_space = true;  // in JSON (json_rules.h)
};

// Returns the grammar of a source. Throws Error(Config, "CONSTRAINT-...").
Grammar read_constraint(const ConstraintSource& source);

// A constraint that is ready for the tokens of a vocabulary. One thread at a time makes and uses its states.
class Constraint {
 public:
  // Throws what read_constraint(), Automaton's constructor and Stacks::enter() throw.
  Constraint(const ConstraintSource& source, std::shared_ptr<const TokenTrie> trie);
  Constraint(const Constraint&) = delete;
  Constraint& operator=(const Constraint&) = delete;

 private:
  friend class ConstraintState;
  const Automaton automaton_;
  const std::shared_ptr<const TokenTrie> trie_;
  Stacks first_stacks_;  // those of an answer without tokens
  Stacks::State first_;
  TokenMasks masks_;
};

// The state of an answer, which depends on its tokens alone.
class ConstraintState {
 public:
  explicit ConstraintState(std::shared_ptr<Constraint> constraint)
      : constraint_(std::move(constraint)),
        stacks_(constraint_->first_stacks_),
        state_(constraint_->first_) {}

  // Takes the next token, which must have been allowed.
  void take(int64_t token);
  // Returns one bit for each token of the vocabulary, 64 in a number: whether it may come next. Of `stop_ids`
  // exactly those bits are set if the answer may end here. Throws Error(Config, "CONSTRAINT-VOCABULARY") if
  // there is none, and what TokenMasks::allow() throws.
  std::vector<uint64_t> allowed(std::span<const int64_t> stop_ids);
  // Tells whether the answer may end here, and whether nothing else is left.
  bool may_end() const { return state_.has_ended; }
  bool must_end() const { return state_.heads.empty(); }

 private:
  std::shared_ptr<Constraint> constraint_;
  Stacks stacks_;
  Stacks::State state_;
  int64_t many_nodes_ = 4096;  // the number of nodes above which those that are left behind are forgotten
};

// Makes constraints for one vocabulary and keeps those that were used last. All functions may be called from
// any thread.
class ConstraintMaker {
 public:
  // The tokenizer must outlive this object. Its tokens are read when the first constraint is made.
  ConstraintMaker(const Tokenizer& tokenizer, int64_t vocabulary)
      : tokenizer_(tokenizer), vocabulary_(vocabulary) {}

  // Throws what the constructor of Constraint throws.
  std::shared_ptr<Constraint> make(const ConstraintSource& source);

 private:
  const Tokenizer& tokenizer_;
  const int64_t vocabulary_;
  std::mutex mutex_;
  std::shared_ptr<const TokenTrie> trie_;
  std::list<std::pair<std::string, std::shared_ptr<Constraint>>> used_;  // the last one first
};

}  // namespace tessera::text

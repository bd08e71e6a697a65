#include "tessera/scoring/judge/match.h"

#include <utility>

namespace tessera::scoring::judge {
namespace {

using Pair = std::pair<std::string, std::string>;

// Returns the models of each match on a question; the second name is empty where one answer is rated.
std::vector<Pair> pairs_of(Mode mode, const std::vector<std::string>& models, const std::string& baseline) {
  std::vector<Pair> pairs;
  for (size_t i = 0; i < models.size(); ++i) {
    if (mode == Mode::Single) pairs.emplace_back(models[i], "");
    if (mode == Mode::PairwiseBaseline && models[i] != baseline) pairs.emplace_back(models[i], baseline);
    for (size_t j = i + 1; mode == Mode::PairwiseAll && j < models.size(); ++j)
      pairs.emplace_back(models[i], models[j]);
  }
  return pairs;
}

std::string prompt_name(bool is_pairwise, bool needs_reference, int64_t turn) {
  const std::string kind = is_pairwise ? (needs_reference ? "pair-math-v1" : "pair-v2")
                                       : (needs_reference ? "single-math-v1" : "single-v1");
  return turn == 2 ? kind + "-multi-turn" : kind;
}

}  // namespace

std::string Match::user_prompt(bool is_swapped) const {
  Fields fields;
  // Adds the texts of the turns that count: with the turn's number behind `name`, or in the first turn under
  // `name` alone.
  const auto add = [&](const std::string& name, const std::vector<std::string>& turns) {
    if (turn == 1) fields[name] = turns[0];
    for (int64_t i = 0; turn == 2 && i < turn; ++i)
      fields[name + '_' + std::to_string(i + 1)] = turns[static_cast<size_t>(i)];
  };
  add("question", question->turns);
  if (answer_2 == nullptr) {
    add("answer", *answer_1);
  } else {
    add("answer_a", is_swapped ? *answer_2 : *answer_1);
    add("answer_b", is_swapped ? *answer_1 : *answer_2);
  }
  for (int64_t i = 0; reference != nullptr && i < turn; ++i)
    fields["ref_answer_" + std::to_string(i + 1)] = (*reference)[static_cast<size_t>(i)];
  return fill_template(*prompt, fields);
}

std::vector<Match> make_matches(const MatchInput& input, Mode mode, const std::vector<std::string>& models,
                                const std::string& baseline) {
  std::vector<Match> matches;
  const std::vector<Pair> pairs = pairs_of(mode, models, baseline);
  const auto add = [&](const Question& question, int64_t turn) {
    const auto count = static_cast<size_t>(turn);
    Match match{.question = &question,
                .prompt = &input.prompts.get(prompt_name(is_pairwise(mode), question.needs_reference(), turn),
                                             is_pairwise(mode)),
                .turn = turn};
    if (question.needs_reference()) match.reference = &input.references.turns(question.id, count);
    for (const auto& [model_1, model_2] : pairs) {
      match.model_1 = model_1;
      match.model_2 = model_2;
      match.answer_1 = &input.answers.at(model_1).turns(question.id, count);
      if (is_pairwise(mode)) match.answer_2 = &input.answers.at(model_2).turns(question.id, count);
      matches.push_back(match);
    }
  };
  for (const int64_t turn : {1, 2}) {
    for (const bool needs_reference : {false, true}) {
      for (const Question& question : input.questions) {
        if (question.needs_reference() == needs_reference && (turn == 1 || question.turns.size() == 2))
          add(question, turn);
      }
    }
  }
  return matches;
}

}  // namespace tessera::scoring::judge

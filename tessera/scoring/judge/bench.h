// A folder of questions, answers and judgements as FastChat keeps them (data/mt_bench):
//
//   question.jsonl                    the questions, of two turns each
//   reference_answer/<name>.jsonl     answers that a judge may rely on
//   model_answer/<model>.jsonl        the answers of models
//   model_judgment/<judge>_single.jsonl, <judge>_pair.jsonl
//   judge_prompts.jsonl               here or in the folder above
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/scoring/judge/rows.h"

namespace tessera::scoring::judge {

struct Question {
  Json id;
  std::string category;
  std::vector<std::string> turns;  // one at least
  double temperature = 0.0;        // by required_temperature, else by the category

  // Returns whether a judge is given a reference answer: to math, reasoning and coding.
  bool needs_reference() const;
};

// Reads the questions in the order of the file. Throws what read_rows() throws, and Error(Data, "JUDGE-ROW").
std::vector<Question> read_questions(const std::string& path);

// The first choice of each answer in a file; of several answers to one question, the last.
class Answers {
 public:
  Answers() = default;
  // Throws what read_rows() throws, and Error(Data, "JUDGE-ROW") for a row without choices.
  explicit Answers(const std::string& path);

  // Returns the turns of an answer. Throws Error(Data, "JUDGE-ANSWER") where the file has none of `count`
  // turns at least.
  const std::vector<std::string>& turns(const Json& question_id, size_t count) const;

 private:
  std::string path_;
  std::map<Json, std::vector<std::string>> turns_;
};

class Bench {
 public:
  // Throws Error(Config, "JUDGE-FOLDER") for a path that is no folder with question.jsonl.
  explicit Bench(std::string folder);

  std::string question_file() const;
  std::string answer_file(const std::string& model) const;
  std::string reference_file(const std::string& name) const;
  // Returns judge_prompts.jsonl in the folder, or where it is not there, in the folder above.
  std::string prompt_file() const;
  // Returns the models with a file of answers, sorted.
  std::vector<std::string> models() const;
  // Returns the name of the answers that the judge is given: its own, if it has a file of them, else gpt-4.
  std::string usual_reference(const std::string& judge) const;

 private:
  std::string folder_;
};

// Returns the file of a judge's judgements in a folder.
std::string judgment_file(const std::string& folder, const std::string& judge, bool is_pairwise);
// Returns the only judge with a file of such judgements in the folder. Throws Error(Config, "JUDGE-FOLDER")
// if there is none, or more than one.
std::string only_judge(const std::string& folder, bool is_pairwise);

// Returns a model's name as a part of a file's name: "org/name" becomes "org--name". Throws Error(Config,
// "JUDGE-NAME") for a name that makes none.
std::string file_name_of(const std::string& model);

}  // namespace tessera::scoring::judge

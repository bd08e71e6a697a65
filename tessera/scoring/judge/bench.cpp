#include "tessera/scoring/judge/bench.h"

#include <algorithm>
#include <filesystem>

#include "tessera/core/strings.h"
#include "tessera/core/terminal_text.h"
#include "tessera/core/utf8.h"
#include "tessera/io/file.h"

namespace tessera::scoring::judge {
namespace {

constexpr const char* kRows = ".jsonl";

double temperature_of(const std::string& category) {
  constexpr std::pair<const char*, double> kTemperatures[] = {
      {"writing", 0.7},   {"roleplay", 0.7}, {"extraction", 0.0}, {"math", 0.0},          {"coding", 0.0},
      {"reasoning", 0.0}, {"stem", 0.1},     {"humanities", 0.1}, {"arena-hard-200", 0.0}};
  constexpr double kOther = 0.7;
  for (const auto& [name, temperature] : kTemperatures) {
    if (category == name) return temperature;
  }
  return kOther;
}

Question read_question(const Row& row) {
  Question question{.id = row.question_id(), .category = row.text("category"), .turns = row.texts("turns")};
  if (question.turns.empty()) throw row.problem("turns", "one question at least");
  const bool is_given = row.value.contains("required_temperature");
  question.temperature = is_given ? row.number("required_temperature") : temperature_of(question.category);
  return question;
}

std::vector<std::string> first_choice(const Row& row) {
  const auto choices = row.value.find("choices");
  if (choices == row.value.end() || !choices->is_array() || choices->empty() || !choices->front().is_object())
    throw row.problem("choices", "an array of objects with turns");
  return Row{choices->front(), row.place}.texts("turns");
}

std::string judgment_suffix(bool is_pairwise) { return is_pairwise ? "_pair.jsonl" : "_single.jsonl"; }

}  // namespace

bool Question::needs_reference() const {
  return category == "math" || category == "reasoning" || category == "coding" ||
         category == "arena-hard-200";
}

std::vector<Question> read_questions(const std::string& path) {
  std::vector<Question> questions;
  for (const Row& row : read_rows(path)) questions.push_back(read_question(row));
  return questions;
}

Answers::Answers(const std::string& path) : path_(path) {
  for (const Row& row : read_rows(path)) turns_.insert_or_assign(row.question_id(), first_choice(row));
}

const std::vector<std::string>& Answers::turns(const Json& question_id, size_t count) const {
  const auto found = turns_.find(question_id);
  const size_t given = found == turns_.end() ? 0 : found->second.size();
  if (given < count) {
    throw Error(ErrorKind::Data, "JUDGE-ANSWER",
                "the answer to question " + question_id.dump() + " is missing")
        .in(path_)
        .got(std::to_string(given) + " turns")
        .need(std::to_string(count))
        .hint("tessera judge answer makes a model's answers that are missing");
  }
  return found->second;
}

Bench::Bench(std::string folder) : folder_(std::move(folder)) {
  if (io::exists(question_file())) return;
  const bool lies_deeper = io::exists(io::join_path(folder_, "mt_bench/question.jsonl"));
  throw Error(ErrorKind::Config, "JUDGE-FOLDER", "the folder has no question.jsonl")
      .in(folder_)
      .need("a folder as FastChat's data/mt_bench")
      .hint(lies_deeper ? "did you mean " + io::join_path(folder_, "mt_bench") + '?' : "see docs/judge.md");
}

std::string Bench::question_file() const { return io::join_path(folder_, "question.jsonl"); }

std::string Bench::answer_file(const std::string& model) const {
  return io::join_path(folder_, "model_answer/" + file_name_of(model) + kRows);
}

std::string Bench::reference_file(const std::string& name) const {
  return io::join_path(folder_, "reference_answer/" + file_name_of(name) + kRows);
}

std::string Bench::prompt_file() const {
  const std::string name = "judge_prompts.jsonl";
  std::string own = io::join_path(folder_, name);
  if (io::exists(own)) return own;
  const std::filesystem::path folder = std::filesystem::absolute(folder_).lexically_normal();
  // A path that ends in a slash has an empty last part.
  const auto above = (folder.has_filename() ? folder : folder.parent_path()).parent_path();
  if (std::string other = (above / name).string(); io::exists(other)) return other;
  throw Error(ErrorKind::Config, "JUDGE-FOLDER", "judge_prompts.jsonl is neither in this folder nor above it")
      .in(folder_)
      .hint("it lies in FastChat's folder data; --judge-file names it elsewhere");
}

std::vector<std::string> Bench::models() const {
  std::vector<std::string> names = io::list_files(io::join_path(folder_, "model_answer"), kRows);
  for (std::string& name : names) name.resize(name.size() - std::string_view(kRows).size());
  return names;
}

std::string Bench::usual_reference(const std::string& judge) const {
  return io::exists(reference_file(judge)) ? judge : "gpt-4";
}

std::string judgment_file(const std::string& folder, const std::string& judge, bool is_pairwise) {
  return io::join_path(folder, "model_judgment/" + file_name_of(judge) + judgment_suffix(is_pairwise));
}

std::string only_judge(const std::string& folder, bool is_pairwise) {
  const std::string suffix = judgment_suffix(is_pairwise);
  std::vector<std::string> names = io::list_files(io::join_path(folder, "model_judgment"), suffix);
  for (std::string& name : names) name.resize(name.size() - suffix.size());
  if (names.size() == 1) return names.front();
  Error error(ErrorKind::Config, "JUDGE-FOLDER",
              std::string(names.empty() ? "no" : "more than one") + " judge has a file *" + suffix);
  error.in(io::join_path(folder, "model_judgment"));
  if (names.empty()) throw error.hint("tessera judge grade writes it");
  throw error.got(join(names, ", ")).hint("--judge-model names one");
}

std::string file_name_of(const std::string& model) {
  std::string name;
  for (const char c : model) name += c == '/' ? std::string("--") : std::string(1, c);
  if (name.empty() || name.front() == '.' || find_invalid_utf8(name) >= 0 || terminal_text(name) != name) {
    throw Error(ErrorKind::Config, "JUDGE-NAME", "a name of a model that makes no name of a file")
        .got("'" + model + "'")
        .hint("--model-id gives a model's answers another name");
  }
  return name;
}

}  // namespace tessera::scoring::judge

#include "tessera/scoring/judge/answer.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "tessera/core/log.h"
#include "tessera/core/unix_time.h"
#include "tessera/io/file.h"
#include "tessera/scoring/judge/ask.h"

namespace tessera::scoring::judge {
namespace {

// Makes an id of the form that FastChat gives to answers: 22 letters and digits of which none looks like
// another.
std::string make_answer_id() {
  constexpr std::string_view kLetters = "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
  static thread_local std::random_device chance;
  std::string id(22, ' ');
  for (char& c : id) c = kLetters[chance() % kLetters.size()];
  return id;
}

std::string stripped(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n\f\v";
  const size_t begin = text.find_first_not_of(kSpace);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

Json message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

Json answer_one(Endpoint& endpoint, const Question& question, const AnswerOptions& options, int64_t choice) {
  ChatRequest request{.temperature = options.force_temperature.value_or(question.temperature),
                      .max_tokens = options.max_tokens,
                      .seed = choice};
  if (!options.system.empty()) request.messages.push_back(message("system", options.system));
  Json turns = Json::array();
  for (const std::string& turn : question.turns) {
    const std::string what = "question " + question.id.dump() + ", turn " + std::to_string(turns.size() + 1);
    request.messages.push_back(message("user", turn));
    turns.push_back(stripped(endpoint.chat(what, request)));
    request.messages.push_back(message("assistant", turns.back()));
  }
  return {{"index", choice}, {"turns", turns}};
}

Json answer_question(Endpoint& endpoint, const Question& question, const AnswerOptions& options) {
  Json choices = Json::array();
  for (int64_t i = 0; i < options.num_choices; ++i)
    choices.push_back(answer_one(endpoint, question, options, i));
  return {{"question_id", question.id},
          {"answer_id", make_answer_id()},
          {"model_id", options.model_id},
          {"choices", choices},
          {"tstamp", unix_time_s()}};
}

bool has_empty_turn(const Json& row) {
  return std::ranges::any_of(row.at("choices"), [](const Json& choice) {
    return std::ranges::any_of(choice.at("turns"),
                               [](const Json& turn) { return turn.get_ref<const std::string&>().empty(); });
  });
}

// Returns the questions that have a row with enough choices.
std::set<Json> answered(const std::vector<Row>& rows, int64_t num_choices) {
  std::set<Json> ids;
  for (const Row& row : rows) {
    const auto choices = row.value.find("choices");
    if (choices != row.value.end() && choices->is_array() && std::ssize(*choices) >= num_choices)
      ids.insert(row.question_id());
  }
  return ids;
}

void sort_rows(const std::string& path) {
  std::map<Json, std::string> lines;
  const std::vector<Row> rows = read_rows(path);
  bool is_sorted = true;
  for (const Row& row : rows) {
    const Json id = row.question_id();
    is_sorted = is_sorted && (lines.empty() || lines.rbegin()->first < id);
    lines[id] = line_of(row.value) + "\n";
  }
  if (is_sorted) return;
  std::string text;
  for (const auto& [id, line] : lines) text += line;
  io::write_file_atomic(path, text);
}

}  // namespace

size_t make_answers(const std::vector<Question>& questions, const EndpointOptions& endpoint,
                    const AnswerOptions& options, const std::string& path) {
  RowLog log(path);
  const std::set<Json> done = answered(log.rows(), options.num_choices);
  std::vector<const Question*> open;
  for (const Question& question : questions) {
    if (!done.contains(question.id)) open.push_back(&question);
  }
  if (open.size() < questions.size())
    log::info(std::to_string(questions.size() - open.size()) + " of " + std::to_string(questions.size()) +
              " questions are answered already");
  std::mutex mutex;
  size_t num_empty = 0;
  ask_each(endpoint, open.size(), options.parallel, "questions answered", [&](Endpoint& asked, size_t i) {
    const Json row = answer_question(asked, *open[i], options);
    const std::lock_guard lock(mutex);
    log.append(row);
    num_empty += has_empty_turn(row) ? 1 : 0;
  });
  if (num_empty > 0) log::warn(std::to_string(num_empty) + " questions have an empty answer");
  if (!open.empty() || !log.rows().empty()) sort_rows(path);
  return open.size();
}

}  // namespace tessera::scoring::judge

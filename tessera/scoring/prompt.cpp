#include "tessera/scoring/prompt.h"

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"

namespace tessera::scoring {
namespace {

bool begins_with_space(const std::string& text) { return is_python_space(utf8_decode(text, 0)); }

bool needs_delimiter(const std::string& before, const std::string& after) {
  return !before.empty() && !after.empty() && !ends_with_space(before) && !begins_with_space(after);
}

// Joins both texts, with the delimiter if neither has white space at the seam.
std::string delimited(const std::string& before, const std::string& after,
                      const std::string& delimiter = " ") {
  return before + (needs_delimiter(before, after) ? delimiter : "") + after;
}

}  // namespace

bool ends_with_space(const std::string& text) {
  return is_python_space(utf8_decode(text, utf8_step_back(text, text.size())));
}

PromptBuilder::PromptBuilder(const TaskConfig& task, const DocumentFields& fields, const Documents& documents,
                             const Documents& examples, int64_t num_fewshot, uint64_t seed,
                             const PromptForm& form)
    : task_(task),
      fields_(fields),
      examples_(examples),
      example_fields_(task, task.fewshot_prompt, documents.columns),
      num_fewshot_(num_fewshot),
      has_several_(fields.has_choices() && task.output_type == OutputType::MultipleChoice &&
                   fields.text(documents.rows.front()).is_number_integer()),
      random_(seed),
      form_(form) {
  if (num_fewshot <= std::ssize(examples.rows)) return;
  throw task_error(task, "TASK-FEWSHOT", "the task has too few examples")
      .got(std::to_string(num_fewshot) + " of " + std::to_string(examples.rows.size()) + " documents");
}

// A document that may be among the examples is left out of them: one more is drawn, and it is taken out. The
// harness assumes so where the names of both splits are equal, also where neither is given.
std::vector<const Json*> PromptBuilder::draw(const Json& document) {
  const auto count = static_cast<size_t>(num_fewshot_);
  const bool may_be_among = task_.fewshot_split == task_.test_split;
  const auto differs = [&](const Json& row) { return !may_be_among || row != document; };
  std::vector<const Json*> chosen;
  if (task_.sampler == "first_n") {
    for (const Json& row : examples_.rows) {
      if (chosen.size() < count && differs(row)) chosen.push_back(&row);
    }
  } else {
    const int64_t size = std::ssize(examples_.rows), wanted = num_fewshot_ + (may_be_among ? 1 : 0);
    if (wanted <= size) {
      for (const int64_t i : random_.sample(size, wanted)) {
        const Json& row = examples_.rows[static_cast<size_t>(i)];
        if (chosen.size() < count && differs(row)) chosen.push_back(&row);
      }
    }
    if (chosen.size() < count) {
      // Copies of the document were drawn: the examples are drawn once more among all others.
      std::vector<const Json*> others;
      for (const Json& row : examples_.rows) {
        if (row != document) others.push_back(&row);
      }
      chosen.clear();
      if (num_fewshot_ <= std::ssize(others) && wanted <= size) {
        for (const int64_t i : random_.sample(std::ssize(others), num_fewshot_))
          chosen.push_back(others[static_cast<size_t>(i)]);
      }
    }
  }
  if (chosen.size() == count) return chosen;
  throw task_error(task_, "TASK-FEWSHOT", "the task has too few examples besides the document itself")
      .got(std::to_string(examples_.rows.size()) + " documents")
      .need("more than " + std::to_string(num_fewshot_));
}

std::vector<PromptPart> PromptBuilder::turn(const Json& question, const std::vector<std::string>& choices,
                                            const Json* answer, const std::string& prefix,
                                            const PromptConfig& prompt, const std::string& behind) const {
  if (!question.is_string()) {
    throw Error(ErrorKind::Data, "TASK-DOCUMENT", "the question is no text")
        .within("task " + task_.name + ", doc_to_text")
        .got(question.dump());
  }
  const auto text = question.get<std::string>();
  const bool has_answer = answer != nullptr && !answer->is_null() && *answer != "";
  const bool is_delimited = prefix.empty() ? has_answer : needs_delimiter(text, prefix);
  std::vector<PromptPart> parts = {{"user", text, is_delimited ? prompt.target_delimiter : ""}};
  if (!has_answer) {
    if (!prefix.empty()) parts.push_back({"assistant", prefix, ""});
    return parts;
  }
  Json given = answer->is_array() && !answer->empty() ? (*answer)[0] : *answer;
  const bool is_number = answer->is_number_integer() || answer->is_boolean();
  if (!choices.empty() && is_number) {
    const int64_t number = answer->is_boolean() ? int64_t{answer->get<bool>()} : answer->get<int64_t>();
    const int64_t at = number < 0 ? number + std::ssize(choices) : number;
    if (at >= 0 && at < std::ssize(choices)) given = choices[static_cast<size_t>(at)];
  }
  if (!given.is_string()) {
    throw Error(ErrorKind::Data, "TASK-DOCUMENT", "the answer of an example is no text and no choice")
        .within("task " + task_.name + ", doc_to_target")
        .got(answer->dump());
  }
  parts.push_back({"assistant", delimited(prefix, given.get<std::string>()), behind});
  return parts;
}

std::vector<std::string> PromptBuilder::prompts(const Json& document) {
  std::vector<PromptPart> parts;
  const std::string description = resolve_text(task_, "description", task_.description, document);
  if (std::string text = delimited(form_.system_instruction, description, task_.prompt.fewshot_delimiter);
      !text.empty())
    parts.push_back({"system", std::move(text), ""});
  if (num_fewshot_ > 0) {
    for (const Json* row : draw(document)) {
      Json question = example_fields_.text(*row);
      std::vector<std::string> choices;
      if (example_fields_.has_choices()) choices = example_fields_.choices(*row);
      if (has_several_ && question.is_number_integer()) {
        const auto number = static_cast<size_t>(question.get<int64_t>());
        if (number < choices.size()) question = choices[number];
        choices.clear();
      }
      const Json answer = example_fields_.target(*row);
      for (PromptPart& part : turn(question, choices, &answer, example_fields_.gen_prefix(*row),
                                   task_.fewshot_prompt, task_.fewshot_prompt.fewshot_delimiter))
        parts.push_back(std::move(part));
    }
  }
  const std::string prefix = fields_.gen_prefix(document);
  std::vector<Json> questions = {has_several_ ? Json() : fields_.text(document)};
  if (has_several_) {
    const auto choices = fields_.choices(document);
    questions.assign(choices.begin(), choices.end());
  }
  PromptConfig prompt = task_.prompt;
  if (has_several_) prompt.target_delimiter.clear();
  std::vector<std::string> texts;
  for (const Json& question : questions) {
    std::vector<PromptPart> all = parts;
    for (PromptPart& part : turn(question, {}, nullptr, prefix, prompt, "")) all.push_back(std::move(part));
    texts.push_back(form_.render(all));
  }
  return texts;
}

}  // namespace tessera::scoring

#include "tessera/scoring/judge/prompts.h"

#include "tessera/scoring/judge/rows.h"

namespace tessera::scoring::judge {
namespace {

Error problem(const JudgePrompt& prompt, const std::string& what) {
  return Error(ErrorKind::Data, "JUDGE-PROMPT", "the prompt '" + prompt.name + "' " + what).at(prompt.place);
}

JudgePrompt read_prompt(const Row& row) {
  JudgePrompt prompt{.name = row.text("name"),
                     .system_prompt = row.text("system_prompt"),
                     .prompt_template = row.text("prompt_template"),
                     .output_format = row.text("output_format"),
                     .is_pairwise = row.text("type") == "pairwise",
                     .place = row.place};
  if (!prompt.is_pairwise && row.text("type") != "single") throw row.problem("type", "single or pairwise");
  const std::string& format = prompt.output_format;
  if (!prompt.is_pairwise && format != "[[rating]]") throw row.problem("output_format", "[[rating]]");
  if (prompt.is_pairwise && format != "[[A]]" && format != "[[rating_a,rating_b]]")
    throw row.problem("output_format", "[[A]] or [[rating_a,rating_b]]");
  return prompt;
}

}  // namespace

std::string fill_template(const JudgePrompt& prompt, const Fields& fields) {
  const std::string& text = prompt.prompt_template;
  std::string filled;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c != '{' && c != '}') {
      filled += c;
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == c) {
      filled += c;
      ++i;
      continue;
    }
    const size_t end = c == '{' ? text.find('}', i) : std::string::npos;
    if (end == std::string::npos)
      throw problem(prompt, "has a single brace").hint("write {{ and }} for braces");
    const std::string name = text.substr(i + 1, end - i - 1);
    const auto found = fields.find(name);
    if (found == fields.end()) {
      std::string known;
      for (const auto& [field, value] : fields) known += (known.empty() ? "{" : ", {") + field + '}';
      throw problem(prompt, "has a field of an unknown name").got('{' + name + '}').need(known);
    }
    filled += found->second;
    i = end;
  }
  return filled;
}

JudgePrompts::JudgePrompts(const std::string& path) : path_(path) {
  for (const Row& row : read_rows(path)) {
    JudgePrompt prompt = read_prompt(row);
    const std::string name = prompt.name;
    prompts_.insert_or_assign(name, std::move(prompt));
  }
}

const JudgePrompt& JudgePrompts::get(const std::string& name, bool is_pairwise) const {
  const auto found = prompts_.find(name);
  if (found == prompts_.end()) {
    throw Error(ErrorKind::Data, "JUDGE-PROMPT", "the file has no prompt '" + name + "'")
        .in(path_)
        .hint("FastChat's judge_prompts.jsonl has all that are needed");
  }
  if (found->second.is_pairwise != is_pairwise)
    throw problem(found->second, "is of the wrong type").need(is_pairwise ? "pairwise" : "single");
  return found->second;
}

}  // namespace tessera::scoring::judge

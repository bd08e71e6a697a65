// The judge's prompts, as FastChat's judge_prompts.jsonl has them.
#pragma once

#include <map>
#include <string>

#include "tessera/core/error.h"

namespace tessera::scoring::judge {

struct JudgePrompt {
  std::string name, system_prompt, prompt_template, output_format;
  bool is_pairwise = false;
  SourcePlace place;
};

// Texts by the names that stand for them in a template.
using Fields = std::map<std::string, std::string>;

// Returns the template with each {name} replaced by its text, and {{ and }} by single braces, as Python's
// str.format() does. Throws Error(Data, "JUDGE-PROMPT") for a name that is not among the fields and for a
// brace without its counterpart.
std::string fill_template(const JudgePrompt& prompt, const Fields& fields);

class JudgePrompts {
 public:
  // Reads the file. Throws what read_rows() throws, and Error(Data, "JUDGE-PROMPT") for a prompt of another
  // type or output format than FastChat has.
  explicit JudgePrompts(const std::string& path);

  // Returns a prompt by its name, such as "single-math-v1-multi-turn". Throws Error(Data, "JUDGE-PROMPT") if
  // the file has none or one of the other type.
  const JudgePrompt& get(const std::string& name, bool is_pairwise) const;

 private:
  std::string path_;
  std::map<std::string, JudgePrompt> prompts_;
};

}  // namespace tessera::scoring::judge

// Prompts: the description, the examples and the question of a document, joined as the harness joins them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/scoring/document_fields.h"
#include "tessera/scoring/documents.h"
#include "tessera/scoring/prompt_form.h"
#include "tessera/scoring/python_random.h"

namespace tessera::scoring {

// Tells whether a text, which is not empty, ends with white space.
bool ends_with_space(const std::string& text);

// Makes the prompts of one document after another. The examples of each are drawn with the generator as the
// document before left it, so prompts depend on the order of the calls.
class PromptBuilder {
 public:
  // `examples` are the documents that examples are drawn from; there may be none if num_fewshot is 0. All
  // arguments must outlive the builder. Throws Error(Config) if there are too few examples.
  PromptBuilder(const TaskConfig& task, const DocumentFields& fields, const Documents& documents,
                const Documents& examples, int64_t num_fewshot, uint64_t seed, const PromptForm& form);

  // Returns the prompt of a document: one, or one for each choice if doc_to_text gives the number of the
  // right choice and the choices are the questions (has_several()).
  std::vector<std::string> prompts(const Json& document);
  bool has_several() const { return has_several_; }

 private:
  std::vector<const Json*> draw(const Json& document);
  std::vector<PromptPart> turn(const Json& question, const std::vector<std::string>& choices,
                               const Json* answer, const std::string& prefix, const PromptConfig& prompt,
                               const std::string& behind) const;

  const TaskConfig& task_;
  const DocumentFields& fields_;
  const Documents& examples_;
  const DocumentFields example_fields_;
  const int64_t num_fewshot_;
  bool has_several_;
  PythonRandom random_;
  const PromptForm& form_;
};

}  // namespace tessera::scoring

// The question, the answer and the choices that a task makes of a document.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/scoring/task_config.h"
#include "tessera/text/task_template.h"

namespace tessera::scoring {

// Templates that are parsed once; a key that names a column takes its value as it is.
class DocumentFields {
 public:
  // `columns` are those of the evaluated documents. `has_choices` tells whether the task itself has
  // doc_to_choice: texts of digits then become integers. Throws Error(Config) for a broken template.
  DocumentFields(const TaskConfig& task, const PromptConfig& prompt, std::vector<std::string> columns);

  // These throw Error(Data) for a document that a template fails on.
  Json text(const Json& document) const;    // doc_to_text: a text, or the number of a choice
  Json target(const Json& document) const;  // doc_to_target: a text, a number of a choice, or a list of these
  std::vector<std::string> choices(const Json& document) const;
  std::string gen_prefix(const Json& document) const;  // "" if there is none
  bool has_choices() const { return !choices_.value.is_null(); }

 private:
  struct Field {
    std::string key;
    Json value;          // of a key that is no text
    std::string column;  // set if the key names one
    std::optional<text::TaskTemplate> source;
  };
  Field field(const TaskConfig& task, const char* key, const Json& value) const;
  // Returns the value of the key; a template gives its text, and sets `is_rendered`.
  Json value_of(const Field& field, const Json& document, bool& is_rendered) const;
  Json as_number(Json value, bool is_rendered) const;

  std::string task_;
  std::vector<std::string> columns_;
  bool task_has_choices_;
  Field text_, target_, choices_, gen_prefix_;
};

// Returns the value of a key that is a column of the document, or else a template: description.
std::string resolve_text(const TaskConfig& task, const std::string& key, const std::string& source,
                         const Json& document);

}  // namespace tessera::scoring

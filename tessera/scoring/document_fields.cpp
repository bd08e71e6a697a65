#include "tessera/scoring/document_fields.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"

namespace tessera::scoring {
namespace {

// Returns the beginning of a document, for a message.
std::string excerpt_of(const Json& document) {
  const std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= 300 ? text : text.substr(0, 300) + "...";
}

Error document_error(const std::string& task, const std::string& key, const std::string& what,
                     const Json& document) {
  Error error(ErrorKind::Data, "TASK-DOCUMENT", what);
  return error.within("task " + task + ", " + key).got(excerpt_of(document));
}

template <class Run>
auto on_document(const std::string& task, const std::string& key, const Json& document, Run&& run) {
  try {
    return run();
  } catch (const Error& error) {
    throw document_error(task, key, std::string(error.message()), document);
  }
}

}  // namespace

DocumentFields::DocumentFields(const TaskConfig& task, const PromptConfig& prompt,
                               std::vector<std::string> columns)
    : task_(task.name),
      columns_(std::move(columns)),
      task_has_choices_(!task.prompt.doc_to_choice.is_null()),
      text_(field(task, "doc_to_text", prompt.doc_to_text)),
      target_(field(task, "doc_to_target", prompt.doc_to_target)),
      choices_(field(task, "doc_to_choice", prompt.doc_to_choice)),
      gen_prefix_(field(task, "gen_prefix", prompt.gen_prefix ? Json(*prompt.gen_prefix) : Json())) {}

DocumentFields::Field DocumentFields::field(const TaskConfig& task, const char* key,
                                            const Json& value) const {
  Field field{key, value, "", std::nullopt};
  if (!value.is_string()) return field;
  const auto source = value.get<std::string>();
  if (std::ranges::find(columns_, source) != columns_.end()) {
    field.column = source;
    return field;
  }
  try {
    field.source = text::TaskTemplate::parse(source, key);
  } catch (const Error& error) {
    throw task_error(task, "TASK-TEMPLATE", std::string(error.message())).got(source);
  }
  return field;
}

Json DocumentFields::value_of(const Field& field, const Json& document, bool& is_rendered) const {
  is_rendered = field.source.has_value();
  if (is_rendered)
    return on_document(task_, field.key, document, [&] { return field.source->render(document); });
  if (field.column.empty()) return field.value;
  const auto found = document.find(field.column);
  if (found == document.end())
    throw document_error(task_, field.key, "the document has no column '" + field.column + "'", document);
  return *found;
}

Json DocumentFields::as_number(Json value, bool is_rendered) const {
  if (!is_rendered || !task_has_choices_) return value;
  const auto text = value.get<std::string>();
  const bool is_number =
      !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? Json(std::stoll(text)) : value;
}

Json DocumentFields::text(const Json& document) const {
  bool is_rendered = false;
  Json value = value_of(text_, document, is_rendered);
  value = as_number(std::move(value), is_rendered);
  if (!value.is_string() && !value.is_number_integer())
    throw document_error(task_, "doc_to_text", "the question is no text", document);
  return value;
}

Json DocumentFields::target(const Json& document) const {
  bool is_rendered = false;
  Json value = value_of(target_, document, is_rendered);
  value = as_number(std::move(value), is_rendered);
  if (!is_rendered || !value.is_string()) return value;
  const auto text = value.get<std::string>();
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return value;
  try {
    return text::parse_python_literal(text, "doc_to_target");
  } catch (const Error&) {
    return value;  // a text that only looks like a list
  }
}

std::vector<std::string> DocumentFields::choices(const Json& document) const {
  bool is_rendered = false;
  Json value = value_of(choices_, document, is_rendered);
  if (is_rendered) {
    value = on_document(task_, "doc_to_choice", document, [&] {
      return text::parse_python_literal(value.get<std::string>(), "doc_to_choice");
    });
  }
  std::vector<std::string> choices;
  for (const Json& choice : value) {
    if (!choice.is_string()) throw document_error(task_, "doc_to_choice", "a choice is no text", document);
    choices.push_back(choice.get<std::string>());
  }
  if (choices.empty() || value.is_string())
    throw document_error(task_, "doc_to_choice", "the choices are no list of texts", document);
  return choices;
}

std::string DocumentFields::gen_prefix(const Json& document) const {
  bool is_rendered = false;
  const Json value = value_of(gen_prefix_, document, is_rendered);
  return value.is_string() ? value.get<std::string>() : "";
}

std::string resolve_text(const TaskConfig& task, const std::string& key, const std::string& source,
                         const Json& document) {
  if (source.empty()) return "";
  if (const auto found = document.find(source); found != document.end())
    return found->is_string() ? found->get<std::string>() : "";
  return on_document(task.name, key, document,
                     [&] { return text::TaskTemplate::parse(source, key).render(document); });
}

}  // namespace tessera::scoring

#include "tessera/data/prompts/classification.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/config/scalar.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/data/prompts/fields.h"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

// The columns of the tasks of GLUE and SuperGLUE (Wang et al., arXiv 1804.07461).
constexpr std::pair<const char*, const char*> kColumns[] = {
    {"text", "text_pair"},     {"sentence1", "sentence2"},
    {"premise", "hypothesis"}, {"question1", "question2"},
    {"question", "sentence"},  {"question", "passage"},
    {"sentence", ""}};

// Takes tokens off the end of the longer text until both have room, as the tokenizers library does.
std::pair<int64_t, int64_t> shortened(int64_t first, int64_t second, int64_t room) {
  const bool is_swapped = first > second;
  if (is_swapped) std::swap(first, second);
  second = first > room ? first : std::max(first, room - first);
  if (first + second > room) {
    first = room / 2;
    second = first + room % 2;
  }
  if (is_swapped) std::swap(first, second);
  return {first, second};
}

Error wrong_label(const std::string& field, const std::string& got, const std::string& need) {
  return Error(ErrorKind::Data, "CLASS-LABEL", "field '" + field + "' is no label of this model")
      .got(got)
      .need(need);
}

}  // namespace

std::optional<double> label_number(const Json& label) {
  if (label.is_boolean()) return label.get<bool>() ? 1.0 : 0.0;
  if (label.is_number()) return label.get<double>();
  if (const auto* text = label.get_ptr<const std::string*>()) return config::parse_number(*text);
  return std::nullopt;
}

TextColumns find_text_columns(const Json& record, const config::DatasetConfig& dataset) {
  const auto has = [&](const std::string& name) { return find_field(record, name) != nullptr; };
  if (has(dataset.field) || !dataset.field_text_pair.empty()) {
    const bool is_pair = !dataset.field_text_pair.empty();
    return {dataset.field, is_pair ? dataset.field_text_pair : has("text_pair") ? "text_pair" : ""};
  }
  for (const auto& [first, second] : kColumns) {
    if (has(first) && (*second == '\0' || has(second))) return {first, second};
  }
  return {dataset.field, ""};
}

ClassificationPrompt::ClassificationPrompt(const config::DatasetConfig& dataset, const PromptContext& context)
    : tokenizer_(*context.tokenizer), dataset_(dataset), rows_(*context.classification) {
  if (context.config.excess_length_strategy == config::ExcessLength::Truncate)
    most_tokens_ =
        std::min(context.config.sequence_len, rows_.most_tokens.value_or(context.config.sequence_len));
}

Row ClassificationPrompt::make_row(const text::Tokenizer& tokenizer, std::string_view first,
                                   std::optional<std::string_view> second,
                                   std::optional<int64_t> most_tokens) {
  const text::PairEncoding encoded =
      tokenizer.encode_pair(first, second, {.parse_special = false, .add_special_tokens = true});
  int64_t left[2] = {std::ranges::count(encoded.texts, 0), std::ranges::count(encoded.texts, 1)};
  const auto size = std::ssize(encoded.ids);
  if (most_tokens && size > *most_tokens) {
    const int64_t room = std::max<int64_t>(0, *most_tokens - (size - left[0] - left[1]));
    std::tie(left[0], left[1]) = shortened(left[0], left[1], room);
    if (!second) left[0] = room;
  }
  Row row;
  const bool has_types = std::ranges::any_of(encoded.type_ids, [](int32_t type) { return type != 0; });
  for (size_t i = 0; i < encoded.ids.size(); ++i) {
    const int32_t text = encoded.texts[i];
    if (text >= 0 && left[text]-- <= 0) continue;
    row.input_ids.push_back(encoded.ids[i]);
    if (has_types) row.type_ids.push_back(encoded.type_ids[i]);
  }
  row.labels.assign(row.input_ids.size(), static_cast<int32_t>(kIgnoreLabel));
  return row;
}

size_t ClassificationPrompt::read_position(const Row& row, const ClassificationRows& rows) {
  if (rows.reads_first) return 0;
  const auto is_text = [&](int32_t id) { return !rows.pad_token_id || id != *rows.pad_token_id; };
  const auto last = std::find_if(row.input_ids.rbegin(), row.input_ids.rend(), is_text);
  return last == row.input_ids.rend() ? 0 : static_cast<size_t>(row.input_ids.rend() - last - 1);
}

int64_t class_of(const Json& label, const Classification& classes, const std::string& field) {
  const std::string need = classes.num_labels() <= 20 ? join(classes.labels, ", ") + ", or its number"
                                                      : "the name or the number of a class";
  if (const auto* name = label.get_ptr<const std::string*>()) {
    if (const auto found = classes.find(*name)) return *found;
  }
  const double number = label_number(label).value_or(-1.0);
  if (number < 0.0 || number >= static_cast<double>(classes.num_labels()) || number != std::floor(number))
    throw wrong_label(field, label.dump(), need);
  return static_cast<int64_t>(number);
}

std::vector<float> ClassificationPrompt::read_targets(const Json& record) const {
  const Classification& classes = rows_.classes;
  const Json* const label = find_field(record, dataset_.field_label);
  const bool is_unlabelled = label == nullptr ? record.contains(dataset_.field_label)
                                              : label->is_number_integer() && label->get<int64_t>() == -1 &&
                                                    classes.problem != ProblemType::Regression;
  if (is_unlabelled) return {};
  const Json& value = required_value(record, dataset_.field_label);
  const auto read_class = [&](const Json& one) { return class_of(one, classes, dataset_.field_label); };
  if (classes.problem == ProblemType::SingleLabel) return {static_cast<float>(read_class(value))};
  const Json list = value.is_array() ? value : Json::array({value});
  const auto count = static_cast<size_t>(classes.num_labels());
  const bool is_names = classes.problem == ProblemType::MultiLabel &&
                        std::ranges::all_of(list, [](const Json& one) { return one.is_string(); });
  std::vector<float> targets;
  if (is_names) {
    targets.assign(count, 0.0F);
    for (const Json& name : list) targets[static_cast<size_t>(read_class(name))] = 1.0F;
    return targets;
  }
  for (const Json& one : list) {
    const double number = label_number(one).value_or(std::nan(""));
    const bool fits =
        classes.problem == ProblemType::Regression ? std::isfinite(number) : number == 0.0 || number == 1.0;
    if (!fits) {
      throw wrong_label(
          dataset_.field_label, one.dump(),
          classes.problem == ProblemType::Regression ? "a number" : "a 0 or 1 for each label, or names");
    }
    targets.push_back(static_cast<float>(number));
  }
  if (targets.size() != count) {
    throw wrong_label(dataset_.field_label, std::to_string(targets.size()) + " numbers",
                      std::to_string(count) + ", one for each label");
  }
  return targets;
}

void ClassificationPrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  const TextColumns columns = find_text_columns(record.fields, dataset_);
  const std::string& first = required_text(record.fields, columns.first);
  std::optional<std::string_view> second;
  if (!columns.second.empty()) second = required_text(record.fields, columns.second);
  Row row = make_row(tokenizer_, first, second, most_tokens_);
  row.targets = read_targets(record.fields);
  if (!row.targets.empty() && !row.input_ids.empty()) {
    const size_t read = read_position(row, rows_);
    row.labels[read] = row.input_ids[read];
  }
  rows.push_back(std::move(row));
}

}  // namespace tessera::data

#include "tessera/data/prepare_stats.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/core/strings.h"

namespace tessera::data {

DatasetStats& DatasetStats::operator+=(const DatasetStats& other) {
  const int64_t longest_of_both = std::max(longest, other.longest);
  for (const auto count : kStatCounts) this->*count += other.*count;
  longest = longest_of_both;
  for (const std::string& place : other.merged_places) {
    if (merged_places.size() < kMaxPlaces) merged_places.push_back(place);
  }
  for (const auto& [field, count] : other.unread_fields) note_unread(field, count);
  return *this;
}

void DatasetStats::note_unread(const std::string& field, int64_t count) {
  if (unread_fields.size() < kMaxFields || unread_fields.contains(field)) unread_fields[field] += count;
}

std::string DatasetStats::details() const {
  if (merged_places.empty() && unread_fields.empty()) return "";
  return nlohmann::json{{"merged", merged_places}, {"unread", unread_fields}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void DatasetStats::set_details(const std::string& text) {
  if (text.empty()) return;
  const auto details = nlohmann::json::parse(text);
  details.at("merged").get_to(merged_places);
  details.at("unread").get_to(unread_fields);
}

std::vector<std::string> data_warnings(const DatasetStats& stats) {
  std::vector<std::string> warnings;
  const std::string of_rows = " of " + std::to_string(stats.rows) + " rows ";
  if (stats.rows > 0 && stats.end_labels == 0) {
    warnings.emplace_back("no end-of-turn or EOS token is trained: the model will not learn to stop");
  } else if (stats.untrained_ends > 0) {
    warnings.push_back("in " + std::to_string(stats.untrained_ends) + of_rows +
                       "a trained turn ends in a token that is not trained (train_on_eos, train_on_eot)");
  }
  if (stats.repeated_ends > 0) {
    warnings.push_back(
        "in " + std::to_string(stats.repeated_ends) + of_rows +
        "an end-of-turn or EOS token occurs twice in a row: does the text already contain one?");
  }
  if (stats.own_ends > 0) {
    warnings.push_back(std::to_string(stats.own_ends) + " of " + std::to_string(stats.records) +
                       " records already begin or end with a BOS or EOS token: is it one too many?");
  }
  if (stats.control_texts > 0) {
    warnings.push_back(
        std::to_string(stats.control_texts) + " of " + std::to_string(stats.records) +
        " records spell a control token such as \"<|im_end|>\": it is treated as plain text there");
  }
  if (stats.merged_borders > 0) {
    warnings.push_back("in " + std::to_string(stats.merged_borders) + " of " + std::to_string(stats.records) +
                       " records a token contains both the end of a prompt and the start of its answer: " +
                       join(stats.merged_places, ", ") +
                       (std::ssize(stats.merged_places) < stats.merged_borders ? ", ..." : "") +
                       " (answer_border: whole trains that token, answer_border: split cuts the text there)");
  }
  if (stats.final_questions > 0) {
    warnings.push_back(
        std::to_string(stats.final_questions) + " of " + std::to_string(stats.records) +
        " records do not end with an answer and train nothing, because only the last answer is trained");
  }
  if (!stats.unread_fields.empty()) {
    std::vector<std::string> fields;
    for (const auto& [name, count] : stats.unread_fields)
      fields.push_back(name + " (" + std::to_string(count) + " messages)");
    warnings.push_back("the chat template does not read these fields of messages: " + join(fields, ", ") +
                       (fields.size() < DatasetStats::kMaxFields ? "" : ", ..."));
  }
  return warnings;
}

}  // namespace tessera::data

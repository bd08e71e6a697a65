// Reads fields of a dataset record. All functions throw Error(Data) without a place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tessera::data {

// Returns a value that must be there, null or not.
const nlohmann::ordered_json& required_value(const nlohmann::ordered_json& object, const std::string& field);
// Returns a text that must be there.
const std::string& required_text(const nlohmann::ordered_json& object, const std::string& field);
// Returns a text, which is empty if it is missing or null.
std::string optional_text(const nlohmann::ordered_json& object, const std::string& field);
// Returns an array that must be there and hold at least one element.
const nlohmann::ordered_json& required_array(const nlohmann::ordered_json& object, const std::string& field);
// Returns an array of integers that must be there and hold at least one. Each is from `low` to `high`, or
// equals `also`.
std::vector<int64_t> required_integers(const nlohmann::ordered_json& object, const std::string& field,
                                       int64_t low, int64_t high, std::optional<int64_t> also = {});
// Returns the value of a field, or null when it is missing or null.
const nlohmann::ordered_json* find_field(const nlohmann::ordered_json& object, const std::string& field);

}  // namespace tessera::data

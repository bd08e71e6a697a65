// Fields of a dataset record. All throw Error(Data) without a place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tessera::data {

// A value that must be there, null or not.
const nlohmann::ordered_json& required_value(const nlohmann::ordered_json& object, const std::string& field);
// A text that must be there.
const std::string& required_text(const nlohmann::ordered_json& object, const std::string& field);
// A text that may be missing or null: then it is empty.
std::string optional_text(const nlohmann::ordered_json& object, const std::string& field);
// An array that must be there and hold at least one element.
const nlohmann::ordered_json& required_array(const nlohmann::ordered_json& object, const std::string& field);
// An array of integers from `low` to `high`, or `also`, that must be there and hold at least one.
std::vector<int64_t> required_integers(const nlohmann::ordered_json& object, const std::string& field,
                                       int64_t low, int64_t high, std::optional<int64_t> also = {});
// The value of a field, or nothing when it is missing or null.
const nlohmann::ordered_json* find_field(const nlohmann::ordered_json& object, const std::string& field);

}  // namespace tessera::data

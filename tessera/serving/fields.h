// Typed reading of the fields of a request, with errors that name the field.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/serving/api_error.h"

namespace tessera::serving {

using Json = nlohmann::ordered_json;

// Parses the body of a request: one JSON object of at most 64 levels, as data::parse_record() reads it.
// Throws ApiError.
Json parse_body(const std::string& body);

// The members of one JSON object, which must outlive this one. A member that is null counts as absent. The
// getters throw ApiError (400) for a value of another type or outside [min, max].
class Fields {
 public:
  // `path` stands before the names of the members in errors, as "messages[0].".
  explicit Fields(const Json& object, std::string path = "");

  const Json* find(const std::string& name);
  bool boolean(const std::string& name, bool fallback);
  std::optional<int64_t> integer(const std::string& name, int64_t min, int64_t max);
  std::optional<double> number(const std::string& name, double min, double max);
  std::optional<std::string> text(const std::string& name);
  // Reads an array of integers; nothing if it is absent.
  std::vector<int64_t> integers(const std::string& name, int64_t min, int64_t max);
  // Takes fields that change no answer.
  void ignore(std::initializer_list<std::string_view> names);
  // Refuses the field if it is there and differs from `harmless`, and so would change the answer.
  void refuse_unless(const std::string& name, const Json& harmless, const std::string& why);

  // Returns the name of a member as it stands in the request.
  std::string place(const std::string& name) const { return path_ + name; }
  // The members that no function above was asked for.
  std::vector<std::string> unknown() const;
  ApiError problem(const std::string& name, const std::string& message) const {
    return ApiError::bad(place(name) + ": " + message, place(name));
  }

 private:
  const Json& object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace tessera::serving

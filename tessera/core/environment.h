// Environment variables: read and set here alone (scripts/check_includes.py holds the sources to it), each by
// its row in one table, which `tessera help environment` and docs/environment.md show.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tessera::environment {

struct Variable {
  std::string_view name;                      // one that ends in '*' is every name that begins so
  std::span<const std::string_view> choices;  // all that it may hold; empty: see `values`
  std::string_view values;                    // in words, where there are no choices
  std::string_view otherwise;                 // what holds if it is not set
  std::string_view meaning;

  // The values in words: "0 or 1", or `values`.
  std::string values_text() const;
};

// The rows of the table.
std::span<const Variable> variables();

// The functions below take a name of the table. A variable without any text counts as not set.

// Gives the variable's text, or nothing if it is not set. Throws E-CONFIG-ENVIRONMENT if the variable has
// choices and holds none of them.
std::optional<std::string> get(std::string_view name);
// Reads a variable with the choices 0 and 1.
std::optional<bool> get_flag(std::string_view name);
// Reads a number of seconds. Throws E-CONFIG-ENVIRONMENT for anything but a number above 0.
std::optional<double> get_seconds(std::string_view name);

void set(std::string_view name, const std::string& value);
// Sets the variable unless the user has set it.
void set_default(std::string_view name, const std::string& value);
void unset(std::string_view name);

// Throws the error of the functions above for the first variable of the table that holds what it may not.
void check();

}  // namespace tessera::environment

#include "tessera/cli/command_line.h"

#include <string>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/hub/fetch.h"
#include "tessera/io/file.h"
#include "tessera/io/run_inputs.h"
#include "tessera/peft/combine.h"

namespace tessera::cli {
namespace {

// Returns the text of what is wrong with the path, or "".
std::string fault_of(const std::string& path, Takes takes) {
  const bool takes_files = takes == Takes::Model;
  if (io::exists(path)) return takes_files || io::is_folder(path) ? "" : "not a folder: " + path;
  if (hub::is_fetchable(path) || hub::find_snapshot({hub::Kind::Model, path, ""})) return "";
  return std::string(takes_files ? "Path" : "Directory") + " does not exist: " + path;
}

}  // namespace

void CommandLine::set_action(CLI::App& verb, Action action) {
  verb.callback([this, action = std::move(action)] { action_ = action; });
}

CLI::Option* CommandLine::add_model(CLI::App& verb, const std::string& name, std::string& value,
                                    const std::string& help, Takes takes) {
  models_.push_back({&value, takes});
  return verb.add_option(name, value, help)
      ->check(CLI::Validator([takes](const std::string& path) { return fault_of(path, takes); },
                             takes == Takes::Model ? "PATH|ORG/NAME" : "DIR|ORG/NAME", "model"));
}

CLI::Option* CommandLine::add_adapters(CLI::App& verb, const std::string& name,
                                       std::vector<std::string>& values, const std::string& help) {
  adapters_.push_back(&values);
  const auto fault = [](const std::string& text) -> std::string {
    try {
      return fault_of(peft::read_weighted_adapter(text).folder, Takes::Adapter);
    } catch (const Error&) {
      return "bad weight behind the colon, need a number other than 0: " + text;
    }
  };
  return verb.add_option(name, values, help + "; [NAME=]DIR[:WEIGHT], repeatable")
      ->allow_extra_args(false)
      ->check(CLI::Validator(fault, "DIR|ORG/NAME", "model"));
}

void CommandLine::fetch_models() const {
  const auto fetch = [](const std::string& value, Takes takes) {
    if (value.empty() || io::exists(value)) return value;
    const auto name = hub::parse_name(value);
    if (!name) return value;
    try {
      const auto want = takes == Takes::Adapter ? hub::Want::Adapter : hub::Want::Model;
      return hub::fetch_model(value, "", want).value_or(value);
    } catch (Error& error) {
      error.within("no such path: " + value);
      throw;
    }
  };
  for (const auto& [value, takes] : models_) *value = fetch(*value, takes);
  for (std::vector<std::string>* texts : adapters_) {
    for (std::string& text : *texts) {
      const std::string named = peft::read_weighted_adapter(text).folder;
      const std::string folder = fetch(named, Takes::Adapter);
      if (folder != named) text.replace(text.rfind(named), named.size(), folder);
    }
  }
}

}  // namespace tessera::cli

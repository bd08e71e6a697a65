#include "tessera/cli/adapters.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/io/temporary_folder.h"
#include "tessera/peft/combine.h"

namespace tessera::cli {

// The combined adapter, in a folder of its own.
class AdapterOptions::Combined {
 public:
  explicit Combined(const peft::AdapterSet& set) { peft::combine_adapters(set, folder_.path()); }
  const std::string& path() const { return folder_.path(); }

 private:
  io::TemporaryFolder folder_{"the combined adapter"};
};

const std::string& AdapterOptions::folder() {
  if (!folder_.empty() || texts.empty()) return folder_;
  peft::AdapterSet set;
  for (const std::string& text : texts) set.adapters.push_back(peft::read_weighted_adapter(text));
  if (combination == "linear") set.combination = peft::Combination::Linear;
  if (set.adapters.size() == 1 && set.adapters.front().weight == 1.0) {
    folder_ = set.adapters.front().folder;
  } else {
    combined_ = std::make_shared<const Combined>(set);
    folder_ = combined_->path();
  }
  return folder_;
}

std::vector<std::pair<std::string, AdapterOptions>> AdapterOptions::by_name() const {
  std::vector<std::pair<std::string, AdapterOptions>> named;
  for (const std::string& text : texts) {
    const std::string name = peft::read_weighted_adapter(text).name;
    auto found = std::ranges::find(named, name, [](const auto& each) { return each.first; });
    if (found == named.end()) {
      found = named.insert(named.end(), {name, {}});
      found->second.combination = combination;
    }
    found->second.texts.push_back(text);
  }
  const bool has_nameless = std::ranges::any_of(named, [](const auto& each) { return each.first.empty(); });
  if (has_nameless && named.size() > 1) {
    throw Error(ErrorKind::Config, "ADAPTER-NAME", "some adapters have a name and others have none")
        .at("command line")
        .need(
            "--adapter NAME=DIR for each of several adapters, or --adapter DIR for those that are combined");
  }
  if (has_nameless) named.clear();
  return named;
}

void add_adapter_options(CLI::App& verb, CommandLine& line, AdapterOptions& options,
                         const std::string& help) {
  line.add_adapters(verb, "--adapter", options.texts, help);
  verb.add_option("--combination", options.combination,
                  "How several adapters are combined: cat adds their changes of each layer, each times its "
                  "weight; linear adds the factors, as PEFT's 'linear' does")
      ->check(CLI::IsMember({"cat", "linear"}));
}

}  // namespace tessera::cli

#include "tessera/data/readers/dataset_card.h"

#include "tessera/config/dataset_card.h"
#include "tessera/data/readers/split.h"
#include "tessera/io/file.h"

namespace tessera::data {
namespace {

constexpr int64_t kMaxCardBytes = int64_t{64} << 20;

}  // namespace

std::optional<std::vector<std::string>> files_of_card(const config::DatasetConfig& dataset,
                                                      const std::string& folder) {
  const std::string path = io::join_path(folder, "README.md");
  if (!io::exists(path)) return std::nullopt;
  const auto listed = config::files_of_card(dataset, io::read_file(path, kMaxCardBytes), path);
  if (!listed) return std::nullopt;
  const std::string split = parse_split(dataset).name;
  std::vector<std::string> patterns, others;
  for (const config::CardFiles& files : *listed) {
    // Files of no split are those of the usual one.
    const bool is_wanted = files.split.empty() ? split == "train" : usual_split_name(files.split) == split;
    if (!files.split.empty()) others.push_back(files.split);
    if (is_wanted) patterns.insert(patterns.end(), files.patterns.begin(), files.patterns.end());
  }
  if (patterns.empty()) throw no_split_error(dataset, "the dataset", others);
  return patterns;
}

}  // namespace tessera::data

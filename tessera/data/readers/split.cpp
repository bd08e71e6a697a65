#include "tessera/data/readers/split.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <string_view>

#include "tessera/core/strings.h"

namespace tessera::data {
namespace {

struct SplitWord {
  std::string_view word, split;
};
constexpr SplitWord kSplitWords[] = {
    {"train", "train"},      {"training", "train"}, {"validation", "validation"},
    {"valid", "validation"}, {"dev", "validation"}, {"val", "validation"},
    {"test", "test"},        {"testing", "test"},   {"eval", "test"},
    {"evaluation", "test"},
};
constexpr std::string_view kSeparators = "-._ 0123456789";

std::optional<SplitSlice::Bound> parse_bound(std::string_view text, bool& good) {
  if (text.empty()) return std::nullopt;
  SplitSlice::Bound bound;
  if (text.back() == '%') {
    bound.percent = true;
    text.remove_suffix(1);
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bound.value);
  good = good && error == std::errc() && end == text.data() + text.size() &&
         (!bound.percent || (bound.value >= -100 && bound.value <= 100));
  return bound;
}

int64_t resolve_bound(const std::optional<SplitSlice::Bound>& bound, int64_t missing, int64_t num_records) {
  if (!bound) return missing;
  int64_t at = bound->value;
  if (bound->percent) {
    at = static_cast<int64_t>(
        std::nearbyint(static_cast<double>(at) * static_cast<double>(num_records) / 100.0));
  }
  if (at < 0) at += num_records;
  return std::clamp<int64_t>(at, 0, num_records);
}

bool is_split_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
  });
}

// Returns the part of a name before a shard's number: "train_sft" of "train_sft-00000-of-00003.parquet".
std::string_view before_shard_number(std::string_view name) {
  constexpr std::string_view kShape = "-00000-of-00000";
  for (size_t at = 1; at + kShape.size() <= name.size(); ++at) {
    bool fits = true;
    for (size_t i = 0; fits && i < kShape.size(); ++i) {
      const char c = name[at + i];
      fits = kShape[i] == '0' ? c >= '0' && c <= '9' : c == kShape[i];
    }
    if (fits) return name.substr(0, at);
  }
  return "";
}

std::string_view split_of_word(std::string_view word) {
  const auto* const found = std::ranges::find(kSplitWords, word, &SplitWord::word);
  return found == std::end(kSplitWords) ? std::string_view() : found->split;
}

std::string_view split_in_name(std::string_view name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find_first_of(kSeparators, begin), name.size());
    if (const auto split = split_of_word(name.substr(begin, end - begin)); !split.empty()) return split;
    begin = end + 1;
  }
  return "";
}

}  // namespace

bool SplitSlice::needs_count() const {
  const auto counted = [](const std::optional<Bound>& bound) {
    return bound && (bound->percent || bound->value < 0);
  };
  return counted(begin) || counted(end);
}

SplitSlice parse_split(const config::DatasetConfig& dataset) {
  const std::string& split = dataset.split;
  SplitSlice slice;
  if (split.empty()) return slice;
  const size_t bracket = split.find('[');
  slice.name = usual_split_name(split.substr(0, bracket));
  bool good = is_split_name(slice.name);
  if (bracket != std::string::npos) {
    const size_t colon = split.find(':', bracket);
    good = good && colon != std::string::npos && split.back() == ']';
    if (good) {
      slice.begin = parse_bound(std::string_view(split).substr(bracket + 1, colon - bracket - 1), good);
      slice.end = parse_bound(std::string_view(split).substr(colon + 1, split.size() - colon - 2), good);
    }
  }
  if (!good) {
    throw entry_error(dataset, "SPLIT", "datasets: split cannot be read")
        .got("'" + split + "'")
        .need("a name, or a part as in train[100:200] or train[:10%]")
        .hint(split.find('+') != std::string::npos ? "write an entry for each split" : "");
  }
  return slice;
}

RecordRange resolve_range(const SplitSlice& slice, int64_t shards, int64_t shards_idx, int64_t num_records) {
  const int64_t begin = resolve_bound(slice.begin, 0, num_records);
  const int64_t end = std::max(begin, resolve_bound(slice.end, num_records, num_records));
  if (shards <= 1) return {begin, end};
  const int64_t share = (end - begin) / shards, rest = (end - begin) % shards;
  const int64_t first = begin + share * shards_idx + std::min(shards_idx, rest);
  return {first, first + share + (shards_idx < rest ? 1 : 0)};
}

std::string split_of_file(const std::string& path) {
  const std::filesystem::path whole(path);
  if (const std::string name = whole.filename().string(); !before_shard_number(name).empty())
    return usual_split_name(std::string(before_shard_number(name)));
  std::string found;
  for (const auto& part : whole) {
    if (const auto split = split_in_name(part.string()); !split.empty()) found = split;
  }
  return found;
}

std::string usual_split_name(const std::string& name) {
  const std::string_view split = split_of_word(name);
  return split.empty() ? name : std::string(split);
}

Error no_split_error(const config::DatasetConfig& dataset, const std::string& place,
                     const std::vector<std::string>& others) {
  return entry_error(dataset, "SPLIT", "datasets: " + place + " has no such split")
      .got("'" + parse_split(dataset).name + "'" + (dataset.split.empty() ? ", the default" : ""))
      .need(others.empty() ? "train" : join(others, ", "))
      .hint("files are chosen by data_files too");
}

}  // namespace tessera::data

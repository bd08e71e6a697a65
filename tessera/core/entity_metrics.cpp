#include "tessera/core/entity_metrics.h"

#include <algorithm>
#include <iterator>

namespace tessera {
namespace {

constexpr std::string_view kLetters = "BIES";

bool is_outside(std::string_view label) { return label == "O"; }

}  // namespace

bool EntityTags::are_tags(std::span<const std::string> labels) {
  const auto is_tag = [](std::string_view label) {
    return is_outside(label) ||
           (label.size() > 2 && label[1] == '-' && kLetters.find(label[0]) != std::string_view::npos);
  };
  const auto begins = [](std::string_view label) {
    return label.starts_with("B-") || label.starts_with("S-");
  };
  return std::ranges::all_of(labels, is_tag) && std::ranges::any_of(labels, begins);
}

EntityTags::EntityTags(std::span<const std::string> labels) {
  for (const std::string& label : labels) {
    tags_.push_back(is_outside(label) ? Tag{} : Tag{label[0], label.substr(2)});
    is_iob2_ = is_iob2_ && tags_.back().letter != 'E' && tags_.back().letter != 'S';
  }
}

std::vector<EntityTags::Entity> EntityTags::find(std::span<const int64_t> tags) const {
  std::vector<Entity> found;
  const Tag outside;
  const Tag* before = &outside;
  size_t begin = 0;
  for (size_t i = 0; i <= tags.size(); ++i) {
    const Tag& tag = i < tags.size() ? tags_[static_cast<size_t>(tags[i])] : outside;
    const bool was_inside = before->letter != 'O', is_inside = tag.letter != 'O';
    const bool has_ended = before->letter == 'E' || before->letter == 'S';
    const bool begins_anew = tag.letter == 'B' || tag.letter == 'S' || before->kind != tag.kind;
    if (was_inside && (has_ended || begins_anew || !is_inside)) found.push_back({before->kind, begin, i});
    if (is_inside && (!was_inside || has_ended || begins_anew)) begin = i;
    before = &tag;
  }
  return found;
}

std::vector<EntityTags::Entity> EntityTags::find_strictly(std::span<const int64_t> tags) const {
  std::vector<Entity> found;
  for (size_t i = 0; i < tags.size(); ++i) {
    const Tag& first = tags_[static_cast<size_t>(tags[i])];
    if (first.letter != 'B') continue;
    const auto goes_on = [&](size_t next) {
      const Tag& tag = tags_[static_cast<size_t>(tags[next])];
      return tag.letter == 'I' && tag.kind == first.kind;
    };
    size_t end = i + 1;
    while (end < tags.size() && goes_on(end)) ++end;
    found.push_back({first.kind, i, end});
  }
  return found;
}

void EntityTags::add_row(std::span<const int64_t> tags, std::span<const int64_t> predicted,
                         std::span<double> statistics) const {
  for (size_t i = 0; i < tags.size(); ++i) {
    statistics[0] += 1.0;
    statistics[1] += tags[i] == predicted[i] ? 1.0 : 0.0;
  }
  const auto add = [&](std::vector<Entity> are, std::vector<Entity> were_found, std::span<double> counts) {
    std::vector<Entity> both;
    std::ranges::sort(are);
    std::ranges::sort(were_found);
    std::ranges::set_intersection(are, were_found, std::back_inserter(both));
    counts[0] += static_cast<double>(are.size());
    counts[1] += static_cast<double>(were_found.size());
    counts[2] += static_cast<double>(both.size());
  };
  add(find(tags), find(predicted), statistics.subspan(2, 3));
  add(find_strictly(tags), find_strictly(predicted), statistics.subspan(5, 3));
}

}  // namespace tessera

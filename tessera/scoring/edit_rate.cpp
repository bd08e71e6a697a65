#include "tessera/scoring/edit_rate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>

#include "tessera/text/chat_template/text.h"

namespace tessera::scoring {
namespace {

// Limits of Tercom, and of sacrebleu for the candidates of one text.
constexpr int64_t kMostShifted = 10, kMostDistance = 50, kBeam = 25, kMostCandidates = 1000;

using Words = std::vector<int64_t>;  // a number for each different word

class Numbering {
 public:
  Words words_of(std::string_view text) {
    Words words;
    const text::jinja::Text lower =
        text::jinja::change_case(text::jinja::Text(text), text::jinja::Case::Lower);
    for (const auto& word : text::jinja::split(lower, std::nullopt, -1, false))
      words.push_back(numbers_.try_emplace(word.bytes, std::ssize(numbers_)).first->second);
    return words;
  }

 private:
  std::unordered_map<std::string, int64_t> numbers_;
};

enum class Edit : uint8_t { None, Keep, Replace, Delete, Insert };

// How an answer becomes the reference: the number of edits, and these in order.
struct Alignment {
  int64_t distance = 0;
  std::vector<Edit> edits;
};

// Returns the Levenshtein distance, computed near the diagonal alone.
Alignment align(const Words& answer, const Words& reference) {
  struct Cell {
    int32_t cost = std::numeric_limits<int32_t>::max() / 2;
    Edit edit = Edit::None;
  };
  const int64_t rows = std::ssize(answer), columns = std::ssize(reference);
  const double ratio = rows == 0 ? 1.0 : static_cast<double>(columns) / static_cast<double>(rows);
  // The beams of two rows would not meet if the lengths differed much.
  const auto wider = static_cast<int64_t>(std::ceil(ratio / 2.0 + static_cast<double>(kBeam)));
  const int64_t beam = static_cast<double>(kBeam) < ratio / 2.0 ? wider : kBeam;
  std::vector<Cell> cells(static_cast<size_t>((rows + 1) * (columns + 1)));
  const auto at = [&](int64_t i, int64_t j) -> Cell& {
    return cells[static_cast<size_t>(i * (columns + 1) + j)];
  };
  for (int64_t j = 0; j <= columns; ++j) at(0, j) = {static_cast<int32_t>(j), Edit::Insert};
  for (int64_t i = 1; i <= rows; ++i) {
    const auto diagonal = static_cast<int64_t>(std::floor(static_cast<double>(i) * ratio));
    const int64_t end = i == rows ? columns + 1 : std::min(columns + 1, diagonal + beam);
    for (int64_t j = std::max<int64_t>(0, diagonal - beam); j < end; ++j) {
      Cell& cell = at(i, j);
      const auto offer = [&](int32_t cost, Edit edit) {
        if (cost < cell.cost) cell = {cost, edit};
      };
      if (j > 0) {
        const bool is_same = answer[static_cast<size_t>(i - 1)] == reference[static_cast<size_t>(j - 1)];
        offer(at(i - 1, j - 1).cost + (is_same ? 0 : 1), is_same ? Edit::Keep : Edit::Replace);
      }
      offer(at(i - 1, j).cost + 1, Edit::Delete);
      if (j > 0) offer(at(i, j - 1).cost + 1, Edit::Insert);
    }
  }
  Alignment alignment{at(rows, columns).cost, {}};
  for (int64_t i = rows, j = columns; i > 0 || j > 0;) {
    const Edit edit = i == 0 ? Edit::Insert : at(i, j).edit;
    alignment.edits.push_back(edit);
    if (edit != Edit::Insert) --i;
    if (edit != Edit::Delete) --j;
  }
  std::ranges::reverse(alignment.edits);
  return alignment;
}

// Tells for each word whether it is edited, and for each word of the reference the word of the answer at or
// before it.
struct Places {
  std::vector<bool> answer_errors, reference_errors;
  std::vector<int64_t> in_answer;

  explicit Places(const std::vector<Edit>& edits) {
    for (const Edit edit : edits) {
      if (edit != Edit::Insert) answer_errors.push_back(edit != Edit::Keep);
      if (edit == Edit::Delete) continue;
      reference_errors.push_back(edit != Edit::Keep);
      in_answer.push_back(std::ssize(answer_errors) - 1);
    }
  }
  static bool has_error(const std::vector<bool>& errors, int64_t begin, int64_t count) {
    return std::find(errors.begin() + begin, errors.begin() + begin + count, true) !=
           errors.begin() + begin + count;
  }
};

// Returns the words with the run [begin, begin + count) moved before the word that was number `target`; a
// target in the run counts words as if the run were not there.
Words shifted(const Words& words, int64_t begin, int64_t count, int64_t target) {
  Words rest = words;
  const auto first = rest.begin() + begin;
  const Words run(first, first + count);
  rest.erase(first, first + count);
  const int64_t place = target < begin ? target : target > begin + count ? target - count : target;
  rest.insert(rest.begin() + std::min<int64_t>(place, std::ssize(rest)), run.begin(), run.end());
  return rest;
}

// Shifts runs of the answer one at a time, each time the one that saves the most edits.
class Shifter {
 public:
  Shifter(Words answer, const Words& reference) : answer_(std::move(answer)), reference_(reference) {}

  int64_t count_edits() {
    int64_t shifts = 0;
    while (auto best = find()) {
      answer_ = std::move(*best);
      ++shifts;
    }
    return shifts + align(answer_, reference_).distance;
  }

 private:
  // The longer of two runs with equal savings is better, then the earlier one, then the earlier target.
  using Rank = std::tuple<int64_t, int64_t, int64_t, int64_t>;

  // Returns the answer behind the best shift; nothing if none saves an edit, or the candidates are used up.
  std::optional<Words> find() {
    const Alignment before = align(answer_, reference_);
    const Places places(before.edits);
    std::optional<std::pair<Rank, Words>> best;
    const int64_t own = std::ssize(answer_), wanted = std::ssize(reference_);
    for (int64_t begin = 0; begin < own; ++begin) {
      for (int64_t start = 0; start < wanted; ++start) {
        if (std::abs(start - begin) > kMostDistance) continue;
        const int64_t most = std::min({kMostShifted, own - begin, wanted - start});
        for (int64_t count = 1; count <= most; ++count) {
          if (answer_[static_cast<size_t>(begin + count - 1)] !=
              reference_[static_cast<size_t>(start + count - 1)])
            break;
          try_run(begin, start, count, before.distance, places, best);
          if (num_candidates_ >= kMostCandidates) return std::nullopt;
        }
      }
    }
    if (!best || std::get<0>(best->first) <= 0) return std::nullopt;
    return std::move(best->second);
  }

  // Tries the run of the answer, which is the reference's from `start` on, at the places where that run
  // belongs.
  void try_run(int64_t begin, int64_t start, int64_t count, int64_t distance, const Places& places,
               std::optional<std::pair<Rank, Words>>& best) {
    if (!Places::has_error(places.answer_errors, begin, count) ||
        !Places::has_error(places.reference_errors, start, count)) {
      return;
    }
    const int64_t there = places.in_answer[static_cast<size_t>(start)];
    if (begin <= there && there < begin + count) return;
    int64_t last = -1;
    for (int64_t offset = -1; offset < count; ++offset) {
      const int64_t target =
          start + offset < 0 ? 0 : places.in_answer[static_cast<size_t>(start + offset)] + 1;
      if (target == last) continue;
      last = target;
      Words words = shifted(answer_, begin, count, target);
      const Rank rank{distance - align(words, reference_).distance, count, -begin, -target};
      ++num_candidates_;
      if (!best || rank > best->first) best = {rank, std::move(words)};
    }
  }

  Words answer_;
  const Words& reference_;
  int64_t num_candidates_ = 0;
};

}  // namespace

std::vector<double> ter_counts(std::string_view answer, std::string_view reference) {
  Numbering numbering;
  const Words own = numbering.words_of(answer), wanted = numbering.words_of(reference);
  const int64_t edits = wanted.empty() ? std::ssize(own) : Shifter(own, wanted).count_edits();
  return {static_cast<double>(edits), static_cast<double>(wanted.size())};
}

double ter_score(std::span<const double> counts) {
  if (counts[1] > 0.0) return 100.0 * counts[0] / counts[1];
  return counts[0] > 0.0 ? 100.0 : 0.0;
}

}  // namespace tessera::scoring

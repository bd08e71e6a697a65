#include "tessera/text/constraint/automaton.h"

#include <algorithm>
#include <utility>

namespace tessera::text {
namespace {

using Kind = Automaton::Kind;
using Edge = Automaton::Edge;

// The rules as positions and edges, before what leads nowhere is left out.
class Drawing {
 public:
  explicit Drawing(const Grammar& grammar) : grammar_(grammar) {
    for (Grammar::Rule rule = 0; rule < grammar.num_rules(); ++rule) {
      starts.push_back(add_position());
      ends.push_back(add_position());
      rule_of_start[static_cast<size_t>(starts.back())] = rule;
    }
    for (Grammar::Rule rule = 0; rule < grammar.num_rules(); ++rule) {
      const auto expr = grammar.definition(rule);
      if (!expr) throw constraint_error("RULE", "the rule '" + grammar.rule_name(rule) + "' is not defined");
      draw(*expr, starts[static_cast<size_t>(rule)], ends[static_cast<size_t>(rule)]);
    }
  }

  // Returns from which positions the end of the rule can be reached: by anything, or without taking a byte.
  std::vector<bool> finishing(bool takes_bytes) const {
    std::vector<std::vector<int32_t>> before(edges.size()), callers(starts.size());
    for (size_t from = 0; from < edges.size(); ++from) {
      for (const Edge& edge : edges[from]) {
        if (edge.kind == Kind::Byte && !takes_bytes) continue;
        before[static_cast<size_t>(edge.to)].push_back(static_cast<int32_t>(from));
        if (edge.kind == Kind::Call) callers[rule_at(edge.start)].push_back(static_cast<int32_t>(from));
      }
    }
    std::vector<bool> finishes(edges.size());
    std::vector<int32_t> open;
    const auto mark = [&](int32_t position) {
      if (finishes[static_cast<size_t>(position)]) return;
      finishes[static_cast<size_t>(position)] = true;
      open.push_back(position);
    };
    for (const int32_t end : ends) mark(end);
    const auto look = [&](int32_t from) {
      for (const Edge& edge : edges[static_cast<size_t>(from)]) {
        if (edge.kind == Kind::Byte && !takes_bytes) continue;
        if (finishes[static_cast<size_t>(edge.to)] &&
            (edge.kind != Kind::Call || finishes[static_cast<size_t>(edge.start)]))
          return mark(from);
      }
    };
    while (!open.empty()) {
      const int32_t position = open.back();
      open.pop_back();
      for (const int32_t from : before[static_cast<size_t>(position)]) look(from);
      if (const int32_t rule = rule_of_start[static_cast<size_t>(position)]; rule >= 0)
        for (const int32_t from : callers[static_cast<size_t>(rule)]) look(from);
    }
    return finishes;
  }

  // Throws if a rule can call itself before it takes a byte.
  void check_recursion(const std::vector<bool>& finishes_empty) const {
    // Positions form one graph: what a position leads to without a byte, and the starts of rules it calls.
    enum Colour : uint8_t { New, Open, Done };
    std::vector<Colour> colours(edges.size(), New);
    std::vector<std::pair<int32_t, size_t>> path;
    const auto enter = [&](int32_t position) {
      Colour& colour = colours[static_cast<size_t>(position)];
      if (colour == Open && is_recursive(path, position)) {
        throw constraint_error("RECURSION", "a rule begins with itself, so that it has no first character")
            .got(name_at(path, position))
            .hint("put what it begins with before the recursion: a list is item list, not list item");
      }
      if (colour != New) return;
      colour = Open;
      path.emplace_back(position, 0);
    };
    for (const int32_t start : starts) {
      enter(start);
      while (!path.empty()) {
        const auto [position, done] = path.back();
        const std::vector<Edge>& here = edges[static_cast<size_t>(position)];
        if (done == 2 * here.size()) {
          colours[static_cast<size_t>(position)] = Done;
          path.pop_back();
          continue;
        }
        ++path.back().second;
        const Edge& edge = here[done / 2];
        if (edge.kind == Kind::Byte) continue;
        const bool is_call = edge.kind == Kind::Call;
        if (done % 2 == 0) {
          if (is_call) enter(edge.start);
        } else if (!is_call || finishes_empty[static_cast<size_t>(edge.start)]) {
          enter(edge.to);
        }
      }
    }
  }

  std::vector<std::vector<Edge>> edges;
  std::vector<int32_t> starts, ends;   // of each rule
  std::vector<int32_t> rule_of_start;  // of each position; -1 = it is no start

 private:
  int32_t add_position() {
    edges.emplace_back();
    rule_of_start.push_back(-1);
    return static_cast<int32_t>(edges.size() - 1);
  }
  void join(int32_t from, Edge edge) { edges[static_cast<size_t>(from)].push_back(edge); }
  void skip(int32_t from, int32_t to) { join(from, {.kind = Kind::Skip, .to = to}); }
  void byte(int32_t from, ByteRange range, int32_t to) {
    join(from, {.kind = Kind::Byte, .first = range.first, .last = range.last, .to = to});
  }
  size_t rule_at(int32_t start) const {
    return static_cast<size_t>(rule_of_start[static_cast<size_t>(start)]);
  }

  // Tells whether the open path from `position` on holds a call; loops of a rule over nothing hold none.
  bool is_recursive(const std::vector<std::pair<int32_t, size_t>>& path, int32_t position) const {
    const auto from = std::ranges::find(path, position, [](const auto& entry) { return entry.first; });
    return std::any_of(from, path.end(), [&](const auto& entry) { return is_start(entry.first); });
  }
  bool is_start(int32_t position) const { return rule_of_start[static_cast<size_t>(position)] >= 0; }
  std::string name_at(const std::vector<std::pair<int32_t, size_t>>& path, int32_t position) const {
    auto from = std::ranges::find(path, position, [](const auto& entry) { return entry.first; });
    while (!is_start(from->first)) ++from;
    return grammar_.rule_name(static_cast<Grammar::Rule>(rule_at(from->first)));
  }

  void draw(Grammar::Expr expr, int32_t from, int32_t to);
  void draw_repeat(const Grammar::Node& node, int32_t from, int32_t to);

  const Grammar& grammar_;
};

void Drawing::draw(Grammar::Expr expr, int32_t from, int32_t to) {
  const Grammar::Node& node = grammar_.node(expr);
  switch (node.kind) {
    case Grammar::Kind::Text:
      if (node.text.empty()) return skip(from, to);
      for (size_t i = 0; i < node.text.size(); ++i) {
        const auto each = static_cast<uint8_t>(node.text[i]);
        const int32_t next = i + 1 == node.text.size() ? to : add_position();
        byte(std::exchange(from, next), {each, each}, next);
      }
      return;
    case Grammar::Kind::Chars:
      for (const auto& sequence : node.sequences) {
        int32_t at = from;
        for (size_t i = 0; i < sequence.size(); ++i) {
          const int32_t next = i + 1 == sequence.size() ? to : add_position();
          byte(std::exchange(at, next), sequence[i], next);
        }
      }
      return;
    case Grammar::Kind::Sequence:
      if (node.parts.empty()) return skip(from, to);
      for (size_t i = 0; i < node.parts.size(); ++i) {
        const int32_t next = i + 1 == node.parts.size() ? to : add_position();
        draw(node.parts[i], std::exchange(from, next), next);
      }
      return;
    case Grammar::Kind::Choice:
      for (const Grammar::Expr part : node.parts) draw(part, from, to);
      return;
    case Grammar::Kind::Repeat: return draw_repeat(node, from, to);
    case Grammar::Kind::Call:
      return join(from, {.kind = Kind::Call, .to = to, .start = starts[static_cast<size_t>(node.rule)]});
  }
}

void Drawing::draw_repeat(const Grammar::Node& node, int32_t from, int32_t to) {
  const Grammar::Expr part = node.parts.front();
  if (node.max == Grammar::kForever) {
    const int32_t loop = add_position();
    skip(from, loop);
    draw(part, loop, loop);
    return skip(loop, to);
  }
  for (int64_t i = 0; i < node.max; ++i) {
    if (i >= node.min) skip(from, to);
    const int32_t next = i + 1 == node.max ? to : add_position();
    draw(part, std::exchange(from, next), next);
  }
  if (node.max == 0) skip(from, to);
}

}  // namespace

Automaton::Automaton(const Grammar& grammar) {
  const Drawing drawing(grammar);
  const std::vector<bool> finishes = drawing.finishing(true);
  start_ = drawing.starts[static_cast<size_t>(grammar.root)];
  if (!finishes[static_cast<size_t>(start_)])
    throw constraint_error("EMPTY", "no text satisfies the constraint");
  drawing.check_recursion(drawing.finishing(false));
  is_end_.resize(drawing.edges.size());
  for (const int32_t end : drawing.ends) is_end_[static_cast<size_t>(end)] = true;
  std::array<bool, 257> begins_class = {true};
  for (const std::vector<Edge>& all : drawing.edges) {
    first_edge_.push_back(edges_.size());
    for (const Edge& edge : all) {
      if (!finishes[static_cast<size_t>(edge.to)]) continue;
      if (edge.kind == Kind::Call && !finishes[static_cast<size_t>(edge.start)]) continue;
      if (edge.kind == Kind::Byte) begins_class[edge.first] = begins_class[edge.last + 1U] = true;
      edges_.push_back(edge);
    }
  }
  first_edge_.push_back(edges_.size());
  for (size_t byte = 0; byte < 256; ++byte) {
    if (begins_class[byte]) class_bytes_.push_back(static_cast<uint8_t>(byte));
    classes_[byte] = static_cast<int32_t>(class_bytes_.size()) - 1;
  }
}

}  // namespace tessera::text

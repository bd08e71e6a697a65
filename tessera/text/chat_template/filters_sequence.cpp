#include <algorithm>

#include "tessera/text/chat_template/filters.h"
#include "tessera/text/chat_template/is_tests.h"
#include "tessera/text/chat_template/operators.h"

namespace tessera::text::jinja {

namespace {

Value generator(Runtime& runtime, std::vector<Value> items) {
  return Value::sequence(runtime, Kind::Generator, std::move(items), "generator");
}

// Returns the value at a path such as "function.name" or "0.id".
Value at_path(Runtime& runtime, const Value& value, const Value& path) {
  if (!path.is_string()) return get_item(runtime, value, path);
  Value at = value;
  if (path.text().size() > kMaxName) runtime.fail_limit("a path of more than 255 bytes to an attribute");
  runtime.charge();
  for (const Text& part : split(path.text(), ".", -1, false)) {
    const bool number =
        !part.empty() && part.size() < 10 &&
        std::all_of(part.bytes.begin(), part.bytes.end(), [](char c) { return c >= '0' && c <= '9'; });
    at =
        get_item(runtime, at, number ? Value::integer(std::stoll(part.bytes)) : Value::string(runtime, part));
  }
  return at;
}

// Returns the key that min, max, sort and unique compare: the value at a path, in lower case if it is a
// string and case does not matter.
Value sort_key(Runtime& runtime, const Value& value, const Value* path, bool case_sensitive) {
  Value key = path && !path->is(Kind::None) ? at_path(runtime, value, *path) : value;
  if (!case_sensitive && key.is_string()) {
    charge_case(runtime, key.text());
    return Value::string(runtime, change_case(key.text(), Case::Lower));
  }
  return key;
}

Value count(Runtime& runtime, const Value& value, const BoundArguments&) {
  return Value::integer(length(runtime, value));
}

Value list(Runtime& runtime, const Value& value, const BoundArguments&) {
  return Value::sequence(runtime, Kind::List, iterate(runtime, value));
}

Value first(Runtime& runtime, const Value& value, const BoundArguments&) {
  const std::vector<Value> items = iterate(runtime, value);
  return items.empty() ? Value::undefined("there is no first item, the sequence was empty") : items.front();
}

Value last(Runtime& runtime, const Value& value, const BoundArguments&) {
  if (value.is(Kind::Generator)) runtime.fail("'generator' object is not reversible");
  const std::vector<Value> items = iterate(runtime, value);
  return items.empty() ? Value::undefined("there is no last item, the sequence was empty") : items.back();
}

Value reverse(Runtime& runtime, const Value& value, const BoundArguments&) {
  if (value.is_string()) {
    runtime.charge_walk(value.bytes());
    const int64_t size = length_of(value.bytes());
    return Value::string(runtime, slice_of(value.text(), size - 1, -1, size));
  }
  std::vector<Value> items = iterate(runtime, value);
  std::reverse(items.begin(), items.end());
  return generator(runtime, std::move(items));
}

Value join(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  const Text between = arguments.get(0) ? to_text(runtime, *arguments.get(0)) : Text();
  const Value* path = arguments.get(1);
  Text out;
  bool is_first = true;
  for (const Value& item : iterate(runtime, value)) {
    if (!is_first) out.append(between);
    is_first = false;
    const Text text = to_text(runtime, path && !path->is(Kind::None) ? at_path(runtime, item, *path) : item);
    runtime.charge_text(text);
    runtime.charge_text(between);
    out.append(text);
  }
  return Value::string(runtime, std::move(out));
}

Value items(Runtime& runtime, const Value& value, const BoundArguments&) {
  std::vector<Value> out;
  if (value.is(Kind::Dict)) {
    for (const auto& [key, item] : value.dict().entries) {
      out.push_back(Value::sequence(runtime, Kind::Tuple, {key, item}));
    }
  } else if (!value.is_undefined()) {
    runtime.fail("'items' needs a mapping, got " + std::string(type_name(value)));
  }
  return generator(runtime, std::move(out));
}

// Orders pairs of key and item stably by their keys, and returns the items.
std::vector<Value> sorted(Runtime& runtime, const std::vector<std::pair<Value, Value>>& keyed,
                          bool backwards) {
  std::vector<const std::pair<Value, Value>*> order;
  for (const auto& entry : keyed) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [&](const auto* a, const auto* b) {
    const int relation = compare(runtime, a->first, b->first);
    return backwards ? relation > 0 : relation < 0;
  });
  std::vector<Value> out;
  for (const auto* entry : order) out.push_back(entry->second);
  return out;
}

Value sort(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  const bool backwards = arguments.flag(0, false), case_sensitive = arguments.flag(1, false);
  const Value* paths = arguments.get(2);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : iterate(runtime, value)) {
    if (paths && paths->is_string() && paths->bytes().find(',') != std::string::npos) {
      std::vector<Value> keys;
      runtime.charge_items(paths->text().size());
      for (const Text& path : split(paths->text(), ",", -1, false)) {
        const Value one = Value::string(runtime, path);
        keys.push_back(sort_key(runtime, item, &one, case_sensitive));
      }
      keyed.emplace_back(Value::sequence(runtime, Kind::List, std::move(keys)), item);
    } else {
      keyed.emplace_back(sort_key(runtime, item, paths, case_sensitive), item);
    }
  }
  return Value::sequence(runtime, Kind::List, sorted(runtime, keyed, backwards));
}

Value dictsort(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  if (!value.is(Kind::Dict)) runtime.fail("'dictsort' needs a dict, got " + std::string(type_name(value)));
  const std::string by = arguments.get(1) ? arguments.text(1).bytes : "key";
  if (by != "key" && by != "value") runtime.fail("dictsort sorts by key or value, got '" + by + "'");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, item] : value.dict().entries) {
    keyed.emplace_back(sort_key(runtime, by == "key" ? key : item, nullptr, arguments.flag(0, false)),
                       Value::sequence(runtime, Kind::Tuple, {key, item}));
  }
  return Value::sequence(runtime, Kind::List, sorted(runtime, keyed, arguments.flag(2, false)));
}

Value unique(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  std::vector<Value> keys, out;
  for (const Value& item : iterate(runtime, value)) {
    const Value key = sort_key(runtime, item, arguments.get(1), arguments.flag(0, false));
    if (!hashable(runtime, key)) runtime.fail("unhashable type: '" + std::string(type_name(key)) + "'");
    if (std::any_of(keys.begin(), keys.end(),
                    [&](const Value& known) { return equals(runtime, known, key); }))
      continue;
    keys.push_back(key);
    out.push_back(item);
  }
  return generator(runtime, std::move(out));
}

Value extreme(Runtime& runtime, const Value& value, const BoundArguments& arguments, bool largest) {
  const std::vector<Value> all = iterate(runtime, value);
  if (all.empty()) return Value::undefined("there is no smallest or largest item, the sequence was empty");
  const bool case_sensitive = arguments.flag(0, false);
  size_t best = 0;
  Value best_key = sort_key(runtime, all[0], arguments.get(1), case_sensitive);
  for (size_t i = 1; i < all.size(); ++i) {
    const Value key = sort_key(runtime, all[i], arguments.get(1), case_sensitive);
    const int relation = compare(runtime, key, best_key);
    if (largest ? relation > 0 : relation < 0) best = i, best_key = key;
  }
  return all[best];
}

Value minimum(Runtime& r, const Value& v, const BoundArguments& a) { return extreme(r, v, a, false); }
Value maximum(Runtime& r, const Value& v, const BoundArguments& a) { return extreme(r, v, a, true); }

Value sum(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  const Value* path = arguments.get(0);
  Value total = arguments.get(1) ? *arguments.get(1) : Value::integer(0);
  if (total.is_string()) runtime.fail("sum() cannot add strings");
  for (const Value& item : iterate(runtime, value)) {
    const Value one = path && !path->is(Kind::None) ? at_path(runtime, item, *path) : item;
    total = arithmetic(runtime, Operator::Add, total, one);
  }
  return total;
}

Value batch(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  const int64_t size = arguments.integer(0, 0);
  const Value* fill = arguments.get(1);
  std::vector<Value> out, row;
  for (const Value& item : iterate(runtime, value)) {
    if (static_cast<int64_t>(row.size()) == size) {
      out.push_back(Value::sequence(runtime, Kind::List, std::move(row)));
      row.clear();
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    if (fill && !fill->is(Kind::None) && static_cast<int64_t>(row.size()) < size) {
      if (size > kMaxRange) runtime.fail_limit("a batch of more than 100000 items");
      row.resize(static_cast<size_t>(size), *fill);
    }
    out.push_back(Value::sequence(runtime, Kind::List, std::move(row)));
  }
  return generator(runtime, std::move(out));
}

Arguments without_first(const Arguments& arguments, size_t count) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(count),
                         arguments.positional.end());
  rest.keyword = arguments.keyword;
  return rest;
}

// Implements map('filter', arguments...) and map(attribute='path', default=...).
Value map(Runtime& runtime, const Value& value, const Arguments& arguments) {
  std::vector<Value> out;
  if (!truth(value)) return generator(runtime, std::move(out));  // also for None
  if (arguments.positional.empty()) {
    const BoundArguments bound(runtime, "map", arguments, {"attribute", "default"}, 1);
    for (const Value& item : iterate(runtime, value)) {
      Value found = at_path(runtime, item, *bound.get(0));
      if (found.is_undefined() && bound.get(1)) found = *bound.get(1);
      out.push_back(std::move(found));
    }
    return generator(runtime, std::move(out));
  }
  if (!arguments.positional[0].is_string()) runtime.fail("map needs the name of a filter");
  const FilterEntry* filter = find_filter(arguments.positional[0].bytes());
  if (filter == nullptr) runtime.fail("unknown filter '" + excerpt(arguments.positional[0].bytes()) + "'");
  const Arguments rest = without_first(arguments, 1);
  for (const Value& item : iterate(runtime, value)) out.push_back(apply_filter(runtime, *filter, item, rest));
  return generator(runtime, std::move(out));
}

// Implements select and reject, which test the item itself, and selectattr and rejectattr, which test the
// value at a path in it (`by_path`).
Value choose(Runtime& runtime, const Value& value, const Arguments& arguments, bool by_path, bool keep) {
  const size_t skip = by_path ? 1 : 0;
  if (by_path && arguments.positional.empty()) runtime.fail("the name of an attribute is missing");
  const TestEntry* test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > skip) {
    const Value& name = arguments.positional[skip];
    test = name.is_string() ? find_test(name.bytes()) : nullptr;
    if (test == nullptr) runtime.fail("unknown test " + repr(runtime, name).bytes);
    rest = without_first(arguments, skip + 1);
  }
  std::vector<Value> out;
  if (!truth(value)) return generator(runtime, std::move(out));  // also for None
  for (const Value& item : iterate(runtime, value)) {
    runtime.charge();
    const Value subject = by_path ? at_path(runtime, item, arguments.positional[0]) : item;
    const bool holds = test == nullptr ? truth(subject) : apply_test(runtime, *test, subject, rest);
    if (holds == keep) out.push_back(item);
  }
  return generator(runtime, std::move(out));
}

Value select(Runtime& r, const Value& v, const Arguments& a) { return choose(r, v, a, false, true); }
Value reject(Runtime& r, const Value& v, const Arguments& a) { return choose(r, v, a, false, false); }
Value selectattr(Runtime& r, const Value& v, const Arguments& a) { return choose(r, v, a, true, true); }
Value rejectattr(Runtime& r, const Value& v, const Arguments& a) { return choose(r, v, a, true, false); }

}  // namespace

const std::vector<FilterEntry>& sequence_filters() {
  static const std::vector<FilterEntry> kFilters = {
      {"length", {}, 0, count},
      {"count", {}, 0, count},
      {"list", {}, 0, list},
      {"first", {}, 0, first},
      {"last", {}, 0, last},
      {"reverse", {}, 0, reverse},
      {"join", {"d", "attribute"}, 0, join},
      {"items", {}, 0, items},
      {"sort", {"reverse", "case_sensitive", "attribute"}, 0, sort},
      {"dictsort", {"case_sensitive", "by", "reverse"}, 0, dictsort},
      {"unique", {"case_sensitive", "attribute"}, 0, unique},
      {"min", {"case_sensitive", "attribute"}, 0, minimum},
      {"max", {"case_sensitive", "attribute"}, 0, maximum},
      {"sum", {"attribute", "start"}, 0, sum},
      {"batch", {"linecount", "fill_with"}, 1, batch},
      {"map", {}, 0, nullptr, map},
      {"select", {}, 0, nullptr, select},
      {"reject", {}, 0, nullptr, reject},
      {"selectattr", {}, 0, nullptr, selectattr},
      {"rejectattr", {}, 0, nullptr, rejectattr},
  };
  return kFilters;
}

}  // namespace tessera::text::jinja

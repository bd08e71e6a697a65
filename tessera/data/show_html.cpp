#include <algorithm>

#include "tessera/core/html_text.h"
#include "tessera/data/show.h"
#include "tessera/data/show_parts.h"

namespace tessera::data {
namespace {

constexpr const char* kHead = R"(<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>
:root { --ink: #1d2733; --soft: #66727f; --line: #d5dbe1; --page: #fff; --mark: #cdeccf; --warn: #8a4b00; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9ee; --soft: #93a0ad; --line: #3a444e; --page: #15191e; --mark: #1f4d2a; --warn: #ffb95c; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; } h3 { font-size: .95rem; margin: 1rem 0 .3rem; font-weight: 600; }
table { border-collapse: collapse; margin: .3rem 0; } th, td { text-align: left; padding: .1rem 1.5rem .1rem 0; font-weight: 400; }
th { color: var(--soft); } td { font-variant-numeric: tabular-nums; }
.counts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); gap: 0 2rem; }
.warning { color: var(--warn); margin: .2rem 0; overflow-wrap: anywhere; }
.note { color: var(--soft); }
.text { font: 13px/1.7 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid var(--line); border-radius: 4px; padding: .6rem .8rem; margin: 0; color: var(--soft); }
.text b { font-weight: 400; color: var(--ink); background: var(--mark); border-radius: 2px; }
.text .c { font-style: italic; }
#borders:checked ~ main .text span, #borders:checked ~ main .text b { outline: 1px solid var(--line); }
#trained:checked ~ main .text span { display: none; }
label { margin-right: 1.5rem; }
</style>
)";

std::string tables_html(const std::vector<ShownTable>& tables) {
  std::string out = "<div class=\"counts\">\n";
  for (const ShownTable& table : tables) {
    out += "<section><h3>" + html_text(table.title) + "</h3>\n<table>\n";
    for (const auto& [name, value] : table.lines) {
      out += "<tr><th scope=\"row\">" + html_text(name) + "</th><td>" + html_text(value) + "</td></tr>\n";
    }
    out += "</table>\n";
    for (const std::string& warning : table.warnings)
      out += "<p class=\"warning\">warning: " + html_text(warning) + "</p>\n";
    out += "</section>\n";
  }
  return out + "</div>\n";
}

// Returns one row as HTML. `noun` is what the page calls a row.
std::string row_html(const char* noun, const RowSet& rows, int64_t place, const text::Tokenizer& tokenizer) {
  const int64_t number = rows.rows[static_cast<size_t>(place)];
  const Row row = rows.store->row(number);
  const std::string dataset = html_text(rows.store->dataset_name(rows.store->dataset(number)));
  const std::string name = noun + (' ' + std::to_string(place));
  std::string out = "<h3>" + name + ": " + dataset + ", " + std::to_string(rows.length(place)) + " tokens, " +
                    std::to_string(rows.label_count(place)) + " trained</h3>\n<p class=\"text\">";
  for (size_t i = 0; i < row.input_ids.size(); ++i) {
    const int32_t id = row.input_ids[i];
    const bool trained = is_trained(row, i);
    const char* tag = trained ? "b" : "span";
    out += std::string("<") + tag + (tokenizer.is_special(id) ? " class=\"c\"" : "") + " title=\"" +
           (trained ? "trained" : "masked") + ", token " + std::to_string(id) + ", place " +
           std::to_string(i) + ", " + name + ", " + dataset + "\">" +
           html_text(printable(tokenizer.token_bytes(id), true)) + "</" + tag + ">";
  }
  return out + "</p>\n";
}

}  // namespace

std::string show_data_html(const PreparedData& data, const text::Tokenizer& tokenizer,
                           const ShowOptions& options, const std::string& title) {
  std::string out = std::string(kShowPageBegin) + "<head>\n" + kHead + "<title>" + html_text(title) +
                    "</title>\n</head>\n<body>\n<h1>" + html_text(title) + "</h1>\n";
  out +=
      "<input type=\"checkbox\" id=\"borders\"> <label for=\"borders\">token boundaries</label>\n"
      "<input type=\"checkbox\" id=\"trained\"> <label for=\"trained\">trained tokens only</label>\n<main>\n";
  out += "<h2>Counts</h2>\n" + tables_html(describe_data(data, options));
  out +=
      "<h2>Rows</h2>\n<p class=\"note\">Marked tokens are trained, all others are masked. Point at a token "
      "for "
      "its id, label, dataset and document.</p>\n";
  const bool is_drawn = options.drawn.rows.size() > 0;
  // StreamLoader::sample() gives whole sequences as rows.
  const bool is_stream = !options.has_epochs && !is_drawn;
  int64_t shown = 0;
  const auto show = [&](const RowSet& rows, int64_t sequence, std::span<const int64_t> places) {
    if (options.train.packing && !is_stream) {
      out += "<h2>Sequence " + std::to_string(sequence) +
             (options.has_epochs ? " of the first epoch: " : " of the run: ") +
             std::to_string(places.size()) + (places.size() == 1 ? " document" : " documents") + "</h2>\n";
    }
    for (const int64_t place : places) {
      if (shown++ == options.num_rows) break;
      out += row_html(is_stream ? "sequence" : "document", rows, place, tokenizer);
    }
  };
  if (options.has_epochs && data.train.size() > 0) {
    const Loader loader(data.train, options.train);
    for (int64_t sample = 0; sample < loader.num_samples() && shown < options.num_rows; ++sample)
      show(data.train, sample, loader.rows_of_sample(sample));
  } else {
    const RowSet& rows = is_drawn ? options.drawn.rows : data.train;
    const PackPlan plan = is_drawn ? options.drawn.sequences : pack_one_each(rows.size());
    for (int64_t i = 0; i < plan.size() && shown < options.num_rows; ++i) show(rows, i, plan.sequence(i));
  }
  return out + "</main>\n</body>\n</html>\n";
}

}  // namespace tessera::data

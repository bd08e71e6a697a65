#include <string>

#include "tessera/config/yaml_reader.h"
#include "tessera/scoring/filters.h"
#include "tessera/scoring/prompt.h"
#include "tessera/scoring/read_task.h"
#include "tessera/scoring/score_document.h"

#include "tests/fuzz/fuzz_target.h"

// A task that is accepted makes prompts of some documents, and scores of some answers.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  using scoring::Json;
  const scoring::Documents documents = {
      {{{"question", "one?"}, {"choices", {"a", "b"}}, {"answer", 1}, {"text", "a b c"}},
       {{"question", "two?"}, {"choices", {"c", "\u00e9"}}, {"answer", 0}, {"text", "#### 5"}}},
      {"question", "choices", "answer", "text"}};
  fuzz::take_or_refuse("task", [&] {
    const config::Place place{std::make_shared<const std::string>("fuzz.yaml"), 0, 0};
    const config::Node map = config::parse_yaml(fuzz::text_of(data, size), place, config::KeepTags::Yes);
    if (!map.is_map()) return;
    const scoring::TaskConfig task = scoring::read_task(map);
    const scoring::DocumentFields fields(task, task.prompt, documents.columns);
    const scoring::PromptForm form;
    scoring::PromptBuilder builder(task, fields, documents, documents, 1, 1, form);
    const scoring::DocumentScorer scorer(task, fields, documents.rows[0], builder.has_several());
    for (const Json& row : documents.rows) {
      builder.prompts(row);
      for (const scoring::FilterChain& chain : task.filters)
        scoring::Filters(chain).apply({"answer 12", "a #### 1,000", "B: \u00e9", ""}, row);
      size_t responses = 1;
      if (task.output_type == scoring::OutputType::MultipleChoice) responses = 2 * fields.choices(row).size();
      scorer.score(row, std::vector<scoring::Response>(responses, {-1.5, true, "a 1"}));
    }
  });
  return 0;
}

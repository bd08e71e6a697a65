// Mistakes in task files and their data: each is refused at its place, with what to write in its stead.
#include <fstream>

#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/scoring/task.h"
#include "tessera/scoring/task_files.h"

#include "tests/testing/temp_folder.h"

namespace tessera::scoring {
namespace {

constexpr const char* kTask = R"(task: t
dataset_path: json
dataset_kwargs: {data_files: {test: rows.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{q}}"
doc_to_choice: [a, b]
doc_to_target: 0
)";

struct Mistake {
  std::string before, after;  // `before` of the task file becomes `after`; "" adds a line at the end
  std::string error;          // a part of the message
};

const std::vector<Mistake> kMistakes = {
    {"", "process_docs: !function utils.f", "t.yaml:9:15: key 'process_docs' names Python code"},
    {"\"{{q}}\"", "!function utils.f", "t.yaml:6:14: key 'doc_to_text' names Python code"},
    {"", "metric_list: [{metric: !function f.g}]", "t.yaml:9:24: key 'metric_list' names Python code"},
    {"", "use_prompt: promptsource:x", "t.yaml:9:1: key 'use_prompt' is not supported"},
    {"", "num_fewshots: 2", "did you mean 'num_fewshot'?"},
    {"", "fewshot_config: {sampler: balanced}", "need default or first_n"},
    {"", "fewshot_config: {fewshot_indices: [1]}", "'fewshot_indices' is not supported"},
    {"", "metric_list: [{metric: bleu}]", "metric 'bleu' is not supported here; need one of acc, "},
    {"", "metric_list: [{metric: acc, colour: red}]", "unknown key 'colour' of metric acc"},
    {"", "filter_list: [{name: f, filter: [{function: regexx}, {function: take_first}]}]",
     "need one of regex"},
    {"", "filter_list: [{name: f, filter: [{function: regex}, {function: take_first}]}]",
     "needs generated texts"},
    {"multiple_choice", "generate_until\nfilter_list: [{name: f, filter: [{function: regex}]}]",
     "does not end with take_first"},
    {"multiple_choice",
     "generate_until\nfilter_list: [{name: f, filter: [{function: multi_choice_regex, ignore_case: 1}, "
     "{function: take_first}]}]",
     "needs true or false as ignore_case"},
    {"multiple_choice",
     "generate_until\nfilter_list: [{name: f, filter: [{function: multi_choice_regex}, "
     "{function: take_first}]}]",
     "multi_choice_regex cannot read the choices of a document; got null, need a column 'choices'"},
    {"multiple_choice", "generate_until\ngeneration_kwargs: {num_beams: 2}", "unknown key 'num_beams'"},
    {"multiple_choice", "multiple_choices", "need multiple_choice, loglikelihood"},
    {"doc_to_target: 0\n", "", "the task has no key 'doc_to_target'"},
    {"test_split: test\n", "", "neither test_split nor validation_split"},
    {"test_split: test", "test_split: dev", "no files of split 'dev'; need one of test"},
    {"rows.jsonl", "none.jsonl", "'none.jsonl' does not exist"},
    {"{{q}}", "{{q", "task t: "},
    {"{{q}}", "{{p}}", "task t, doc_to_text: "},
    {"{{q}}", "{{q|regex_replace('(', '')}}", "malformed regular expression"},
    {"[a, b]", "\"{{q}}\"", "the text is no Python literal"},
    {"[a, b]", "\"[q, 'b']\"", "the text is no Python literal"},
    {"", "num_fewshot: 5", "the task has too few examples"},
    {"", "include: t.yaml", "task files include one another"},
};

TEST(TaskErrors, NameTheirPlace) {
  const testing::TempFolder folder;
  const std::string path = folder.path() + "/";
  std::ofstream(path + "rows.jsonl") << R"({"q": "one"})"
                                     << "\n"
                                     << R"({"q": "two"})"
                                     << "\n";
  for (const Mistake& mistake : kMistakes) {
    std::string text = kTask;
    if (mistake.before.empty()) {
      text += mistake.after + "\n";
    } else {
      const size_t at = text.find(mistake.before);
      ASSERT_NE(at, std::string::npos) << mistake.before;
      text.replace(at, mistake.before.size(), mistake.after);
    }
    std::ofstream(path + "t.yaml") << text;
    std::string told = "no error";
    try {
      const TaskSelection selection = select_tasks({path + "t.yaml"});
      const Task task(selection.tasks.at(0), {});
    } catch (const Error& error) {
      told = error.what();
    }
    EXPECT_NE(told.find(mistake.error), std::string::npos) << mistake.after << ": " << told;
  }
}

TEST(TaskErrors, TwoTasksNeedTwoNames) {
  const testing::TempFolder folder;
  folder.write("a.yaml", "include: piqa\ntest_split: test\n");
  folder.write("b.yaml", "include: a.yaml\ntask: other\n");
  EXPECT_EQ(select_tasks({folder / "a.yaml", folder / "b.yaml", folder / "a.yaml"}).tasks.size(), 2);
  try {
    (void)select_tasks({folder / "a.yaml", "piqa"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("two tasks have the name 'piqa'"), std::string::npos)
        << error.what();
  }
}

TEST(TaskErrors, UnknownNamesHaveANearOne) {
  try {
    (void)select_tasks({"hella_swag"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-CONFIG-TASK-NAME");
    EXPECT_NE(std::string(error.what()).find("did you mean 'hellaswag'?"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tessera::scoring

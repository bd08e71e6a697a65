// The built-in tasks against lm-evaluation-harness' own ones, on a few documents.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/scoring/task_reference.h"

namespace tessera::scoring {
namespace {

TaskOptions options_of(const std::string& name) {
  TaskOptions options{.data_folder = task_folder() + "data"};
  // make_task_reference.py gives each task these examples.
  const bool is_zero = name == "lambada_openai" || name == "wikitext";
  if (name != "gsm8k") options.num_fewshot = name == "mmlu_anatomy" ? 2 : is_zero ? 0 : 1;
  return options;
}

TEST(BuiltInTasks, GiveThePromptsAndScoresOfTheHarness) {
  const Json reference = read_reference("built_in.json");
  for (const auto& [name, theirs] : reference["results"].items()) {
    SCOPED_TRACE(name);
    const TaskSelection selection = select_tasks({name});
    ASSERT_EQ(selection.tasks.size(), 1);
    const Task task(selection.tasks[0], options_of(name));
    std::vector<std::vector<Response>> responses;
    for (const Json& document : documents_of(reference, name)) {
      for (size_t i = 0; i < document["resps"].size(); ++i) {
        const size_t next = responses.size();
        ASSERT_LT(next, task.requests().size());
        responses.push_back({response_of(document["resps"][i][0])});
        const Json& arguments = document["arguments"][i];
        const Request& request = task.requests()[next];
        if (task.config().output_type == OutputType::Rolling) {
          EXPECT_EQ(request.continuation, arguments[0]);
        } else {
          EXPECT_EQ(request.context, arguments[0]);
          EXPECT_EQ(request.continuation, arguments.size() > 1 ? arguments[1] : Json(""));
        }
      }
    }
    EXPECT_EQ(responses.size(), task.requests().size());
    for (const Score& score : result_of(task, task.score(responses, false)).scores) {
      const std::string key = score.metric + "," + score.filter;
      ASSERT_TRUE(theirs.contains(key)) << key;
      const double want = theirs[key].get<double>();
      EXPECT_NEAR(score.value, want, 1e-9 * std::max(1.0, want)) << key;
    }
    const auto shots = reference["n-shot"][name].get<int64_t>();
    EXPECT_EQ(task.num_fewshot(), shots);
  }
}

TEST(BuiltInTasks, MmluHasItsSubjectsInFourFields) {
  const TaskSelection selection = select_tasks({"mmlu"});
  EXPECT_EQ(selection.tasks.size(), 57);
  ASSERT_EQ(selection.groups.size(), 5);
  EXPECT_EQ(selection.groups[0].members.size(), 4);
  size_t members = 0;
  for (size_t i = 1; i < 5; ++i) members += selection.groups[i].members.size();
  EXPECT_EQ(members, 57);
  EXPECT_EQ(select_tasks({"mmlu_stem_tasks", "mmlu_anatomy"}).tasks.size(), 19);
  EXPECT_EQ(select_tasks({"ai2_arc"}).tasks.size(), 2);
}

}  // namespace
}  // namespace tessera::scoring

// Prompts, scores and tables against those of lm-evaluation-harness, with the answers that its model gave.
#include "tests/scoring/task_reference.h"

#include <gtest/gtest.h>

namespace tessera::scoring {
namespace {

TEST(TaskReference, RequestsAreThoseOfTheHarness) {
  const Json reference = read_reference("reference.json");
  const ReferenceTasks ours;
  EXPECT_EQ(ours.tasks.size(), reference["samples"].size());
  for (const auto& task : ours.tasks) {
    const std::string& name = task->config().name;
    size_t next = 0;
    for (const Json& document : documents_of(reference, name)) {
      for (const Json& arguments : document["arguments"]) {
        ASSERT_LT(next, task->requests().size()) << name;
        const Request& request = task->requests()[next++];
        const bool is_rolling = task->config().output_type == OutputType::Rolling;
        EXPECT_EQ(is_rolling ? request.continuation : request.context, arguments[0]) << name;
        EXPECT_EQ(is_rolling ? "" : request.continuation, arguments.size() > 1 ? arguments[1] : Json(""))
            << name;
      }
    }
    EXPECT_EQ(next, task->requests().size()) << name;
  }
}

// Each case is the first four documents of some tasks as chats: examples as turns or in one message, and
// three system messages, of which the template refuses one.
TEST(TaskReference, ChatsAreThoseOfTheHarness) {
  const Json reference = read_reference("chats.json");
  for (const Json& c : reference["cases"]) {
    TaskOptions options;
    options.limit = 4;
    options.form.system_instruction = c["system"];
    options.form.is_multiturn = c["is_multiturn"];
    options.form.chat_template = std::make_shared<const text::ChatTemplate>(
        text::ChatTemplate::parse(reference["chat_template"].get<std::string>(), "chats.json"));
    options.form.options.bos_token = "<s>";
    for (const auto& [name, requests] : c["requests"].items()) {
      SCOPED_TRACE(name + " " + c["system"].dump() + c["is_multiturn"].dump());
      const TaskSelection selection = select_tasks({task_folder() + name + ".yaml"});
      const Task task(selection.tasks.front(), options);
      ASSERT_EQ(task.requests().size(), requests.size());
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(task.requests()[i].document, requests[i][0]);
        EXPECT_EQ(task.requests()[i].context, requests[i][1]);
        EXPECT_EQ(task.requests()[i].continuation, requests[i].size() > 2 ? requests[i][2] : Json(""));
      }
    }
  }
}

void expect_equal(const Json& ours, const Json& theirs, const std::string& place) {
  if (theirs.is_object()) {
    for (const auto& [key, value] : theirs.items()) {
      ASSERT_TRUE(ours.contains(key)) << place << ": no " << key;
      expect_equal(ours[key], value, place + "/" + key);
    }
  } else if (theirs.is_number() && ours.is_number()) {
    const double want = theirs.get<double>();
    EXPECT_NEAR(ours.get<double>(), want, 1e-9 * std::max(1.0, std::fabs(want))) << place;
  } else {
    EXPECT_EQ(ours, theirs) << place;
  }
}

TEST(TaskReference, ScoresAreThoseOfTheHarness) {
  const Json reference = read_reference("reference.json");
  const ReferenceTasks ours;
  std::vector<Result> results;
  Json samples = Json::object();
  for (const auto& task : ours.tasks) {
    const std::string& name = task->config().name;
    std::vector<std::vector<Response>> responses;
    for (const Json& document : documents_of(reference, name)) {
      for (const Json& logged : document["resps"]) responses.push_back({response_of(logged[0])});
    }
    const TaskScores scores = task->score(responses, true);
    ASSERT_EQ(scores.samples.size(), reference["samples"][name].size()) << name;
    for (size_t i = 0; i < scores.samples.size(); ++i)
      expect_equal(scores.samples[i], reference["samples"][name][i], name + " " + std::to_string(i));
    results.push_back(result_of(*task, scores));
    samples[name] = scores.samples;
  }
  // Python's hashlib and json made these of the same documents, prompts and targets (numbers, and lists of
  // texts).
  const Json hashes = task_hashes(samples);
  EXPECT_EQ(hashes.size(), ours.tasks.size());
  EXPECT_EQ(hashes["quiz"], "aa683a9cf56c032342ad8838bee5002984b23872a2d4ff178b001a83da11171e");
  EXPECT_EQ(hashes["sums_any"], "205a7d04f3d7d34e41c4995c122a47927b87778c444878cd231a4f5e9a6135ca");
  results = with_groups(std::move(results), ours.selection.groups);
  const Json json = json_of(results);
  for (const char* key : {"results", "groups", "group_subtasks", "versions", "n-shot", "n-samples"})
    expect_equal(json[key], reference[key], key);
  const std::string table = table_of(results);
  EXPECT_NE(table.find("| - quizzes of all kinds|      2|none"), std::string::npos) << table;
}

}  // namespace
}  // namespace tessera::scoring

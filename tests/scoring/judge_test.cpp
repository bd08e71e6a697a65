// Answers, judgements and tables against what FastChat asks, writes and counts
// (tests/reference/make_judge_reference.py).
#include <deque>
#include <map>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/io/file.h"
#include "tessera/scoring/judge/agreement.h"
#include "tessera/scoring/judge/answer.h"
#include "tessera/scoring/judge/grade.h"
#include "tessera/scoring/judge/tables.h"
#include "tessera/scoring/judge/verdict.h"

#include "tests/io/expect_error.h"
#include "tests/testing/fake_server.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_folder.h"

namespace tessera::scoring::judge {
namespace {

using testing::expect_error;
using testing::FakeReply;
using testing::FakeRequest;
using testing::FakeServer;
using ::testing::HasSubstr;
using testing::TempFolder;
using ::testing::UnorderedElementsAreArray;

std::string reference_folder() { return testing::source_folder() + "/tests/reference/data/judge"; }
std::string text_of(const std::string& path) { return io::read_file(path, 1 << 24); }

const Json& expected() {
  static const Json values = Json::parse(text_of(reference_folder() + "/expected.json"));
  return values;
}

// The rows of a file as text, without the keys that tell when and by whom they were made.
std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  for (Row& row : read_rows(path)) {
    row.value.erase("tstamp");
    row.value.erase("answer_id");
    lines.push_back(nlohmann::json(row.value).dump());
  }
  return lines;
}

std::string body_of_reply(const std::string& text) {
  return Json{{"choices", Json::array({{{"index", 0}, {"message", {{"content", text}}}}})}}.dump();
}

// An endpoint that answers the requests that FastChat has made, each once, as it was answered.
class RecordedEndpoint {
 public:
  explicit RecordedEndpoint(const std::string& requests)
      : server_([this](const FakeRequest& request) { return answer(request); }) {
    for (const Json& each : expected().at(requests)) replies_[key_of(each)].push_back(each.at("reply"));
  }

  EndpointOptions options(const std::string& model) const {
    return {.url = server_.url() + "/v1/", .model = model, .key = "k", .limits = {.attempts = 1}};
  }
  size_t num_asked() { return server_.requests().size(); }

 private:
  static std::string key_of(const Json& request) {
    std::string key;
    for (const char* field : {"model", "messages"}) key += request.at(field).dump();
    return key + std::to_string(request.at("temperature").get<double>()) + request.at("max_tokens").dump();
  }
  FakeReply answer(const FakeRequest& request) {
    const std::lock_guard lock(mutex_);
    std::deque<std::string>& replies = replies_[key_of(Json::parse(request.body))];
    if (replies.empty() || request.path != "/v1/chat/completions" ||
        request.header("authorization") != "Bearer k")
      return {.status = 400, .body = request.body};
    const std::string reply = replies.front();
    replies.pop_front();
    return {.body = body_of_reply(reply)};
  }

  std::mutex mutex_;
  std::map<std::string, std::deque<std::string>> replies_;
  FakeServer server_;
};

MatchInput recorded_input() {
  const Bench bench(reference_folder());
  MatchInput input{.questions = read_questions(bench.question_file()),
                   .prompts = JudgePrompts(bench.prompt_file())};
  for (const std::string& model : bench.models())
    input.answers.try_emplace(model, Answers(bench.answer_file(model)));
  input.references = Answers(bench.reference_file(bench.usual_reference("gpt-4")));
  return input;
}

TEST(JudgeTest, AnswersAsFastChatAsksAndGoesOnWhereItStood) {
  const std::vector<Question> questions = read_questions(reference_folder() + "/question.jsonl");
  const TempFolder folder;
  RecordedEndpoint endpoint("answer_requests");
  for (const std::string model : {"owl", "sparrow", "wren"}) {
    const std::string recorded = reference_folder() + "/model_answer/" + model + ".jsonl";
    std::string path = folder / (model + ".jsonl");
    // The run before had written the first row, and a part of the second.
    const std::string whole = text_of(recorded);
    const size_t num_kept = model == "wren" ? 1 : 0;
    if (num_kept > 0) path = folder.write("wren.jsonl", whole.substr(0, whole.find('\n') + 40));
    const AnswerOptions options{.model_id = model,
                                .system = "You are a helpful assistant.",
                                .num_choices = model == "sparrow" ? 2 : 1,
                                .parallel = 3};
    EXPECT_EQ(make_answers(questions, endpoint.options(model), options, path), questions.size() - num_kept);
    EXPECT_EQ(lines_of(path), lines_of(recorded)) << "in the order of the questions";
    EXPECT_EQ(make_answers(questions, endpoint.options(model), options, path), 0U);
  }
  EXPECT_EQ(endpoint.num_asked(), expected().at("answer_requests").size() - 2);
}

TEST(JudgeTest, JudgesAsFastChatAsksAndGoesOnWhereItStood) {
  const MatchInput input = recorded_input();
  const TempFolder folder;
  RecordedEndpoint endpoint("judge_requests");
  for (const Mode mode : {Mode::Single, Mode::PairwiseAll}) {
    const auto matches = make_matches(input, mode, {"owl", "sparrow", "wren"}, "");
    const std::string path = judgment_file(folder.path(), "gpt-4", is_pairwise(mode));
    const std::vector<Match> first(matches.begin(), matches.begin() + 5);
    const GradeOptions options{.judge = "gpt-4", .parallel = 3};
    EXPECT_EQ(grade(first, endpoint.options("gpt-4"), options, path).num_new, 5U);
    const Graded graded = grade(matches, endpoint.options("gpt-4"), options, path);
    EXPECT_EQ(graded.num_new, matches.size() - 5);
    EXPECT_GT(graded.num_undecided, 0U);
    EXPECT_THAT(lines_of(path), UnorderedElementsAreArray(
                                    lines_of(judgment_file(reference_folder(), "gpt-4", is_pairwise(mode)))));
    // Two models in the other order are the same match.
    const auto other_way = make_matches(input, mode, {"wren", "sparrow", "owl"}, "");
    EXPECT_EQ(grade(other_way, endpoint.options("gpt-4"), options, path).num_new, 0U);
  }
  EXPECT_EQ(endpoint.num_asked(), expected().at("judge_requests").size());
  const auto against = make_matches(input, Mode::PairwiseBaseline, {"owl", "wren"}, "wren");
  EXPECT_EQ(against.size(), 5U + 4U) << "all questions, and those of two turns";
}

TEST(JudgeTest, FindsRatingsAndWinners) {
  for (const Row& row : read_rows(judgment_file(reference_folder(), "gpt-4", false)))
    EXPECT_EQ(find_rating(row.text("judgment")).dump(), row.value.at("score").dump()) << row.text("judgment");
  for (const Json& each : expected().at("two_ratings"))
    EXPECT_EQ(find_winner(each[0].get<std::string>(), "[[rating_a,rating_b]]"), each[1]) << each;
  EXPECT_EQ(find_rating("[[123456789012345678901]]"), 123456789012345678901.0);
  EXPECT_EQ(find_rating("[[007]]"), 7);
}

TEST(JudgeTest, TablesAreThoseOfFastChat) {
  const auto single = read_rows(judgment_file(reference_folder(), "gpt-4", false));
  const auto pairs = read_rows(judgment_file(reference_folder(), "gpt-4", true));
  const std::pair<const char*, std::vector<std::string>> rated[] = {{"single", {}},
                                                                    {"single_of_two", {"owl", "wren"}}};
  for (const auto& [name, models] : rated) {
    std::map<std::string, RatedModel> by_name;
    std::vector<std::string> order, expected_order;
    for (const RatedModel& each : rate_models(single, models)) {
      by_name[each.model] = each;
      order.push_back(each.model);
    }
    const Json& frames = expected().at(name);
    EXPECT_EQ(by_name.size(), frames[2].size());
    for (const Json& row : frames[0])
      EXPECT_DOUBLE_EQ(by_name[row.at("model")].first_turn.value(), row.at("score").get<double>());
    for (const Json& row : frames[1])
      EXPECT_DOUBLE_EQ(by_name[row.at("model")].second_turn.value(), row.at("score").get<double>());
    for (const Json& row : frames[2]) {
      EXPECT_DOUBLE_EQ(by_name[row.at("model")].average.value(), row.at("score").get<double>());
      expected_order.push_back(row.at("model"));
    }
    EXPECT_EQ(order, expected_order);
  }
  for (const auto& [name, baseline] :
       {std::pair("pairwise_all", ""), std::pair("pairwise_baseline", "sparrow")}) {
    const Json rows = json_of(compare_models(pairs, {}, baseline)).at("models");
    const Json& wanted = expected().at(name)[0];
    ASSERT_EQ(rows.size(), wanted.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      for (const auto& [key, value] : wanted[i].items()) {
        if (value.is_number_float()) {
          EXPECT_NEAR(rows[i].at(key).get<double>(), value.get<double>(), 1e-14) << name << key;
        } else {
          EXPECT_EQ(rows[i].at(key), value) << name << key;
        }
      }
    }
  }
  const auto table = table_of(rate_models(single, {}));
  EXPECT_THAT(table, HasSubstr("model    first turn  second turn  average  rated  no rating\n"
                               "wren           7.67         7.17     7.42      6          3\n"));
  EXPECT_THAT(table_of(compare_models(pairs, {}, "")),
              HasSubstr("7 matches without a verdict are left out\n"));
}

TEST(JudgeTest, AgreementIsThatOfFastChat) {
  struct Case {
    const char* name;
    std::vector<const char*> files;
    std::string judge, other;
  };
  const Case cases[] = {
      {"gpt4_human", {"votes/human.json", "votes/gpt4.json"}, "gpt4-pair", "human"},
      {"human_human", {"votes/human.json", "votes/gpt4.json"}, "human", "human"},
      {"judgments_human", {"votes/human.json", "model_judgment/gpt-4_pair.jsonl"}, "gpt4-pair", "human"},
  };
  for (const Case& each : cases) {
    Votes votes;
    for (const char* file : each.files) votes.add(read_rows(reference_folder() + "/" + file));
    Json counts = Json::array();
    for (const Agreement& count : votes.compare(each.judge, each.other))
      counts.push_back({count.agree, count.total});
    EXPECT_EQ(counts, expected().at("agreement").at(each.name)) << each.name;
    expect_error(ErrorKind::Data, {"E-DATA-JUDGE-VOTES", "votes of author, gpt4-pair, human"},
                 [&] { votes.compare("human", "owl"); });
  }
}

TEST(JudgeTest, EndpointsThatFail) {
  struct Case {
    FakeReply reply;
    ErrorKind kind;
    std::vector<std::string> parts;
    int num_asked;  // of the questions that one thread asks
  };
  const std::string no = R"({"error": {"message": "not today"}})";
  const Case cases[] = {
      {{.status = 401, .body = no},
       ErrorKind::Config,
       {"ENDPOINT-ACCESS", "401: not today", "OPENAI_API_KEY"},
       1},
      {{.status = 404, .body = no}, ErrorKind::Config, {"ENDPOINT-NOT-FOUND", "404: not today"}, 1},
      {{.status = 400, .body = no},
       ErrorKind::Config,
       {"ENDPOINT-REFUSED", "5 of 5 were refused, the first: question 7, turn 1", "400: not today"},
       5},
      {{.status = 500, .body = no, .headers = {{"X-Should-Retry", "false"}}},
       ErrorKind::Config,
       {"REFUSED"},
       5},
      {{.status = 500, .body = no}, ErrorKind::Storage, {"ENDPOINT-BROKEN", "500: not today"}, 2},
      {{.status = 429, .body = no, .headers = {{"Retry-After", "9999"}}},
       ErrorKind::Storage,
       {"ENDPOINT-BROKEN", "429: not today", "asks for a pause of 2h46m"},
       1},
      {{.is_cut = true}, ErrorKind::Storage, {"ENDPOINT-BROKEN"}, 2},
      {{.body = "<html>"}, ErrorKind::Storage, {"ENDPOINT-ANSWER", "<html>"}, 1},
      {{.body = R"({"choices": []})"}, ErrorKind::Storage, {"ENDPOINT-ANSWER"}, 1},
      {{.body = R"({"choices": [{"message": {"content": [1]}}]})"},
       ErrorKind::Storage,
       {"ENDPOINT-ANSWER"},
       1},
  };
  const std::vector<Question> questions = read_questions(reference_folder() + "/question.jsonl");
  const TempFolder folder;
  const auto answer = [&](const std::string& url) {
    make_answers(questions, {.url = url, .limits = {.attempts = 2, .first_pause_s = 0.001}},
                 {.model_id = "m", .parallel = 1}, folder / "m.jsonl");
  };
  std::string url;
  for (const Case& each : cases) {
    FakeServer server([&](const FakeRequest&) { return each.reply; });
    url = server.url();
    expect_error(each.kind, each.parts, [&] { answer(url); });
    EXPECT_EQ(std::ssize(server.requests()), each.num_asked) << each.parts[0];
    EXPECT_FALSE(io::exists(folder / "m.jsonl")) << "no row, no file";
  }
  expect_error(ErrorKind::Storage, {"ENDPOINT-UNREACHABLE", "--endpoint"}, [&] { answer(url); });
  expect_error(ErrorKind::Config, {"ENDPOINT-ADDRESS", "'localhost:1'"}, [&] { answer("localhost:1"); });
  // A trouble that passes is waited out, and fields can be added and taken away.
  int count = 0;
  FakeServer server([&](const FakeRequest& request) -> FakeReply {
    const Json asked = Json::parse(request.body);
    if (++count == 1) return {.status = 429};
    return {.body = body_of_reply(asked.contains("seed") || asked.at("top_k") != 1 ? "wrong" : " right\n")};
  });
  const EndpointOptions options{.url = server.url(),
                                .fields = {{"top_k", 1}, {"seed", nullptr}},
                                .limits = {.attempts = 2, .first_pause_s = 0.001}};
  EXPECT_EQ(make_answers({questions[3]}, options, {.model_id = "m"}, folder / "m.jsonl"), 1U);
  EXPECT_EQ(Answers(folder / "m.jsonl").turns(10, 1).front(), "right");
}

TEST(JudgeTest, FilesThatAreWrong) {
  const TempFolder folder;
  const auto answers_of = [&](const std::string& row) { return Answers(folder.write("a.jsonl", row)); };
  const auto prompts_of = [&](const std::string& row) { return JudgePrompts(folder.write("p.jsonl", row)); };
  const std::string prompt = R"({"name": "p", "type": "single", "system_prompt": "", )";
  const std::pair<std::function<void()>, std::vector<std::string>> cases[] = {
      {[&] { answers_of("{\"question_id\": 1}\n"); }, {"JUDGE-ROW", "a.jsonl:1", "'choices'"}},
      {[&] { answers_of("{\"question_id\": 1.5, \"choices\": [{\"turns\": []}]}"); },
       {"'question_id'", "got 1.5"}},
      {[&] { answers_of("{\"question_id\": 1, \"choices\": [{\"turns\": [\"a\"]}]}").turns(1, 2); },
       {"JUDGE-ANSWER", "question 1 is missing", "got 1 turns, need 2"}},
      {[&] { read_rows(folder.write("r.jsonl", "{}\n{\"a\": \n")); }, {"E-DATA-JSON", "r.jsonl:2"}},
      {[&] { prompts_of(prompt + R"("prompt_template": "", "output_format": "[[A]]"})"); },
       {"'output_format'", "need [[rating]]"}},
      {[&] {
         prompts_of(prompt + R"("prompt_template": "", "output_format": "[[rating]]"})").get("q", false);
       },
       {"JUDGE-PROMPT", "no prompt 'q'"}},
      {[&] {
         prompts_of(prompt + R"("prompt_template": "", "output_format": "[[rating]]"})").get("p", true);
       },
       {"need pairwise"}},
      {[&] {
         fill_template({.name = "p", .prompt_template = "{b} {c}"}, {{"a", ""}, {"b", ""}});
       },
       {"got {c}", "need {a}, {b}"}},
      {[&] { fill_template({.name = "p", .prompt_template = "a } b"}, {}); }, {"single brace"}},
      {[&] {
         rate_models(read_rows(folder.write("s.jsonl", R"({"model": "m", "score": 1, "turn": 3})")), {});
       },
       {"'turn'", "got 3"}},
      {[&] {
         MatchInput input = recorded_input();
         input.references = Answers();
         make_matches(input, Mode::Single, {"owl"}, "");
       },
       {"JUDGE-ANSWER", "question 8"}},
  };
  for (const auto& [call, parts] : cases) expect_error(ErrorKind::Data, parts, call);
  folder.write("mt_bench/question.jsonl", "");
  expect_error(ErrorKind::Config, {"JUDGE-FOLDER", "did you mean"},
               [&] { const Bench bench(folder.path()); });
  const Bench bench(folder / "mt_bench/");
  expect_error(ErrorKind::Config, {"judge_prompts.jsonl is neither"}, [&] { bench.prompt_file(); });
  folder.write("judge_prompts.jsonl", "");
  EXPECT_EQ(text_of(bench.prompt_file()), "") << "in the folder above";
  expect_error(ErrorKind::Config, {"no judge has a file *_single.jsonl"},
               [&] { only_judge(folder.path(), false); });
  EXPECT_EQ(file_name_of("org/name"), "org--name");
  for (const char* name : {"", ".", "../x", "a\nb", "\xff"})
    expect_error(ErrorKind::Config, {"JUDGE-NAME"}, [&] { file_name_of(name); });
}

}  // namespace
}  // namespace tessera::scoring::judge

// Tests of `tessera serve` as a user runs it.
#include <atomic>
#include <chrono>
#include <csignal>
#include <regex>
#include <thread>

#include "tests/integration/fixture.h"
#include "tests/testing/http_client.h"
#include "tests/testing/paths.h"

namespace tessera::testing {
namespace {

using nlohmann::json;

class ServeTest : public ProgramTest {
 protected:
  // Runs the server, calls `use` with its port and process id as soon as it listens, and then stops it unless
  // has_stopped_ says that `use` has done so.
  ProgramResult serve(const Words& more, const std::function<void(int port, pid_t server)>& use,
                      const std::string& folder = "model") const {
    std::thread user;
    RunOptions options;
    options.while_talking = [&](pid_t server, const std::string& err) {
      std::smatch found;
      if (user.joinable() || !std::regex_search(err, found, std::regex("http://127.0.0.1:([0-9]+)/v1")))
        return;
      user = std::thread([this, &use, server, port = std::stoi(found[1].str())] {
        try {
          use(port, server);
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
        }
        // A second signal would end the program at once.
        if (!has_stopped_) kill(server, SIGTERM);
      });
    };
    const ProgramResult result =
        run(with({"serve", folder, "--port", "0", "--dtype", "fp64"}, more), options);
    if (user.joinable()) user.join();
    EXPECT_EQ(result.exit_code, 0) << result.told();
    EXPECT_NE(result.err.find("stopping"), std::string::npos) << result.told();
    return result;
  }
  mutable std::atomic<bool> has_stopped_ = false;  // by what uses it

  static HttpAnswer complete(int port, const json& body) { return post(port, "/v1/completions", body); }
  // Returns the value of a metric on a page of them; -1 if it is not there.
  static double metric(const std::string& page, const std::string& name) {
    std::smatch found;
    if (!std::regex_search(page, found, std::regex("tessera:" + name + "\\{[^}]*\\} ([^\\n]+)"))) return -1;
    return std::stod(found[1].str());
  }
  // Waits until the server works on no answer and none waits, and returns the page of metrics that says so.
  static std::string metrics_when_idle(int port) {
    std::string page;
    for (int i = 0; i < 1000; ++i) {
      page = get(port, "/metrics").body;
      if (metric(page, "num_requests_running") == 0 && metric(page, "num_requests_waiting") == 0) return page;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << "answers are still under way:\n" << page;
    return page;
  }
};

TEST_F(ServeTest, AnswersAreThoseOfGenerate) {
  const Words same = {"generate", "--model", "model", "--dtype", "fp64", "--max-new-tokens", "24"};
  const std::string greedy = run_well(with(same, {"Hi"})).out;
  const std::string drawn = run_well(with(same, {"--temperature", "1", "--seed", "5", "Hi"})).out;
  const std::string spoken = run_well(with(same, {"--chat", "Hi"})).out;
  serve({}, [&](int port, pid_t) {
    const auto text = [](const HttpAnswer& answer) { return answer.json().at("choices").at(0); };
    const json body = {{"prompt", "Hi"}, {"max_tokens", 24}, {"temperature", 0}};
    EXPECT_EQ(text(complete(port, body)).at("text").get<std::string>() + "\n", greedy);
    json sampled = body;
    sampled["temperature"] = 1;
    sampled["seed"] = 5;
    EXPECT_EQ(text(complete(port, sampled)).at("text").get<std::string>() + "\n", drawn);
    const json chat = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                       {"max_completion_tokens", 24},
                       {"temperature", 0}};
    EXPECT_EQ(
        text(post(port, "/v1/chat/completions", chat)).at("message").at("content").get<std::string>() + "\n",
        spoken);
    // Several prompts and answers in one batch are what they are alone, and a stream has the same text.
    json many = sampled;
    many["prompt"] = {"One, two", "Hi", {72, 105}};
    many["n"] = 2;
    const json choices = complete(port, many).json().at("choices");
    ASSERT_EQ(choices.size(), 6u);
    for (const size_t first : {2, 4})
      EXPECT_EQ(choices.at(first).at("text").get<std::string>() + "\n", drawn);
    EXPECT_NE(choices.at(3).at("text"), choices.at(2).at("text"));
    many["stream"] = true;
    std::vector<std::string> texts(6);
    for (const std::string& event : complete(port, many).events()) {
      if (event == "[DONE]") continue;
      const json choice = json::parse(event).at("choices").at(0);
      texts.at(choice.at("index").get<size_t>()) += choice.at("text").get<std::string>();
    }
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(choices.at(i).at("text"), texts[i]);
  });
}

TEST_F(ServeTest, RanksAnswerAsOneProcess) {
  const Words same = {"generate", "--model", "model", "--dtype", "fp64", "--max-new-tokens", "24"};
  const std::string drawn = run_well(with(same, {"--temperature", "1", "--seed", "5", "Hi"})).out;
  const ProgramResult result = serve({"--nproc", "2"}, [&](int port, pid_t) {
    const json body = {{"prompt", "Hi"}, {"max_tokens", 24}, {"temperature", 1}, {"seed", 5}};
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(complete(port, body).json().at("choices").at(0).at("text").get<std::string>() + "\n", drawn);
    EXPECT_EQ(metric(metrics_when_idle(port), "kv_cache_usage_perc"), 0);
  });
  EXPECT_EQ(result.err.find("warning"), std::string::npos) << result.told();
}

// Log-likelihoods of the echoed text are those that `tessera evaluate` scores, also where a prompt is read in
// many parts.
TEST_F(ServeTest, EchoedLogProbabilitiesAreThoseOfEvaluate) {
  std::filesystem::create_directories(here / "data");
  write_text(here / "data/quiz.jsonl",
             "{\"q\": \"The sky is\", \"a\": [\" blue\", \" a green hat\"], \"y\": 0}\n"
             "{\"q\": \"One, two,\", \"a\": [\" three\", \" \\u00e9t\\u00e9\"], \"y\": 1}\n");
  write_text(
      here / "quiz.yaml",
      "task: quiz\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: data/quiz.jsonl\n"
      "test_split: test\noutput_type: multiple_choice\ndoc_to_text: \"{{q}}\"\ndoc_to_choice: \"{{a}}\"\n"
      "target_delimiter: \"\"\ndoc_to_target: y\nmetric_list:\n  - metric: acc\n");
  const json scored = json::parse(
      run_well({"evaluate", "model", "--tasks", "quiz.yaml", "--json", "--log_samples", "dtype=fp64"}).out);
  serve({}, [&](int port, pid_t) {
    for (const json& sample : scored.at("samples").at("quiz")) {
      for (size_t i = 0; i < 2; ++i) {
        const std::string question = sample.at("doc").at("q"), answer = sample.at("doc").at("a").at(i);
        const json told = complete(port, {{"prompt", question + answer},
                                          {"echo", true},
                                          {"max_tokens", 1},
                                          {"logprobs", 1},
                                          {"temperature", 0}})
                              .json()
                              .at("choices")
                              .at(0)
                              .at("logprobs")
                              .at("token_logprobs");
        double sum = 0;
        for (size_t token = question.size(); token < question.size() + answer.size(); ++token)
          sum += told.at(token).get<double>();
        const double want = sample.at("resps").at(i).at(0).at(0).get<double>();
        EXPECT_NEAR(sum, want, 1e-5) << question << answer;
      }
    }
  });
}

TEST_F(ServeTest, WhoLeavesFreesTheCacheAndATerminationWaitsForAnswers) {
  const ProgramResult result = serve(
      {"--max-concurrent", "2", "--max-waiting", "1", "--max-cache-tokens", "600"},
      [&](int port, pid_t server) {
        const json endless = {{"prompt", "Hi"}, {"max_tokens", 230}, {"ignore_eos", true}, {"stream", true}};
        {
          HttpClient first(port), second(port), third(port);
          for (HttpClient* each : {&first, &second, &third})
            each->send(post_text("/v1/completions", endless.dump()));
          // The head of a stream goes out when its request is among those of the engine: from then on the
          // metrics count each of the three until it has ended.
          for (HttpClient* each : {&first, &second, &third}) ASSERT_TRUE(each->read_until("200 OK\r\n"));
          ASSERT_TRUE(first.read_until("data: "));
          first.leave();
          second.leave();
          third.leave();
        }
        EXPECT_EQ(metric(metrics_when_idle(port), "kv_cache_usage_perc"), 0);
        HttpClient last(port);
        last.send(post_text("/v1/completions", endless.dump()));
        ASSERT_TRUE(last.read_until("data: "));
        has_stopped_ = true;
        kill(server, SIGTERM);
        const auto events = last.reply().events();
        ASSERT_FALSE(events.empty());
        EXPECT_EQ(events.back(), "[DONE]");
        EXPECT_EQ(json::parse(events.at(events.size() - 2)).at("choices").at(0).at("finish_reason"),
                  "length");
      });
  EXPECT_EQ(ProgramResult::lines_with(result.err, "cut off").size(), 0u) << result.told();
}

// A beginning that a prompt has in common with an earlier one is not read again, and no answer changes.
TEST_F(ServeTest, ThePrefixCacheIsToldAndChangesNoAnswer) {
  std::vector<std::string> texts;
  for (const Words& more : {Words(), Words{"--no-prefix-cache"}}) {
    serve(more, [&](int port, pid_t) {
      std::string prompt(70, 'x');
      for (const int64_t cached : {0, 64, 96}) {
        const json answer =
            complete(port, {{"prompt", prompt}, {"max_tokens", 30}, {"seed", 3}, {"ignore_eos", true}})
                .json();
        texts.push_back(answer.at("choices").at(0).at("text"));
        EXPECT_EQ(answer.at("usage").at("prompt_tokens_details").at("cached_tokens"),
                  more.empty() ? cached : 0);
        prompt += std::string(40, 'y');
      }
      const std::string page = metrics_when_idle(port);
      EXPECT_EQ(metric(page, "prefix_cache_hits_total"), more.empty() ? 64 + 96 : 0);
      EXPECT_EQ(metric(page, "prefix_cache_queries_total"), more.empty() ? 70 + 110 + 150 : 0);
      EXPECT_EQ(metric(page, "num_preemptions_total"), 0);
    });
  }
  ASSERT_EQ(texts.size(), 6u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(texts[i], texts[i + 3]);
}

TEST_F(ServeTest, EmbeddingsComeFromDecodersAndEncoders) {
  const auto embed = [](int port, const json& body) { return post(port, "/v1/embeddings", body).json(); };
  serve({"--pooling", "mean"}, [&](int port, pid_t) {
    const json together = embed(port, {{"input", {"One, two", "Hi"}}}).at("data");
    const json alone = embed(port, {{"input", {72, 105}}}).at("data").at(0).at("embedding");
    double length = 0;
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_NEAR(together.at(1).at("embedding").at(i).get<double>(), alone.at(i).get<double>(), 1e-6);
      length += alone.at(i).get<double>() * alone.at(i).get<double>();
    }
    EXPECT_NEAR(length, 1.0, 1e-5);
    // Answers and embeddings come from one server.
    EXPECT_EQ(complete(port, {{"prompt", "Hi"}, {"max_tokens", 3}}).status, 200);
  });
  const std::string encoder = source_folder() + "/tests/reference/data/classifiers/training";
  serve(
      {},
      [&](int port, pid_t) {
        EXPECT_EQ(embed(port, {{"input", "a text"}}).at("data").at(0).at("embedding").size(), 12u);
        EXPECT_EQ(complete(port, {{"prompt", "Hi"}}).status, 400);
      },
      encoder);
}

TEST_F(ServeTest, DefaultsComeFromTheModelAndMistakesAreTold) {
  write_text(model() + "/generation_config.json", "{\"temperature\": 0.0, \"eos_token_id\": 256}");
  write_text(here / "keys", "secret\n");
  serve({"--api-key-file", "keys", "--served-model-name", "mine"}, [&](int port, pid_t) {
    const std::string key = "Authorization: Bearer secret\r\n";
    EXPECT_EQ(get(port, "/v1/models").status, 401);
    EXPECT_EQ(get(port, "/v1/models", key).json().at("data").at(0).at("id"), "mine");
    const json body = {{"prompt", "Hi"}, {"max_tokens", 12}};
    // Greedy answers need no seed to be alike.
    EXPECT_EQ(post(port, "/v1/completions", body, key).json().at("choices"),
              post(port, "/v1/completions", body, key).json().at("choices"));
  });
  expect_error(run({"serve", "model", "--nproc", "3", "--tensor-parallel-size", "2"}), 2,
               "E-CONFIG-PARALLELISM", {"the product of the sizes"});
  expect_error(run({"serve", "model", "--host", "203.0.113.7"}), 2, "E-CONFIG-ADDRESS", {"203.0.113.7"});
  write_text(here / "none", "# no key\n");
  expect_error(run({"serve", "model", "--api-key-file", "none"}), 2, "E-CONFIG-API-KEYS", {"none"});
  write_text(model() + "/generation_config.json", "{\"temperature\": \"warm\"}");
  expect_error(run({"serve", "model"}), 4, "E-MODEL-CONFIG", {"generation_config.json", "temperature"});
}

}  // namespace
}  // namespace tessera::testing

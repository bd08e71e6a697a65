// Tests of `tessera generate` and `tessera chat` as a user runs them.
#include <algorithm>
#include <cmath>
#include <regex>

#include "tests/integration/fixture.h"
#include "tests/testing/extent.h"
#include "tests/testing/paths.h"
#include "tests/testing/tiny_gguf.h"

namespace tessera::testing {
namespace {

class GenerateTest : public ProgramTest {
 protected:
  ProgramResult generate(Words more, const std::string& model = "model") const {
    Words arguments = {"generate", "--model", model, "--max-new-tokens", "16"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_well(arguments);
  }
  // Runs the program with this standard input.
  ProgramResult fed(const std::string& input, const std::string& arguments) const {
    write_text(here / "input", input);
    const std::string command = std::string("'") + program_path() + "' " + arguments + " < input";
    ProgramResult result = run_command({"bash", "-c", command}, {.folder = here.path()});
    EXPECT_EQ(result.exit_code, 0) << result.told();
    return result;
  }
  static std::string told_seed(const ProgramResult& result) {
    std::smatch found;
    EXPECT_TRUE(std::regex_search(result.err, found, std::regex("--seed ([0-9]+)"))) << result.told();
    return found.empty() ? "" : found[1].str();
  }
};

// Returns the answers, which stand below lines "> prompt".
Words answers(const std::string& out, const std::string& prompt) {
  Words parts;
  const std::string header = "> " + prompt + "\n";
  for (size_t at = out.find(header); at != std::string::npos;) {
    const size_t next = out.find(header, at + 1);
    parts.push_back(
        out.substr(at + header.size(), next == std::string::npos ? next : next - at - header.size()));
    at = next;
  }
  return parts;
}

// The families have heads that three ranks share unevenly, and experts; runs are with and without sampling.
TEST_F(GenerateTest, OnUpTo4RanksTheAnswersAreThoseOfOne) {
  write_text(here / "prompts.jsonl",
             "{\"prompt\": \"Hi\"}\n{\"prompt\": \"One, two, three\"}\n{\"prompt\": \"a\"}\n");
  Random random;
  for (const std::string family : {"llama", "mixtral", "gpt2"}) {
    write_tiny_model(here / family, {.family = family, .layers = 3, .kv_heads = 4});
    const std::map<std::string, std::vector<Words>> layouts = {
        {"0",
         {{"--nproc", "3"},
          {"--nproc", "2", "--pipeline-parallel-size", "2"},
          {"--tensor-parallel-size", "2", "--pipeline-parallel-size", "2"},
          {"--nproc", "3", "--tensor-parallel-size", "1"}}},
        {"1",
         {{"--nproc", "2"},
          {"--nproc", "4"},
          {"--pipeline-parallel-size", "3"},
          {"--nproc", "4", "--tensor-parallel-size", "2"}}}};
    for (const auto& [temperature, ranks] : layouts) {
      const Words same = {"generate",
                          "--model",
                          family,
                          "--dtype",
                          "fp64",
                          "--prompts",
                          "prompts.jsonl",
                          "--temperature",
                          temperature,
                          "--seed",
                          "3",
                          "--batch-size",
                          "2",
                          "--max-new-tokens",
                          "24"};
      const ProgramResult alone = run(same);
      ASSERT_EQ(alone.exit_code, 0) << alone.told();
      for (const Words& layout : some_of(ranks, 1, random)) {
        const ProgramResult result = run(with(same, layout));
        ASSERT_EQ(result.exit_code, 0) << result.told();
        EXPECT_EQ(result.out, alone.out) << family << " with " << ::testing::PrintToString(layout);
      }
    }
  }
}

// One rank holds two of three heads and the other one, so a layer is a larger part of the first one's work.
// Both must still deal the same layers to the stages.
TEST_F(GenerateTest, UnevenHeadsInAPipeline) {
  write_tiny_model(model(), {.heads = 3, .kv_heads = 3, .intermediate = 60});
  const Words same = {"generate", "--model", "model", "--dtype", "fp64", "--max-new-tokens", "8", "Hi"};
  const ProgramResult result =
      run(with(same, {"--tensor-parallel-size", "2", "--pipeline-parallel-size", "2"}));
  ASSERT_EQ(result.exit_code, 0) << result.told();
  EXPECT_EQ(result.out, run_well(same).out);
}

// Compares an adapter on its base, a conversation, `bench` and prompts from standard input with one process.
TEST_F(GenerateTest, OnRanksLikeOnOne) {
  std::filesystem::remove_all(model());
  write_tiny_model(model(), {.layers = 3});
  train_well({"adapter=lora", "lora_target_linear=true", "lora_r=3"});
  const Words base = {"generate", "--model", "model", "--dtype", "fp64", "--max-new-tokens", "24", "Hi"};
  const Words adapted = {"generate", "--model", "out", "--dtype", "fp64", "--max-new-tokens", "24", "Hi"};
  const std::string want = run_well(adapted).out;
  EXPECT_NE(want, run_well(base).out);
  const Words two_by_two = {"--tensor-parallel-size", "2", "--pipeline-parallel-size", "2"};
  const std::vector<Words> layouts = {
      {"--nproc", "2"}, {"--nproc", "3", "--pipeline-parallel-size", "3"}, two_by_two};
  Random random;
  for (const Words& layout : some_of(layouts, 1, random)) {
    const ProgramResult result = run(with(adapted, layout));
    ASSERT_EQ(result.exit_code, 0) << result.told();
    EXPECT_EQ(result.out, want) << ::testing::PrintToString(layout);
  }

  const std::string told = "Hi\n/reset\nWhat is it?\nAnd now?\n/exit\nnever read\n";
  const std::string chat = "chat --model model --dtype fp64 --temperature 1 --seed 4 --max-new-tokens 8";
  EXPECT_EQ(fed(told, chat + " --nproc 2").out, fed(told, chat).out);
  EXPECT_EQ(fed(told, chat + " --nproc 3 --pipeline-parallel-size 3").out, fed(told, chat).out);
  const std::string lines = "generate --model model --dtype fp64 --max-new-tokens 8 ";
  EXPECT_EQ(fed("Hi\nx y\n", lines + "--nproc 2 -").out, fed("Hi\nx y\n", lines + "-").out);

  const Words bench = {"bench",   "generate", "--model",      "model", "--dtype", "fp64",
                       "--batch", "2",        "--new-tokens", "9",     "--json"};
  const auto alone = nlohmann::json::parse(run_well(bench).out);
  const ProgramResult ranks = run(with(bench, two_by_two));
  ASSERT_EQ(ranks.exit_code, 0) << ranks.told();
  const auto spread = nlohmann::json::parse(ranks.out);
  EXPECT_EQ(spread.at("ids"), alone.at("ids"));
  EXPECT_EQ(spread.at("tensor_parallel_size"), 2);
  EXPECT_EQ(spread.at("pipeline_parallel_size"), 2);

  // Four ranks hold two copies of the model, on two ranks each, and each copy takes two sequences.
  const ProgramResult copies = run(with(bench, {"--nproc", "4", "--tensor-parallel-size", "2"}));
  ASSERT_EQ(copies.exit_code, 0) << copies.told();
  const auto both = nlohmann::json::parse(copies.out);
  EXPECT_EQ(both.at("ids"), alone.at("ids"));
  EXPECT_EQ(both.at("dp_replicate_size"), 2);
  const auto decoded = [](const nlohmann::json& run) {
    return std::lround(run.at("tokens_per_s").get<double>() * run.at("decode_s").get<double>());
  };
  EXPECT_EQ(decoded(both), 2 * decoded(alone));
}

// There are more prompts than are answered at once, and each of four copies of the model gets a part of
// them; with fewer prompts a copy has none.
TEST_F(GenerateTest, PromptsAreDealtTo4CopiesOfTheModel) {
  std::string prompts;
  for (int i = 0; i < 11; ++i) prompts += "{\"prompt\": \"p" + std::string(i % 4, 'x') + "\"}\n";
  write_text(here / "prompts.jsonl", prompts);
  const Words asked = {"generate",
                       "--model",
                       "model",
                       "--dtype",
                       "fp64",
                       "--prompts",
                       "prompts.jsonl",
                       "--seed",
                       "3",
                       "--temperature",
                       "1",
                       "--batch-size",
                       "2",
                       "--max-new-tokens",
                       "20",
                       "--stop",
                       "e"};
  const Words copies = {"--nproc", "4", "--tensor-parallel-size", "1"};
  const std::string want = run_well(asked).out;
  const ProgramResult result = run(with(asked, with(copies, {"--stats"})));
  ASSERT_EQ(result.exit_code, 0) << result.told();
  EXPECT_EQ(result.out, want);
  EXPECT_EQ(ProgramResult::lines_with(result.err, "new tokens in").size(), 1u) << result.told();

  const auto lines = [&](const Words& words, const std::string& file) {
    const ProgramResult done = run(with(words, {"--output", file}));
    EXPECT_EQ(done.exit_code, 0) << done.told();
    std::map<int64_t, nlohmann::json> answers;
    for (const std::string& line : ProgramResult::lines(read_text(here / file))) {
      const auto answer = nlohmann::json::parse(line);
      answers[answer.at("index").get<int64_t>()] = answer;
    }
    EXPECT_EQ(answers.size(), 11u);
    return answers;
  };
  EXPECT_EQ(lines(with(asked, copies), "four.jsonl"), lines(asked, "one.jsonl"));

  const Words single = {"generate", "--model", "model", "--dtype", "fp64", "--max-new-tokens", "5", "Hi"};
  EXPECT_EQ(run_well(with(single, copies)).out, run_well(single).out);
  // A prompt that another copy than the first would answer is refused before any answer is shown.
  write_text(here / "long.jsonl",
             "{\"prompt\": \"Hi\"}\n{\"prompt\": \"" + std::string(20000, 'a') + "\"}\n");
  const ProgramResult refused = run(with(with(single, copies), {"--prompts", "long.jsonl"}));
  expect_error(refused, 4, "E-MODEL-LENGTH", {"long.jsonl:2"});
  EXPECT_EQ(ProgramResult::lines_with(refused.err, "error[").size(), 1u) << refused.told();
  expect_error(run(with({"chat", "--model", "model"}, copies)), 2, "E-CONFIG-PARALLELISM",
               {"one conversation cannot use several copies", "4 ranks", "--nproc 1"});
}

TEST_F(GenerateTest, RanksHaveOneError) {
  write_text(here / "bad.jsonl", "{\"prompt\": \"Hi\"}\n{\"text\": 1}\n");
  const Words on_two = {"generate", "--model", "model", "--nproc", "2"};
  const auto asked = [&](const Words& more) {
    Words words = on_two;
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  expect_error(asked({"--prompts", "bad.jsonl"}), 3, "E-DATA-PROMPTS", {"bad.jsonl:2"});
  expect_error(asked({"--pipeline-parallel-size", "4", "Hi"}), 2, "E-CONFIG-PARALLELISM",
               {"--pipeline-parallel-size 4 and 2 ranks", "--nproc 4"});
  expect_error(asked({"--context-parallel-size", "2", "Hi"}), 2, "E-CONFIG-PARALLELISM",
               {"--context-parallel-size", "which generates one per sequence"});
  expect_error(run({"generate", "--model", "model", "--pipeline-parallel-size", "3", "Hi"}), 2,
               "E-CONFIG-PIPELINE", {"3 ranks and 2 layers"});
  expect_error(run({"generate", "--model", "model", "--nproc", "3", "Hi"}), 2, "E-CONFIG-TENSOR-PARALLEL",
               {"2 key/value heads"});
}

TEST_F(GenerateTest, ThePromptGivenTwiceGetsTwoAnswers) {
  write_text(here / "prompts.jsonl", "{\"prompt\": \"Hi\"}\n{\"prompt\": \"Hi\"}\n{\"prompt\": \"Hi\"}\n");
  const Words sampled = {
      "--prompts", "prompts.jsonl", "--temperature", "1", "--seed", "5", "--prefill-tokens", "1"};
  Words one_by_one = sampled;
  one_by_one.insert(one_by_one.end(), {"--batch-size", "1"});
  const std::string out = generate(sampled).out;
  const Words all = answers(out, "Hi");
  ASSERT_EQ(all.size(), 3u) << out;
  EXPECT_NE(all[0], all[1]);
  EXPECT_NE(all[1], all[2]);
  EXPECT_NE(all[0], all[2]);
  EXPECT_EQ(generate(one_by_one).out, out);
}

TEST_F(GenerateTest, TheSeedDiffersFromRunToRunAndIsTold) {
  const Words sampled = {"--temperature", "5", "Hi"};
  const ProgramResult first = generate(sampled), second = generate(sampled);
  EXPECT_NE(told_seed(first), told_seed(second));
  EXPECT_NE(first.out, second.out);
  Words again = sampled;
  again.insert(again.end(), {"--seed", told_seed(first)});
  const ProgramResult repeated = generate(again);
  EXPECT_EQ(repeated.out, first.out);
  EXPECT_EQ(repeated.err, "");
  EXPECT_EQ(generate({"Hi"}).err, "");  // a greedy choice needs no seed
}

TEST_F(GenerateTest, StopStringsEndTheAnswerBeforeThem) {
  const std::string whole = generate({"Hi"}).out;
  ASSERT_GT(whole.size(), 6u);
  // The stop string is the last character but one of the text, so that most of the text comes before it.
  size_t begin = whole.size() - 2;
  while (begin > 0 && (whole[begin] & 0xc0) == 0x80) --begin;
  const std::string stop = whole.substr(begin, whole.size() - 1 - begin);
  EXPECT_EQ(generate({"--stop", "never in it", "--stop", stop, "Hi"}).out,
            whole.substr(0, whole.find(stop)) + "\n");
  EXPECT_EQ(generate({"--stop", "never in it", "Hi"}).out, whole);
}

TEST_F(GenerateTest, SamplingOptionsReachTheModel) {
  const std::string greedy = generate({"Hi"}).out;
  EXPECT_EQ(generate({"--temperature", "3", "--min-p", "1", "--seed", "1", "Hi"}).out, greedy);
  EXPECT_NE(generate({"--temperature", "3", "--seed", "1", "Hi"}).out, greedy);
  EXPECT_NE(generate({"--repetition-penalty", "50", "Hi"}).out, greedy);
  EXPECT_EQ(generate({"--speculate-tokens", "4", "Hi"}).out, greedy);
  expect_error(
      run({"generate", "--model", "model", "--speculate-tokens", "4", "--prefill-tokens", "1", "Hi"}), 2,
      "E-CONFIG-USAGE", {"bit-identical"});
  EXPECT_NE(generate({"--presence-penalty", "2", "--frequency-penalty", "2", "Hi"}).out, greedy);
  expect_error(run({"generate", "--model", "model", "--min-p", "2", "Hi"}), 2, "E-CONFIG-SAMPLING",
               {"min_p"});
  expect_error(run({"generate", "--model", "model", "--repetition-penalty", "0", "Hi"}), 2,
               "E-CONFIG-SAMPLING", {"repetition_penalty"});
}

TEST_F(GenerateTest, BiasesReachTheModel) {
  // A byte is a token of its own.
  const Words likely = {"--logit-bias", "97=100", "--logit-bias", "98=90"};
  EXPECT_EQ(generate(with(likely, {"Hi"})).out, "aaaaaaaaaaaaaaaa\n");
  EXPECT_EQ(generate(with(likely, {"--bad-words", "aa", "Hi"})).out, "abababababababab\n");
  EXPECT_EQ(generate(with(likely, {"--bad-words", "a", "Hi"})).out, "bbbbbbbbbbbbbbbb\n");
  const auto refused = [&](const Words& more, const char* why) {
    expect_error(run(with({"generate", "--model", "model", "Hi"}, more)), 2, "E-CONFIG-USAGE", {why});
  };
  refused({"--logit-bias", "97"}, "ID=BIAS");
  refused({"--logit-bias", "97=1", "--logit-bias", "97=2"}, "names a token twice");
  refused({"--bad-words", " "}, "not empty");
}

TEST_F(GenerateTest, PromptsFromStandardInput) {
  const std::string want = generate({"Hi", "x y"}).out;
  const std::string command = "generate --model model --max-new-tokens 16 ";
  EXPECT_EQ(fed("Hi\r\n\nx y", command + "-").out, want);
  EXPECT_EQ(fed("{\"prompt\": \"Hi\"}\n\n{\"prompt\": \"x y\"}\n", command + "--prompts -").out, want);
  const ProgramResult bad = run_command(
      {"bash", "-c", std::string("echo '{}' | '") + program_path() + "' generate --model model --prompts -"},
      {.folder = here.path()});
  expect_error(bad, 3, "E-DATA-PROMPTS", {"standard input:1"});
  expect_error(run({"generate", "--model", "model", "-"}), 2, "E-CONFIG-PROMPT", {"no prompt"});
}

TEST_F(GenerateTest, ErrorsNameThePrompt) {
  const std::string too_long(1000, 'a');
  write_text(here / "prompts.jsonl", "{\"prompt\": \"Hi\"}\n\n{\"prompt\": \"" + too_long + "\"}\n");
  const Words command = {"generate", "--model", "model", "--max-new-tokens", "4"};
  const auto asked = [&](const Words& more) {
    Words arguments = command;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  expect_error(asked({"--prompts", "prompts.jsonl"}), 4, "E-MODEL-LENGTH", {": prompts.jsonl:3: document"});
  expect_error(asked({"Hi", too_long}), 4, "E-MODEL-LENGTH", {": prompt 2: document"});
  expect_error(asked({"Hi", "\xff"}), 2, "E-CONFIG-PROMPT", {"prompt 2: ", "byte 0"});
  write_text(here / "lines", "\nHi\n" + too_long + "\n");
  const auto piped = [&](const std::string& arguments) {
    return run_command({"bash", "-c", std::string("'") + program_path() + "' " + arguments + " < lines"},
                       {.folder = here.path()});
  };
  expect_error(piped("generate --model model --max-new-tokens 4 -"), 4, "E-MODEL-LENGTH",
               {": standard input:3: document"});
  expect_error(piped("chat --model model --max-new-tokens 4"), 4, "E-MODEL-LENGTH", {"hint: /reset"});
}

// The work ends with the first text that cannot be shown.
TEST_F(GenerateTest, OutputThatNobodyTakesEndsTheWork) {
  write_text(here / "lines", "Hi\n\xff\n");
  for (const char* nowhere : {" > /dev/full", " >&-"}) {
    SCOPED_TRACE(nowhere);
    const auto shown = [&](const std::string& arguments) {
      return run_command(
          {"bash", "-c", std::string("'") + program_path() + "' " + arguments + " < lines" + nowhere},
          {.folder = here.path()});
    };
    const ProgramResult generated = shown("generate --model model --max-new-tokens 16 --stats Hi");
    expect_error(generated, 6, "E-STORAGE-OUTPUT", {"standard output"});
    EXPECT_EQ(generated.err.find("tokens/s"), std::string::npos) << generated.told();
    // The second message is not UTF-8 and would be refused, if the work went on.
    expect_error(shown("chat --model model --max-new-tokens 16"), 6, "E-STORAGE-OUTPUT", {"standard output"});
  }
}

TEST_F(GenerateTest, ChatRefusesCommandsThatItDoesNotHave) {
  const auto chat = [&](const std::string& line) {
    write_text(here / "input", line + "\n");
    return run_command(
        {"bash", "-c", std::string("'") + program_path() + "' chat --model model --max-new-tokens 4 < input"},
        {.folder = here.path()});
  };
  expect_error(chat("/exti"), 2, "E-CONFIG-COMMAND",
               {"'/exti'", "need /help, /reset or /exit", "did you mean '/exit'"});
  expect_error(chat("/help me"), 2, "E-CONFIG-COMMAND", {"'/help'"});
  EXPECT_EQ(chat("/usr/bin is a folder").exit_code, 0);
  EXPECT_EQ(chat(" /help").exit_code, 0);
}

TEST_F(GenerateTest, AnswersAsJsonLines) {
  write_text(here / "prompts.jsonl",
             "{\"prompt\": \"Hi\", \"id\": 7}\n{\"messages\": [{\"role\": \"user\", \"content\": \"Ho\"}]}\n"
             "{\"prompt\": \"Ha\", \"topic\": 1}\n");
  const Words asked = {"generate", "--model", "model", "--max-new-tokens", "5", "--prompts", "prompts.jsonl"};
  Words more = asked;
  more.insert(more.end(), {"--output", "answers.jsonl"});
  const ProgramResult result = run_well(more);
  EXPECT_EQ(result.out, "");
  std::map<int64_t, nlohmann::json> lines;
  for (const std::string& line : ProgramResult::lines(read_text(here / "answers.jsonl"))) {
    const auto answer = nlohmann::json::parse(line);
    lines[answer.at("index").get<int64_t>()] = answer;
  }
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].at("prompt"), "Hi");
  EXPECT_EQ(lines[1].at("messages").at(0).at("content"), "Ho");
  EXPECT_EQ(lines[0].at("id"), 7);
  EXPECT_EQ(lines[2].at("topic"), 1);
  std::string printed;
  for (const auto& [index, answer] : lines) {
    EXPECT_EQ(answer.size(), index == 1 ? 6u : 7u) << answer;
    const std::string reason = answer.at("finish_reason");
    EXPECT_TRUE(reason == "stop" || (reason == "length" && answer.at("completion_tokens") == 5)) << answer;
    EXPECT_GT(answer.at("prompt_tokens").get<int64_t>(), 0);
    printed += "> " +
               std::string(index == 0   ? "Hi"
                           : index == 1 ? "Ho"
                                        : "Ha") +
               "\n" + answer.at("text").get<std::string>() + "\n";
  }
  EXPECT_EQ(run_well(asked).out, printed);
}

TEST_F(GenerateTest, WhatIsFinishedIsInTheFileAsWholeLines) {
  std::string prompts;
  for (int i = 0; i < 2000; ++i) prompts += "{\"prompt\": \"p" + std::to_string(i) + "\"}\n";
  write_text(here / "prompts.jsonl", prompts);
  RunOptions options;
  options.folder = here.path();
  bool is_killed = false;
  options.while_running = [&](pid_t id) {
    if (is_killed || !std::filesystem::exists(here / "answers.jsonl") ||
        read_text(here / "answers.jsonl").empty())
      return;
    is_killed = kill(id, SIGKILL) == 0;
  };
  const ProgramResult result = tessera_program({"generate", "--model", "model", "--max-new-tokens", "64",
                                                "--prompts", "prompts.jsonl", "--output", "answers.jsonl"},
                                               options);
  EXPECT_EQ(result.signal, SIGKILL) << result.told();
  const std::string text = read_text(here / "answers.jsonl");
  ASSERT_TRUE(text.ends_with('\n'));
  for (const std::string& line : ProgramResult::lines(text))
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;
}

TEST_F(GenerateTest, QuestionsOfShareGptAndMtBench) {
  write_text(here / "chats.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n");
  write_text(here / "share.json",
             "[{\"id\": \"a\", \"conversations\": [{\"from\": \"human\", \"value\": \"Hi\"}, "
             "{\"from\": \"gpt\", \"value\": \"left out\"}]}]");
  EXPECT_EQ(generate({"--prompts", "share.json"}).out, generate({"--prompts", "chats.jsonl"}).out);
  write_text(here / "bench.jsonl",
             "{\"question_id\": 81, \"turns\": [\"Hi\", \"Ho\"]}\n{\"prompt\": \"Ha\"}\n");
  const Words asked = {"generate",  "--model",     "model",    "--max-new-tokens", "5",
                       "--prompts", "bench.jsonl", "--output", "answers.jsonl"};
  for (const Words& more : {Words{}, Words{"--overwrite"}, Words{"--overwrite", "--nproc", "2"}}) {
    run_well(with(asked, more));
    std::vector<nlohmann::json> lines;
    for (const std::string& line : ProgramResult::lines(read_text(here / "answers.jsonl")))
      lines.push_back(nlohmann::json::parse(line));
    ASSERT_EQ(lines.size(), 3u);
    const nlohmann::json& last = lines.back();
    EXPECT_EQ(last.at("question_id"), 81);
    EXPECT_EQ(last.at("index"), 0);
    ASSERT_EQ(last.at("messages").size(), 3u);
    const auto first = std::ranges::find_if(lines, [](const auto& line) { return line.at("index") == 0; });
    EXPECT_EQ(last.at("messages").at(1).at("content"), first->at("text"));
    EXPECT_EQ(last.at("messages").at(2).at("content"), "Ho");
  }
  expect_error(run(asked), 2, "E-CONFIG-OUTPUT-USED", {"replace it by --overwrite"});
}

TEST_F(GenerateTest, MessagesAsPrompts) {
  write_text(here / "chats.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n"
             "{\"messages\": [{\"role\": \"system\", \"content\": \"Be.\"}, {\"role\": \"user\", "
             "\"content\": \"Hi\"}, "
             "{\"role\": \"assistant\", \"content\": \"Ho\"}, {\"role\": \"user\", \"content\": \"He\"}]}\n");
  const std::string rendered =
      "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>"
      "\n"
      "<|im_start|>user\nHe<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(generate({"--prompts", "chats.jsonl"}).out,
            "> Hi\n" + generate({"--chat", "Hi"}).out + "> He\n" + generate({rendered}).out);
  write_text(here / "chats.jsonl", "{\"messages\": []}\n");
  expect_error(run({"generate", "--model", "model", "--prompts", "chats.jsonl"}), 3, "E-DATA-PROMPTS",
               {"chats.jsonl:1:1", "messages"});
}

TEST_F(GenerateTest, AnAdapterFindsItsBase) {
  train_well({"adapter=lora", "lora_target_linear=true", "lora_r=3"});
  const std::string want = generate({"--adapter", "out", "Hi"}).out;
  EXPECT_EQ(generate({"Hi"}, "out").out, want);
  EXPECT_NE(generate({"Hi"}).out, want);
  EXPECT_EQ(generate({"--adapter", "first=out:2", "--adapter", "out:-1", "Hi"}).out, want);
  // Other programs put the base model's configuration into the adapter's folder.
  std::filesystem::copy_file(here / "model/config.json", out("config.json"));
  EXPECT_EQ(generate({"Hi"}, "out").out, want);
  const std::string path = out("adapter_config.json");
  auto config = nlohmann::ordered_json::parse(read_text(path));
  config["base_model_name_or_path"] = "someone/elsewhere";
  write_text(path, config.dump());
  expect_error(run({"generate", "--model", "out", "Hi"}), 4, "E-MODEL-ADAPTER-BASE",
               {"someone/elsewhere", "--model BASE --adapter out"});
  EXPECT_EQ(generate({"--adapter", "out", "Hi"}).out, want);
  // If the folder also holds the base model's weights, it is a model.
  std::filesystem::copy_file(here / "model/model.safetensors", out("model.safetensors"));
  EXPECT_EQ(generate({"Hi"}, "out").out, generate({"Hi"}).out);
}

TEST_F(GenerateTest, AGgufFileAsModel) {
  TinyModel tiny;
  tiny.vocab = 259;
  write_text(here / "m.gguf", tiny_gguf(tiny));
  run_well({"convert", "m.gguf", "converted"});
  EXPECT_EQ(generate({"--chat", "Hi"}, "m.gguf").out, generate({"--chat", "Hi"}, "converted").out);
  write_text(here / "not.gguf", "something else");
  EXPECT_EQ(run({"generate", "--model", "not.gguf", "Hi"}).exit_code, 4);
  expect_error(run({"generate", "--model", "nowhere", "Hi"}), 2, "E-CONFIG-USAGE", {"nowhere"});
}

// A GGUF file is expanded as it is read: there is no place that it could be copied to.
TEST_F(GenerateTest, AGgufFileNeedsNoTemporaryPlace) {
  TinyModel tiny;
  tiny.vocab = 259;
  write_text(here / "m.gguf", tiny_gguf(tiny));
  RunOptions options;
  options.environment["TMPDIR"] = here / "tmp";
  std::filesystem::create_directories(here / "tmp");
  const ProgramResult result = run({"generate", "--model", "m.gguf", "--max-new-tokens", "4", "Hi"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.told();
  EXPECT_TRUE(std::filesystem::is_empty(std::filesystem::path(here / "tmp")));
}

TEST_F(GenerateTest, ChatKeepsTheConversation) {
  const std::string command = "chat --model model --max-new-tokens 8 --system Be.";
  const ProgramResult both = fed("Hi\nAnd now?\n/reset\nHi\n/exit\nnever seen\n", command);
  EXPECT_EQ(both.err, "");
  const std::string first = fed("Hi", command).out;
  ASSERT_EQ(both.out.substr(0, first.size()), first) << both.told();
  // Both answers are of the same length at most; the one behind /reset is the first again.
  ASSERT_GE(both.out.size(), 2 * first.size());
  EXPECT_EQ(both.out.substr(both.out.size() - first.size()), first) << both.told();
  const std::string second = both.out.substr(first.size(), both.out.size() - 2 * first.size());

  const nlohmann::ordered_json messages = {
      {{"role", "system"}, {"content", "Be."}},
      {{"role", "user"}, {"content", "Hi"}},
      {{"role", "assistant"}, {"content", first.substr(0, first.size() - 1)}},
      {{"role", "user"}, {"content", "And now?"}}};
  write_text(here / "chat.jsonl", nlohmann::ordered_json({{"messages", messages}}).dump() + "\n");
  EXPECT_EQ(
      second,
      run_well({"generate", "--model", "model", "--max-new-tokens", "8", "--prompts", "chat.jsonl"}).out);
  EXPECT_EQ(fed("", command).out, "");
}

TEST_F(GenerateTest, ChatListsItsCommandsAndJoinsLines) {
  const std::string command = "chat --model model --max-new-tokens 8";
  const ProgramResult help = fed("/help\n", command);
  EXPECT_EQ(help.out, "");
  for (const char* part : {"/help ", "/reset ", "/exit ", "backslash"})
    EXPECT_NE(help.err.find(part), std::string::npos) << help.told();
  write_text(here / "prompts.jsonl", "{\"prompt\": \"One\\n/exit\\nthree\"}\n{\"prompt\": \"cut\"}\n");
  run_well({"generate", "--model", "model", "--chat", "--max-new-tokens", "8", "--prompts", "prompts.jsonl",
            "--output", "answers.jsonl"});
  std::map<int64_t, std::string> texts;
  for (const std::string& line : ProgramResult::lines(read_text(here / "answers.jsonl"))) {
    const auto answer = nlohmann::json::parse(line);
    texts[answer.at("index").get<int64_t>()] = answer.at("text").get<std::string>() + "\n";
  }
  // The last line goes on behind the end of the input.
  EXPECT_EQ(fed("One\\\n/exit\\\nthree\n/reset\ncut\\", command).out, texts[0] + texts[1]);
}

// ---------------------------------------------------------------------------------------- SentencePiece
// models

// A model folder like those of Llama 2 and Mistral, with the tokenizer of tests/reference/data/sentencepiece.
class SentencePieceModel : public GenerateTest {
 protected:
  SentencePieceModel() {
    const std::string reference = source_folder() + "/tests/reference/data/sentencepiece/";
    document = nlohmann::ordered_json::parse(read_text(reference + "tokenizer.json"));
    const auto vectors = nlohmann::json::parse(read_text(reference + "vectors.json"));
    pieces.tokens.resize(document["model"]["vocab"].size());
    for (const auto& [token, id] : document["model"]["vocab"].items())
      pieces.tokens[id.get<size_t>()] = token;
    pieces.scores = vectors["scores"].get<std::vector<float>>();
    pieces.types = vectors["types"].get<std::vector<int32_t>>();
    tiny.vocab = static_cast<int64_t>(pieces.tokens.size());
    for (const auto& folder : vectors["folders"]) {
      if (folder["config"].contains("chat_template")) config = folder["config"];
    }
    forms = {{"llama2", vectors["variants"]["llama_legacy"]["parts"]},
             {"mistral", vectors["variants"]["first_whole"]["parts"]}};
  }

  void write_folder(const std::string& folder, const nlohmann::json& parts) {
    write_tiny_model(folder, tiny);
    nlohmann::ordered_json tokenizer = document;
    for (const auto& [key, value] : parts.items()) tokenizer[key] = value;
    tokenizer["post_processor"] = nlohmann::ordered_json::parse(
        R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}})");
    write_text(folder + "/tokenizer.json", tokenizer.dump());
    write_text(folder + "/tokenizer_config.json", config.dump());
  }

  nlohmann::ordered_json document;
  nlohmann::json config;
  GgufPieces pieces;
  TinyModel tiny;
  std::map<std::string, nlohmann::json> forms;
};

TEST_F(SentencePieceModel, TrainsAndGenerates) {
  for (const auto& [name, parts] : forms) {
    SCOPED_TRACE(name);
    write_folder(here / name, parts);
    for (const char* type : {"chat_template", "completion"}) {
      write_text(here / "texts.jsonl",
                 "{\"text\": \"A tile of a mosaic \\u4e2d\"}\n{\"text\": \" two  spaces\"}\n");
      const std::string data = std::string(type) == "completion" ? "texts.jsonl" : "chats.jsonl";
      const Words recipe = {"base_model=" + name, "datasets.0.path=" + data,
                            std::string("datasets.0.type=") + type, "max_steps=2",
                            "output_dir=" + name + "-" + type};
      train_well(recipe);
      generate({"--chat", "What is 1?"}, name + "-" + type);
      EXPECT_EQ(read_text(here / (name + "-" + type + "/tokenizer.json")),
                read_text(here / (name + "/tokenizer.json")));
    }
    Words show = {"data",
                  "show",
                  "recipe.yaml",
                  "base_model=" + name,
                  "datasets.0.path=chats.jsonl",
                  "datasets.0.type=chat_template",
                  "--rows",
                  "1",
                  "--no-color"};
    const std::string shown = run_well(show).out;
    EXPECT_NE(shown.find("A number: 0."), std::string::npos) << shown;
  }
}

TEST_F(SentencePieceModel, GgufGivesTheFoldersIds) {
  write_folder(here / "llama2", forms["llama2"]);
  write_text(here / "m.gguf", tiny_gguf(tiny, {.pieces = &pieces}));
  run_well({"convert", "m.gguf", "converted"});
  write_text(here / "lines.txt",
             "A tile of a mosaic\n  two  spaces \xf0\x9f\x98\x80 \xe4\xb8\xad\n[INST] Hi [/INST]</s> x\n");
  const auto ids = [&](const std::string& model) {
    return run_well({"debug", "tokenize", "--model", model, "--file", "lines.txt"}).out;
  };
  EXPECT_EQ(ids("converted"), ids("llama2"));
  EXPECT_EQ(logits("converted"), logits("llama2"));
  EXPECT_EQ(generate({"A tile"}, "m.gguf").out, generate({"A tile"}, "llama2").out);
  train_well({"base_model=converted", "max_steps=1", "datasets.0.path=chats.jsonl",
              "datasets.0.type=chat_template", "chat_template=mistral"});
}

}  // namespace
}  // namespace tessera::testing

// Runs every verb on a tiny model.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

#include "tests/integration/fixture.h"
#include "tests/testing/paths.h"
#include "tests/testing/tiny_gguf.h"

namespace tessera::testing {
namespace {

using VerbsTest = ProgramTest;

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return 1e30;
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

TEST_F(VerbsTest, HelpOfEveryVerb) {
  const std::vector<std::pair<Words, Words>> cases = {
      {{},
       {"train", "convert", "merge", "generate", "chat", "data", "bench", "debug", "doctor", "environment",
        "recipe", "completion"}},
      {{"train"}, {"recipe", "--nproc", "key=value"}},
      {{"convert"}, {"GGUF", "output", "--dtype", "Q4_K_M"}},
      {{"merge"}, {"adapter", "output", "--base"}},
      {{"classify"}, {"texts", "--prompts", "--field-text-pair"}},
      {{"judge"}, {"answer", "grade", "show", "agree"}},
      {{"judge", "grade"},
       {"folder", "--judge-model", "--mode", "--baseline-model", "--endpoint", "--parallel"}},
      {{"upload"}, {"folder", "org/name", "--private", "--revision"}},
      {{"generate"},
       {"--model", "--chat", "--temperature", "--top-p", "--max-new-tokens", "--prompts", "--batch-size"}},
      {{"chat"}, {"--model", "--system", "--min-p", "--repetition-penalty", "--stop", "--seed", "/reset"}},
      {{"data"}, {"show"}},
      {{"recipe"}, {"check", "init", "convert", "keys", "schema"}},
      {{"data", "show"}, {"recipe", "--rows"}},
      {{"bench"}, {"train", "tokenize", "generate"}},
      {{"bench", "tokenize"}, {"--model", "--file", "--passes", "--json"}},
      {{"bench", "generate"}, {"--batch", "--prompt-tokens", "--new-tokens", "--dtype", "--json"}},
      {{"bench", "train"}, {"--micro-batch", "--seq", "--steps", "--adapter", "--json"}},
      {{"estimate"}, {"recipe", "--nproc", "--json", "--deepspeed", "--accelerate"}},
      {{"plan"}, {"recipe", "--cluster", "--explain", "--rules", "--table", "--write", "--html", "--json"}},
      {{"simulate"},
       {"recipe", "--cluster", "--slow-rank", "--slow-network", "--failure-hours", "--timeline"}},
      {{"lr-range"}, {"recipe", "--from", "--to", "--steps", "--nproc", "--json"}},
      {{"tune"}, {"recipe", "--nproc", "--trials", "--steps", "--minutes", "--memory", "--write"}},
      {{"debug"}, {"logits", "tokenize", "schedule", "compare"}},
      {{"debug", "compare"}, {"--model", "--reference", "--tolerance"}},
      {{"models"}, {"model"}},
      {{"debug", "logits"}, {"--ids", "--out"}},
      {{"debug", "tokenize"}, {"--file"}},
      {{"debug", "schedule"},
       {"gpipe,1f1b,interleaved,zero_bubble", "--ranks", "--micro-batches", "--costs"}},
      {{"doctor"}, {"Usage"}}};
  for (auto [arguments, parts] : cases) {
    arguments.emplace_back("--help");
    const ProgramResult result = run_well(arguments);
    EXPECT_EQ(result.err, "");
    for (const char* internal : {"INT", "FLOAT", "REQUIRED", "PATH("})
      EXPECT_EQ(result.out.find(internal), std::string::npos) << internal << "\n" << result.told();
    for (const std::string& part : parts) {
      EXPECT_NE(result.out.find(part), std::string::npos) << "want " << part << "\n" << result.told();
    }
  }
}

TEST_F(VerbsTest, Version) { EXPECT_EQ(run_well({"--version"}).out, "tessera 0.1.0\n"); }

TEST_F(VerbsTest, EnvironmentIsToldEvenWithAWrongValue) {
  RunOptions options;
  options.environment["TESSERA_ISA"] = "banana";
  for (const Words& arguments : {Words{"environment"}, Words{"help", "environment"}}) {
    const ProgramResult result = run(arguments, options);
    EXPECT_EQ(result.exit_code, 0) << result.told();
    for (const char* part :
         {"TESSERA_ISA: ", "baseline, avx2, avx512 or amx", "OMP_NUM_THREADS: ", "SLURM_*"}) {
      EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.told();
    }
  }
  const ProgramResult doctor = run({"doctor"}, options);
  EXPECT_EQ(doctor.exit_code, 2) << doctor.told();
  EXPECT_NE(doctor.err.find("hint: tessera help environment"), std::string::npos) << doctor.told();
}

TEST_F(VerbsTest, DebugScheduleDrawsEveryKind) {
  EXPECT_EQ(run_well({"debug", "schedule", "1f1b", "--ranks", "2", "--micro-batches", "3"}).out,
            "rank 0 | F0 F1 .  .  B0 == F2 B1 == .  B2 ==\n"
            "rank 1 | .  F0 B0 == F1 B1 == F2 B2 == .  .\n"
            "bubble: 25.0 % of the ranks' time (12 units long)\n"
            "in flight at most: 2, 1 micro-batches, by rank\n");
  // Weights that do not train take no time.
  EXPECT_EQ(run_well({"debug", "schedule", "zero_bubble", "--ranks", "2", "--micro-batches", "2", "--costs",
                      "1,1,0"})
                .out,
            "rank 0 | F0 F1 .  B0 .  B1\n"
            "rank 1 | .  F0 B0 F1 B1 .\n"
            "bubble: 33.3 % of the ranks' time (6 units long)\n"
            "in flight at most: 2, 2 micro-batches, by rank\n");
  EXPECT_NE(run_well({"debug", "schedule", "interleaved"}).out.find("bubble: 15.8 %"), std::string::npos);
  EXPECT_NE(run_well({"debug", "schedule", "gpipe"}).out.find("8, 8, 8, 8 micro-batches"), std::string::npos);
  expect_error(run({"debug", "schedule", "1f1b", "--stages-per-rank", "2"}), 2, "E-CONFIG-SCHEDULE",
               {"got 2", "interleaved"});
}

TEST_F(VerbsTest, DoctorTellsWhatThereIs) {
  const ProgramResult result = run_well({"doctor"});
  for (const char* part : {"processor", "cores", "instruction sets", "memory", "disk", "LibTorch", "MPI",
                           "float32", "bfloat16"}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.told();
  }
}

TEST_F(VerbsTest, EstimateTellsTheMemoryOfARank) {
  write_text(here / "rows.jsonl", "{\"input_ids\": [1, 2], \"labels\": [1, 2]}\n");
  write_text(here / "memory.yaml",
             "base_model: model\ndatasets: [{path: rows.jsonl}]\nlearning_rate: 0.1\nsequence_len: 32\n");
  const ProgramResult table =
      run_well({"estimate", "memory.yaml", "pipeline_parallel_size=2", "--nproc", "2"});
  for (const char* part : {"memory of a rank, of 2, by stage", "parameters", "optimizer state", "peak"})
    EXPECT_NE(table.out.find(part), std::string::npos) << part << "\n" << table.told();
  const auto json = nlohmann::json::parse(
      ProgramResult::lines(run_well({"estimate", "memory.yaml", "--nproc", "3", "--json"}).out).back());
  EXPECT_EQ(json.at("ranks"), 3);
  EXPECT_GT(json.at("memory").at(0).at("peak_bytes").at("parameters"), 0);
  const ProgramResult known = run_well({"estimate", "--deepspeed", "--model", "model", "--nodes", "2"});
  EXPECT_NE(known.out.find("HW: Setup with 2 nodes, 1 GPU per node."), std::string::npos) << known.told();
  EXPECT_NE(run_well({"estimate", "--accelerate", "--model", "model"}).out.find("float32"),
            std::string::npos);
  const std::vector<std::pair<Words, const char*>> mistakes = {
      {{"estimate"}, "no recipe is given"},
      {{"estimate", "--deepspeed"}, "need the size of a model"},
      {{"estimate", "memory.yaml", "tensor_parallel_size=5", "--nproc", "5"}, "tensor_parallel_size"},
      {{"estimate", "none.yaml"}, "none.yaml"}};
  for (const auto& [words, part] : mistakes) {
    const ProgramResult result = run(words);
    EXPECT_EQ(result.exit_code, 2) << result.told();
    EXPECT_NE(result.err.find(part), std::string::npos) << result.told();
  }
}

TEST_F(VerbsTest, PlanFindsTheFastestWay) {
  write_text(here / "rows.jsonl", "{\"input_ids\": [1, 2], \"labels\": [1, 2]}\n");
  write_text(here / "plan.yaml",
             "base_model: model\ndatasets: [{path: rows.jsonl}]\nlearning_rate: 0.1\nsequence_len: 32\n"
             "gradient_accumulation_steps: 4\nmax_steps: 10\n");
  const ProgramResult plan =
      run_well({"plan", "plan.yaml", "--cluster", "4xH100", "--explain", "--write", "planned.yaml"});
  for (const char* part :
       {"16 sequences of 32 tokens", "choices examined", "tokens/s", "MFU", "HFU", "memory of a rank",
        "to the end (10 steps", "kWh", "terms of a step", "lines of the first plan", "dp_shard_size: "})
    EXPECT_NE(plan.out.find(part), std::string::npos) << part << "\n" << plan.told();
  // The written recipe is one for these ranks, and makes the same step.
  run_well({"estimate", "planned.yaml", "--nproc", "4"});
  write_text(here / "pair.yaml",
             "device: mine\nmemory_gib: 8\nmemory_gb_s: 20\nfp32_tflops: 0.2\nnodes: 2\n"
             "network_gb_s: 1\nprice_per_hour: 3\n");
  EXPECT_NE(run_well({"plan", "plan.yaml", "--cluster", "pair.yaml"}).out.find("cost "), std::string::npos);
  const auto json = nlohmann::json::parse(
      ProgramResult::lines(run_well({"plan", "plan.yaml", "--cluster", "2xcpu", "--json"}).out).back());
  EXPECT_GT(json.at("plans").at(0).at("tokens_per_s"), 0.0);
  EXPECT_GT(json.at("plans").at(0).at("device_bytes").at(0), 0.0);
  EXPECT_NE(run_well({"plan", "--rules"}).out.find("tensor_parallel_size within a node"), std::string::npos);
  EXPECT_NE(run_well({"plan", "--table", "zero-7.5b"}).out.find("31.4"), std::string::npos);
  run_well({"plan", "plan.yaml", "--cluster", "4xH100", "--html", "plan.html"});
  const std::string page = read_text(here / "plan.html");
  for (const char* part :
       {"made by tessera plan", "Memory of a rank", "A step of plan 1", "plans that fit", "<rect"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  write_text(here / "small.yaml", "device: T4\nmemory_gib: 0.25\ncontext_gib: 0.2499\n");
  write_text(here / "full.yaml", "device: T4\nmemory_gib: 0.25\ncontext_gib: 1\n");
  struct Mistake {
    Words words;
    int exit_code;
    const char* part;
  };
  const std::vector<Mistake> mistakes = {
      {{"plan"}, 2, "a recipe is missing"},
      {{"plan", "plan.yaml"}, 2, "--cluster is missing"},
      {{"plan", "plan.yaml", "--cluster", "8xH1"}, 2, "8xH1"},
      {{"plan", "plan.yaml", "--cluster", "8xA100", "fp8=true"}, 2, "no products in fp8"},
      {{"plan", "plan.yaml", "--cluster", "7xA100", "global_batch_size=5"},
       2,
       "deals the step's sequences evenly"},
      {{"plan", "plan.yaml", "--cluster", "small.yaml"}, 10, "no plan fits"},
      {{"plan", "plan.yaml", "--cluster", "full.yaml"}, 2, "context_gib"},
      {{"plan", "--table", "none"}, 2, "fsdp-titan"},
      {{"plan", "plan.yaml", "--cluster", "4xH100", "--html", "plan.yaml"}, 2, "plan.yaml"},
      {{"plan", "plan.yaml", "--cluster", "4xH100", "--write", "planned.yaml"}, 2, "planned.yaml"}};
  for (const auto& [words, exit_code, part] : mistakes) {
    const ProgramResult result = run(words);
    EXPECT_EQ(result.exit_code, exit_code) << result.told();
    EXPECT_NE(result.err.find(part), std::string::npos) << result.told();
  }
}

TEST_F(VerbsTest, SimulateSaysWhatHoldsAStepUp) {
  write_text(here / "rows.jsonl", "{\"input_ids\": [1, 2], \"labels\": [1, 2]}\n");
  write_text(here / "two.yaml",
             "base_model: model\ndatasets: [{path: rows.jsonl}]\nlearning_rate: 0.1\nsequence_len: 32\n"
             "gradient_accumulation_steps: 4\nmax_steps: 1000\npipeline_parallel_size: 2\n");
  const Words words = {"simulate", "two.yaml", "--cluster", "2x4xH100", "--slow-rank", "5=1.5"};
  const auto with = [&](Words more) {
    Words all = words;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const ProgramResult told =
      run_well(with({"--failure-hours", "50000", "--slow-network", "1=3", "--timeline", "step.json"}));
  for (const char* part : {"8 ranks, shards 4, pp 2", "the planner's sum says", "the slow devices cost",
                           "forward", "save_steps", "useful time"})
    EXPECT_NE(told.out.find(part), std::string::npos) << part << "\n" << told.told();
  EXPECT_FALSE(nlohmann::json::parse(read_text(here / "step.json")).at("traceEvents").empty());
  const auto json = nlohmann::json::parse(ProgramResult::lines(run_well(with({"--json"})).out).back());
  EXPECT_GT(json.at("step_s"), json.at("undisturbed_s"));
  // Two stages; in one of them, the slow rank and the others.
  EXPECT_EQ(json.at("ranks").size(), 4u);
  for (const auto& [more, part] :
       std::vector<std::pair<Words, const char*>>{{{"--slow-rank", "8=2"}, "rank 0 to 7"},
                                                  {{"--slow-rank", "1=0.5"}, "a factor of at least 1"},
                                                  {{"--slow-network", "x"}, "node 0 to 1"},
                                                  {{"pipeline_parallel_size=3"}, "pipeline_parallel_size"},
                                                  {{"--timeline", "two.yaml"}, "two.yaml"}}) {
    const ProgramResult result = run(with(more));
    EXPECT_EQ(result.exit_code, 2) << result.told();
    EXPECT_NE(result.err.find(part), std::string::npos) << result.told();
  }
}

TEST_F(VerbsTest, TuneMeasuresAndRemembers) {
  write_text(here / "rows.jsonl", "{\"input_ids\": [1, 2], \"labels\": [1, 2]}\n");
  write_text(here / "small.yaml",
             "base_model: model\ndatasets: [{path: rows.jsonl}]\nlearning_rate: 0.1\nsequence_len: 32\n"
             "gradient_accumulation_steps: 2\n");
  const Words words = {"tune", "small.yaml", "--trials",     "2",       "--steps",
                       "1",    "--memory",   "trials.jsonl", "--write", "tuned.yaml"};
  const ProgramResult first = run_well(words);
  for (const char* part : {"2 layouts of 1 ranks", "batch 1 x 2", "fastest: ", "micro_batch_size: "})
    EXPECT_NE(first.out.find(part), std::string::npos) << part << "\n" << first.told();
  EXPECT_EQ(ProgramResult::lines(read_text(here / "trials.jsonl")).size(), 2u);
  run_well({"recipe", "check", "tuned.yaml"});
  Words again = words;
  again.push_back("--overwrite");
  EXPECT_NE(run_well(again).out.find("(remembered)"), std::string::npos);
  EXPECT_EQ(ProgramResult::lines(read_text(here / "trials.jsonl")).size(), 2u);
  // The cluster must have a device for each rank.
  EXPECT_EQ(run({"tune", "small.yaml", "--nproc", "2", "--cluster", "cpu"}).exit_code, 2);
}

TEST_F(VerbsTest, ARangeTestFindsWhereTrainingFallsApart) {
  write_text(here / "rows.jsonl", "{\"input_ids\": [1, 2, 3, 4, 5, 6], \"labels\": [1, 2, 3, 4, 5, 6]}\n");
  write_text(here / "small.yaml",
             "base_model: model\ndatasets: [{path: rows.jsonl}]\nlearning_rate: 50\nsequence_len: 32\n"
             "lr_scheduler: cosine\nwarmup_steps: 3\n");
  const Words words = {"lr-range", "small.yaml", "--steps", "40", "--from", "1e-5", "--to", "100"};
  const ProgramResult told = run_well(words);
  for (const char* part : {"40 steps", "falls fastest", "falls apart", "which is too high"})
    EXPECT_NE(told.out.find(part), std::string::npos) << part << "\n" << told.told();
  const auto json = nlohmann::json::parse(run_well(with(words, {"--json"})).out);
  // A loss that is no number ends the training, and so the test.
  const auto& points = json.at("points");
  EXPECT_GT(points.size(), 25u);
  EXPECT_LE(points.size(), 40u);
  for (size_t i = 0; i < points.size(); ++i) {
    const double rate = 1e-5 * std::pow(1e7, static_cast<double>(i) / 39.0);
    EXPECT_NEAR(points.at(i).at("rate").get<double>(), rate, 1e-6 * rate);
  }
  EXPECT_LT(json.at("steepest").get<double>(), json.at("divergence").get<double>());
  expect_error(run({"lr-range", "small.yaml", "--from", "1", "--to", "0.1"}), 2, "E-CONFIG-LR-RANGE",
               {"0.1"});
  expect_error(run({"lr-range", "small.yaml", "base_model=none"}), 2, "E-CONFIG", {"none"});
}

TEST_F(VerbsTest, LogitsAreOneRowAToken) {
  for (const char* family : {"llama", "qwen2"}) {
    TinyModel tiny;
    tiny.family = family;
    write_tiny_model(here / family, tiny);
    run_well({"debug", "logits", "--model", family, "--ids", "5,0,263", "--out", "l.safetensors"});
    std::vector<int64_t> shape;
    const auto values = read_f32(here / "l.safetensors", "logits", &shape);
    EXPECT_EQ(shape, (std::vector<int64_t>{3, tiny.vocab}));
    EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }));
    // The model is causal: the first row of logits does not depend on later tokens.
    const auto alone = logits(here / family, "", "5");
    EXPECT_LT(largest_difference(alone, {values.begin(), values.begin() + tiny.vocab}), 1e-5);
  }
}

TEST_F(VerbsTest, DebugCompareNamesTheFirstTensorThatDiffers) {
  const auto logits_of_model = logits(here / "model", "", "5,0,263");
  const auto compare = [&](std::vector<int64_t> ids, std::vector<float> values, const std::string& name) {
    const auto tokens = static_cast<int64_t>(ids.size());
    io::SafetensorsWriter writer(here / "r.safetensors",
                                 {{"input_ids", DType::I64, {tokens}},
                                  {name, DType::F32, {3, static_cast<int64_t>(values.size()) / 3}}});
    writer.write("input_ids", 0, ids.data(), tokens * 8);
    writer.write(name, 0, values.data(), static_cast<int64_t>(values.size()) * 4);
    writer.commit();
    return run(
        {"debug", "compare", "--model", "model", "--reference", "r.safetensors", "--tolerance", "1e-5"});
  };
  const ProgramResult same = compare({5, 0, 263}, logits_of_model, "logits");
  EXPECT_EQ(same.exit_code, 0) << same.told();
  EXPECT_NE(same.out.find("1 tensors agree to 1e-05"), std::string::npos) << same.told();
  std::vector<float> other = logits_of_model;
  other[7] += 0.01F;
  const ProgramResult differs = compare({5, 0, 263}, other, "logits");
  EXPECT_EQ(differs.exit_code, 1) << differs.told();
  EXPECT_NE(differs.out.find("'logits' is the first that lies beyond 1e-05"), std::string::npos)
      << differs.told();
  expect_error(compare({5, 0, 263}, logits_of_model, "other"), 3, "E-DATA-REFERENCE", {"nothing to compare"});
  expect_error(compare({5}, logits_of_model, "logits"), 3, "E-DATA-REFERENCE", {"input_ids"});
  expect_error(compare({5, 0, 263}, {1, 2, 3}, "logits"), 3, "E-DATA-REFERENCE", {"'logits'", "[3, 1]"});
  // Hidden states and gradients of another model are compared in the order of the forward pass.
  const std::vector<float> hidden(3 * 24, 0.5F);
  const ProgramResult layer = compare({5, 0, 263}, hidden, "hidden_states.1");
  EXPECT_NE(layer.out.find("'hidden_states.1' is the first"), std::string::npos) << layer.told();
}

TEST_F(VerbsTest, ModelsListsFamiliesAndDescribesAFolder) {
  const std::string list = run_well({"models"}).out;
  for (const char* part : {"llama ", "qwen2 ", "gpt2", "gemma3 ", "of gemma3_text"})
    EXPECT_NE(list.find(part), std::string::npos) << part << "\n" << list;
  write_text(here / "model/config.json", [&] {
    auto config = nlohmann::json::parse(read_text(here / "model/config.json"));
    config["use_cache"] = true;
    return config.dump();
  }());
  const std::string model = run_well({"models", "model"}).out;
  for (const char* part :
       {"llama", "2 layers of 24", "vocabulary of 264", "all that the model needs", "use_cache"})
    EXPECT_NE(model.find(part), std::string::npos) << part << "\n" << model;
  expect_error(run({"models", "nowhere"}), 2, "E-CONFIG-USAGE", {"nowhere"});
}

TEST_F(VerbsTest, TokenizePrintsOneArrayALine) {
  write_text(here / "text.txt", "ab\n\n<|im_end|>c\nlast");
  EXPECT_EQ(run_well({"debug", "tokenize", "--model", "model", "--file", "text.txt"}).out,
            "[97,98]\n[]\n[258,99]\n[108,97,115,116]\n");
  const auto plain = run_well({"debug", "tokenize", "--model", "model", "--file", "text.txt", "--plain"});
  EXPECT_EQ(nlohmann::json::parse(ProgramResult::lines(plain.out).at(2)).size(), 11u) << plain.told();
}

TEST_F(VerbsTest, BenchTokenizeCountsAndDigestsTheIds) {
  write_text(here / "text.txt", "ab\n\n<|im_end|>c\nlast");
  const Words arguments = {"bench", "tokenize", "--model", "model", "--file", "text.txt", "--passes", "2"};
  Words as_json = arguments;
  as_json.emplace_back("--json");
  const auto json = nlohmann::json::parse(ProgramResult::lines(run_well(as_json).out).back());
  uint64_t digest = 14695981039346656037ULL;
  for (const uint64_t id : {97, 98, 258, 99, 108, 97, 115, 116}) digest = (digest ^ id) * 1099511628211ULL;
  EXPECT_EQ(json.at("num_ids"), 8);
  EXPECT_EQ(json.at("lines"), 3);
  EXPECT_EQ(json.at("bytes"), 17);
  EXPECT_EQ(json.at("digest").get<uint64_t>(), digest);
  for (const char* key : {"mb_per_s", "first_mb_per_s", "seconds_median"})
    EXPECT_GT(json.at(key), 0.0) << key;
  EXPECT_NE(run_well(arguments).out.find("3 lines, 17 bytes, 8 ids"), std::string::npos);
}

TEST_F(VerbsTest, OutputThatCannotBeWritten) {
  const std::string tokenize =
      std::string("'") + program_path() + "' debug tokenize --model model --file many.txt";
  std::string many;
  for (int line = 0; line < 20000; ++line) many += "some text of this line\n";
  write_text(here / "many.txt", many);
  const ProgramResult full = run_command({"bash", "-c", tokenize + " > /dev/full"}, {.folder = here.path()});
  expect_error(full, 6, "E-STORAGE-OUTPUT", {"standard output"});
  const ProgramResult left =
      run_command({"bash", "-c", tokenize + " | head -n 1; exit ${PIPESTATUS[0]}"}, {.folder = here.path()});
  EXPECT_EQ(left.exit_code, 128 + SIGPIPE) << left.told();
  EXPECT_EQ(left.err, "");
}

TEST_F(VerbsTest, GenerateIsDeterministic) {
  const Words greedy = {"generate", "--model",          "model", "--temperature",
                        "0",        "--max-new-tokens", "12",    "Hello"};
  const ProgramResult first = run_well(greedy);
  EXPECT_EQ(first.out, run_well(greedy).out);
  EXPECT_FALSE(first.out.empty());

  const auto sampled = [&](const std::string& seed) {
    return run_well({"generate", "--model", "model", "--temperature", "5", "--top-p", "0.99", "--seed", seed,
                     "--max-new-tokens", "12", "Hello"})
        .out;
  };
  EXPECT_EQ(sampled("1"), sampled("1"));
  EXPECT_NE(sampled("1"), sampled("2"));
}

TEST_F(VerbsTest, GenerateAnswersManyPromptsAsOneByOne) {
  const Words prompts = {"Hello", "The sum of 3 and 4 is", "x", "What"};
  std::string want;
  for (const std::string& prompt : prompts) {
    want += "> " + prompt + "\n" +
            run_well({"generate", "--model", "model", "--max-new-tokens", "12", "--prompt", prompt}).out;
  }
  std::ofstream(here / "prompts.jsonl") << "{\"prompt\": \"The sum of 3 and 4 is\"}\n\n{\"prompt\": \"x\"}\n"
                                           "{\"prompt\": \"What\", \"id\": 7}\n";
  for (const std::string batch : {"1", "3", "8"}) {
    EXPECT_EQ(run_well({"generate", "--model", "model", "--max-new-tokens", "12", "--batch-size", batch,
                        "--prompts", "prompts.jsonl", "--prompt", "Hello"})
                  .out,
              want)
        << "batch size " << batch;
  }
  EXPECT_EQ(run_well({"generate", "--model", "model", "--max-new-tokens", "12", "Hello", "--prompt",
                      "The sum of 3 and 4 is", "--prompt", "x", "--prompt", "What"})
                .out,
            want);
}

TEST_F(VerbsTest, GenerateNamesTheLineOfABadPrompt) {
  std::ofstream(here / "prompts.jsonl") << "{\"prompt\": \"x\"}\n{\"text\": \"y\"}\n";
  ProgramResult result = run({"generate", "--model", "model", "--prompts", "prompts.jsonl"});
  EXPECT_EQ(result.exit_code, 3) << result.told();
  EXPECT_NE(result.err.find("prompts.jsonl:2:1"), std::string::npos) << result.told();
  result = run({"generate", "--model", "model"});
  EXPECT_EQ(result.exit_code, 2) << result.told();
  EXPECT_NE(result.err.find("E-CONFIG-PROMPT"), std::string::npos) << result.told();
}

std::vector<nlohmann::json> lines_of(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST_F(VerbsTest, ClassifyTellsTheLabelsOfWords) {
  const std::string model = source_folder() + "/tests/reference/data/classifiers/token_training";
  const auto all = lines_of(run_well({"classify", model, "--prompts", model + "/eval.jsonl"}).out);
  ASSERT_EQ(all.size(), 14U);
  for (const auto& line : all) {
    EXPECT_EQ(line["predicted"].size(), line["tokens"].size());
    EXPECT_EQ(line["scores"].size(), line["tokens"].size());
  }
  const auto cut = lines_of(run_well({"classify", model, "Anna sees  Rome", "--max-length", "3"}).out);
  EXPECT_EQ(cut[0]["tokens"], nlohmann::json({"Anna", "sees", "Rome"}));
  EXPECT_TRUE(cut[0]["predicted"][0].is_string());
  EXPECT_TRUE(cut[0]["predicted"][2].is_null());
  EXPECT_NE(run_well({"evaluate", model, "--data", model + "/eval.jsonl"}).out.find("f1_strict"),
            std::string::npos);
}

// The values are those of the fill-mask pipeline of Transformers.
TEST_F(VerbsTest, ClassifyTellsTheTokensBehindMasks) {
  namespace fs = std::filesystem;
  const std::string data = source_folder() + "/tests/reference/data/masked_lm/bert", model = here / "masked";
  fs::create_directories(model);
  fs::copy(data + "/model.safetensors", model);
  std::string config = read_text(data + "/config.json");
  config.replace(config.find("BertForPreTraining"), 18, "BertForMaskedLM");
  std::ofstream(model + "/config.json") << config;
  nlohmann::json vocab, added;
  for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    const auto id = static_cast<int>(added.size());
    vocab[special] = id;
    added.push_back({{"id", id},
                     {"content", special},
                     {"special", true},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false}});
  }
  for (int id = 5; id < 31; ++id) vocab["w" + std::to_string(id)] = id;
  const auto piece = [](const char* kind, const char* id) {
    return nlohmann::json{{kind, {{"id", id}, {"type_id", 0}}}};
  };
  const auto special = [](const char* token, int id) {
    return nlohmann::json{{"id", token}, {"ids", {id}}, {"tokens", {token}}};
  };
  std::ofstream(model + "/tokenizer.json") << nlohmann::json{
      {"added_tokens", added},
      {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {piece("SpecialToken", "[CLS]"), piece("Sequence", "A"), piece("SpecialToken", "[SEP]")}},
        {"pair", {piece("Sequence", "A"), piece("Sequence", "B")}},
        {"special_tokens", {{"[CLS]", special("[CLS]", 2)}, {"[SEP]", special("[SEP]", 3)}}}}},
      {"model", {{"type", "WordLevel"}, {"vocab", vocab}, {"unk_token", "[UNK]"}}}};
  std::ofstream(model + "/tokenizer_config.json") << R"({"mask_token": "[MASK]", "pad_token": "[PAD]"})";

  const auto lines =
      lines_of(run_well({"classify", model, "w7 [MASK] w9", "w7 [MASK] w9 [MASK]", "--top-k", "2"}).out);
  ASSERT_EQ(lines.size(), 2U);
  const auto& one = lines[0]["masks"];
  ASSERT_EQ(one.size(), 1U);
  ASSERT_EQ(one[0].size(), 2U);
  EXPECT_EQ(one[0][0]["token"], 6);
  EXPECT_EQ(one[0][0]["token_str"], "w6");
  EXPECT_EQ(one[0][1]["sequence"], "w7 w16 w9");
  EXPECT_NEAR(one[0][0]["score"].get<double>(), 0.1770755648612976, 1e-5);
  EXPECT_NEAR(one[0][1]["score"].get<double>(), 0.10498913377523422, 1e-5);
  const auto& second = lines[1]["masks"][1][1];
  EXPECT_EQ(second["sequence"], "[CLS] w7 [MASK] w9 w17 [SEP]");
  EXPECT_NEAR(second["score"].get<double>(), 0.0955212414264679, 1e-5);
  EXPECT_NE(run({"classify", model, "w7"}).err.find("a text without a mask token; need the token [MASK]"),
            std::string::npos);
}

TEST_F(VerbsTest, ClassifyTellsTheLabelsOfTexts) {
  const std::string model = source_folder() + "/tests/reference/data/classifiers/training";
  const auto all = lines_of(run_well({"classify", model, "--prompts", model + "/eval.jsonl"}).out);
  ASSERT_EQ(all.size(), 22U);
  for (const auto& line : all) {
    EXPECT_TRUE(line.contains("sentence1")) << "the record's own columns";
    const double first = line["scores"]["LABEL_0"], second = line["scores"]["LABEL_1"];
    EXPECT_NEAR(first + second, 1.0, 1e-6);
    EXPECT_EQ(line["predicted"], first > second ? "LABEL_0" : "LABEL_1");
  }
  const auto alone =
      lines_of(run_well({"classify", model, "--prompts", model + "/eval.jsonl", "--batch-size", "1"}).out);
  EXPECT_NEAR(alone[3]["scores"]["LABEL_0"].get<double>(), all[3]["scores"]["LABEL_0"].get<double>(), 1e-5);
  run_well({"classify", model, "the fox jumps", "--output", here / "labels.jsonl"});
  EXPECT_NE(run_well({"evaluate", model, "--data", model + "/eval.jsonl"}).out.find("matthews_correlation"),
            std::string::npos);
  ProgramResult result = run({"classify", "model", "x"});
  EXPECT_NE(result.err.find("E-MODEL-TASK"), std::string::npos) << result.told();
  result = run({"generate", "--model", model, "x"});
  EXPECT_NE(result.err.find("E-MODEL-TASK"), std::string::npos) << result.told();
}

TEST_F(VerbsTest, GenerateChatUsesTheTemplate) {
  const auto answer = [&](const Words& more) {
    Words arguments = {"generate", "--model", "model", "--temperature", "0", "--max-new-tokens", "16"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_well(arguments).out;
  };
  const std::string rendered = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(answer({"--chat", "Hi"}), answer({rendered}));
  EXPECT_EQ(answer({"--chat", "--system", "Be.", "Hi"}),
            answer({"<|im_start|>system\nBe.<|im_end|>\n" + rendered}));
}

TEST_F(VerbsTest, DataShowMarksTrainedTokens) {
  const ProgramResult result = run_well({"data", "show", "recipe.yaml", "datasets.0.path=chats.jsonl",
                                         "datasets.0.type=chat_template", "--rows", "2", "--no-color"});
  for (const char* part : {"What is", "A number", "12"}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.told();
  }
  run_well({"data", "show", "recipe.yaml", "sample_packing=true", "sequence_len=64"});
}

TEST_F(VerbsTest, ReportShowsRuns) {
  train_well({"max_steps=3", "output_dir=first"});
  train_well({"max_steps=2", "output_dir=second", "learning_rate=0.5"});
  run_well({"report", "first", "second"});
  const std::string page = read_text(here / "report.html");
  for (const char* part : {"<title>first, second</title>", "<figcaption>Loss</figcaption>",
                           "Where the recipes differ", "<th scope=\"row\">learning_rate</th>"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  run_well({"dashboard", "first", "second", "--save", "same.html"});
  EXPECT_EQ(read_text(here / "same.html"), page);
  expect_error(run({"dashboard", "nowhere"}), 2, "E-CONFIG-REPORT", {"nowhere", "metrics.jsonl"});
  // The verb replaces its own page, but no other file.
  run_well({"report", "first"});
  EXPECT_NE(read_text(here / "report.html"), page);
  write_text(here / "mine.html", "<p>mine</p>");
  expect_error(run({"report", "first", "-o", "mine.html"}), 2, "E-CONFIG-OUTPUT-USED", {"mine.html"});
  EXPECT_EQ(read_text(here / "mine.html"), "<p>mine</p>");
  expect_error(run({"report", "model"}), 2, "E-CONFIG-REPORT", {"model", "metrics.jsonl"});
}

TEST_F(VerbsTest, BenchGenerateEndsWithOneJsonObject) {
  std::vector<nlohmann::json> results;
  const Words drawn = {"--temperature", "0.9", "--top-p", "0.95"};
  for (const Words& more : {Words{"--batch", "1"}, Words{"--batch", "3"}, with({"--batch", "1"}, drawn),
                            with({"--batch", "3"}, drawn), Words{"--batch", "3", "--dtype", "bf16"}}) {
    Words arguments = {"bench", "generate",     "--model", "model", "--prompt-tokens",
                       "9",     "--new-tokens", "6",       "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_well(arguments);
    const Words lines = ProgramResult::lines(result.out);
    ASSERT_FALSE(lines.empty()) << result.told();
    results.push_back(nlohmann::json::parse(lines.back()));
    const auto& json = results.back();
    for (const char* key : {"tokens_per_s", "prefill_s", "prefill_tokens_per_s", "total_s", "peak_rss_bytes",
                            "bytes_per_token_read", "bandwidth_gb_s"}) {
      EXPECT_GT(json.at(key).get<double>(), 0.0) << key;
    }
    EXPECT_EQ(json.at("prompt").size(), 9u);
    EXPECT_EQ(json.at("ids").size(), 6u);
  }
  EXPECT_EQ(results[0].at("ids"), results[1].at("ids")) << "the batch must not change a sequence";
  EXPECT_EQ(results[2].at("ids"), results[3].at("ids")) << "the batch must not change a sequence";
  EXPECT_NE(results[0].at("ids"), results[2].at("ids")) << "nothing is drawn";
  expect_error(run({"bench", "generate", "--model", "model", "--top-p", "2"}), 2, "E-CONFIG-SAMPLING",
               {"top_p", "2"});
}

TEST_F(VerbsTest, BenchEndsWithOneJsonObject) {
  for (const Words& more :
       {Words{}, Words{"--adapter", "lora"}, Words{"--nproc", "2"}, Words{"--dtype", "bf16"}}) {
    Words arguments = {"bench", "train", "--model", "model", "--micro-batch", "2",
                       "--seq", "16",    "--steps", "3",     "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_well(arguments);
    const Words lines = ProgramResult::lines(result.out);
    ASSERT_FALSE(lines.empty()) << result.told();
    const auto json = nlohmann::json::parse(lines.back());
    for (const char* key : {"tokens_per_s", "step_s_median", "peak_rss_bytes", "gemm_s", "sol"}) {
      EXPECT_GT(json.at(key).get<double>(), 0.0) << key;
    }
    EXPECT_NEAR(json.at("sol").get<double>(),
                json.at("gemm_s").get<double>() / json.at("step_s_median").get<double>(), 1e-9);
    ASSERT_GE(json.at("losses").size(), 3u);
    for (const auto& loss : json.at("losses")) EXPECT_GT(loss.get<double>(), 0.0);
  }
  EXPECT_NE(
      run_well({"bench", "train", "--model", "model", "--seq", "16", "--steps", "1"}).out.find("tokens/s"),
      std::string::npos);
}

TEST_F(VerbsTest, BenchTrainsOnRowsAsTrainingDealsThem) {
  std::ofstream file(here / "ids.jsonl");
  for (int row = 0; row < 24; ++row) {
    const std::vector<int> ids = {3 + row, 4, 5, 6 + row, 7};
    file << nlohmann::json{{"input_ids", ids}, {"attention_mask", {1, 1, 1, 1, 1}}, {"labels", ids}} << "\n";
  }
  file.close();
  const auto bench = [&](const Words& more) {
    Words arguments = {"bench",   "train",     "--model",       "model",
                       "--data",  "ids.jsonl", "--seq",         "16",
                       "--steps", "1",         "--micro-batch", "2",
                       "--json",  "--device",  "cpu",           "shuffle_merged_datasets=false"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return nlohmann::json::parse(ProgramResult::lines(run_well(arguments).out).back());
  };
  const Words packed = {"sample_packing=true", "sample_packing_sequentially=true"};
  Words accumulated = packed, by_ranks = packed;
  accumulated.emplace_back("gradient_accumulation_steps=2");
  by_ranks.insert(by_ranks.end(), {"--nproc", "2"});
  EXPECT_EQ(bench({}).at("tokens_per_step"), 2 * 5);
  EXPECT_EQ(bench(packed).at("tokens_per_step"), 2 * 15) << "three documents a sequence";
  const auto one = bench(accumulated), two = bench(by_ranks);
  EXPECT_EQ(one.at("tokens_per_step"), 4 * 15);
  EXPECT_EQ(two.at("tokens_per_step"), 4 * 15);
  for (size_t step = 0; step < 2; ++step) {
    EXPECT_NEAR(one.at("losses")[step].get<double>(), two.at("losses")[step].get<double>(), 1e-4);
  }
  EXPECT_NE(one.at("losses")[0], bench(packed).at("losses")[0]) << "a step of twice as many rows";
  const ProgramResult streamed =
      run({"bench", "train", "--model", "model", "--data", "ids.jsonl", "streaming=true", "max_steps=1"});
  EXPECT_EQ(streamed.exit_code, 2) << streamed.told();
  EXPECT_NE(streamed.err.find("E-CONFIG-STREAMING"), std::string::npos) << streamed.told();
}

TEST_F(VerbsTest, MergedAdapterEqualsAdapterOnBase) {
  train_well({"adapter=lora", "lora_target_linear=true", "lora_r=3"});
  run_well({"merge", "out", "merged", "--base", "model"});
  const auto with_adapter = logits(model(), out()), merged = logits(here / "merged");
  EXPECT_LT(largest_difference(with_adapter, merged), 1e-4);
  EXPECT_GT(largest_difference(logits(model()), merged), 1e-3);
  // The adapter names its base, so --base may be left out.
  run_well({"merge", "out", "merged-by-name"});
  EXPECT_EQ(merged, logits(here / "merged-by-name"));
  run_well({"generate", "--model", "merged", "--max-new-tokens", "2", "Hi"});
}

// Names of models in the hub's cache are accepted wherever a model's folder is.
TEST_F(VerbsTest, NamesOfTheHub) {
  train_well({"adapter=lora", "lora_target_linear=true", "lora_r=3"});
  auto adapter = nlohmann::json::parse(read_text(out("adapter_config.json")));
  adapter["base_model_name_or_path"] = "org/tiny";
  write_text(out("adapter_config.json"), adapter.dump());
  const std::string cached = here / "hub/models--org--tiny/snapshots/abc";
  std::filesystem::create_directories(here / "hub/models--org--tiny/refs");
  std::filesystem::create_directories(std::filesystem::path(cached).parent_path());
  write_text(here / "hub/models--org--tiny/refs/main", "abc");
  std::filesystem::rename(model(), cached);
  const RunOptions options{.environment = {{"HF_HUB_CACHE", here / "hub"}}};
  write_text(here / "hub.txt", "one line\n");
  const Words verbs[] = {{"generate", "--model", "org/tiny", "--max-new-tokens", "2", "Hi"},
                         {"generate", "--model", "out", "--max-new-tokens", "2", "Hi"},
                         {"bench", "train", "--model", "org/tiny", "--steps", "1", "--seq", "16"},
                         {"bench", "generate", "--model", "org/tiny", "--new-tokens", "2"},
                         {"bench", "tokenize", "--model", "org/tiny", "--file", "hub.txt"},
                         {"debug", "tokenize", "--model", "org/tiny", "--file", "hub.txt"},
                         {"debug", "logits", "--model", "org/tiny", "--ids", "1,2", "--out", "l"},
                         {"merge", "out", "merged"},
                         {"merge", "out", "merged-by-name", "--base", "org/tiny"}};
  for (const Words& verb : verbs) {
    const ProgramResult result = run(verb, options);
    EXPECT_EQ(result.exit_code, 0) << result.told();
  }
  EXPECT_EQ(logits(here / "merged"), logits(here / "merged-by-name"));
  const ProgramResult unknown = run({"generate", "--model", "org/other", "Hi"}, options);
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.err.find("hf download org/other"), std::string::npos) << unknown.told();
}

// ------------------------------------------------------------------------------------------------ convert

TEST_F(VerbsTest, ConvertWritesNothingThatDoesNotLoad) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  TinyModel tiny;
  tiny.vocab = 259;
  const auto refused = [&](const GgufSettings& settings, const std::string& code, const Words& parts) {
    write_text(here / "m.gguf", tiny_gguf(tiny, settings));
    expect_error(run({"convert", "m.gguf", "converted"}), 4, code, parts);
    EXPECT_FALSE(std::filesystem::exists(here / "converted"));
    EXPECT_FALSE(std::filesystem::exists(here / "converted.tessera-partial"));
  };
  refused({.epsilon = nan}, "E-MODEL-CONFIG", {"m.gguf", "layer_norm_rms_epsilon", "nan"});
  refused({.epsilon = infinity}, "E-MODEL-CONFIG", {"layer_norm_rms_epsilon"});
  refused({.theta = nan}, "E-MODEL-CONFIG", {"rope.freq_base"});
  refused({.theta = -infinity}, "E-MODEL-CONFIG", {"rope.freq_base"});
  refused({.scaling = "linear", .factor = nan}, "E-MODEL-CONFIG", {"rope.scaling.factor"});
  refused({.scaling = "linear", .factor = 0.0f}, "E-MODEL-CONFIG", {"rope.scaling.factor"});
  refused({.kv_heads = 3}, "E-MODEL-GGUF-RESULT", {"m.gguf", "config.json", "num_key_value_heads"});
  refused({.kv_heads = 4}, "E-MODEL-GGUF-RESULT", {"m.gguf", "k_proj"});
  refused({.hidden = 48}, "E-MODEL", {"m.gguf"});
  refused({.intermediate = 41}, "E-MODEL-GGUF-RESULT", {"m.gguf", "mlp."});

  write_text(here / "m.gguf", tiny_gguf(tiny));
  run_well({"convert", "m.gguf", "converted"});
  expect_error(run({"convert", "m.gguf", "converted"}), 2, "E-CONFIG-OUTPUT-USED", {"--overwrite"});
  run_well({"convert", "m.gguf", "converted", "--overwrite"});
  expect_error(run({"convert", "m.gguf", ".", "--overwrite"}), 2, "E-CONFIG-OUTPUT-INPUT", {"GGUF file"});
}

TEST_F(VerbsTest, ConvertedGgufEqualsTheFolderItStandsFor) {
  for (const char* family : {"llama", "qwen2"}) {
    SCOPED_TRACE(family);
    TinyModel tiny;
    tiny.family = family;
    tiny.vocab = 259;
    const std::string folder = here / (std::string(family) + "-plain"),
                      converted = here / (std::string(family) + "-converted");
    write_tiny_model(folder, tiny);
    write_text(here / "m.gguf", tiny_gguf(tiny));
    run_well({"convert", "m.gguf", converted});
    EXPECT_EQ(logits(converted), logits(folder));
    const auto ids = run_well({"debug", "tokenize", "--model", converted, "--file", "rows.jsonl"}).out;
    EXPECT_EQ(ids, run_well({"debug", "tokenize", "--model", folder, "--file", "rows.jsonl"}).out);
    run_well({"generate", "--model", converted, "--chat", "--max-new-tokens", "3", "Hi"});
    train_well({"base_model=" + converted, "max_steps=1"});

    const std::string narrow = here / (std::string(family) + "-bf16");
    run_well({"convert", "m.gguf", narrow, "--dtype", "bf16"});
    EXPECT_LT(largest_difference(logits(narrow), logits(folder)), 0.2);
    EXPECT_GT(largest_difference(logits(narrow), logits(folder)), 0.0);
  }
}

TEST_F(VerbsTest, AFolderIsConvertedToAnotherTypeAndToGguf) {
  run_well({"convert", "model", "narrow", "--dtype", "bf16"});
  EXPECT_LT(largest_difference(logits("narrow"), logits("model")), 0.2);
  run_well({"convert", "model", "files/m.gguf"});
  EXPECT_EQ(logits("files/m.gguf"), logits("model"));
  const Words tokenize = {"debug", "tokenize", "--file", "rows.jsonl", "--model"};
  EXPECT_EQ(run_well(with(tokenize, {"files/m.gguf"})).out, run_well(with(tokenize, {"model"})).out);
  const std::string before = read_text(here / "files/m.gguf");
  expect_error(run({"convert", "narrow", "files/m.gguf"}), 2, "E-CONFIG-OUTPUT-USED", {"--overwrite"});
  expect_error(run({"convert", "files/m.gguf", "files/m.gguf", "--overwrite"}), 2, "E-CONFIG-OUTPUT-INPUT",
               {});
  expect_error(run({"convert", "model", "model"}), 2, "E-CONFIG-CONVERT-DTYPE", {".gguf"});
  expect_error(run({"convert", "model", "other", "--dtype", "Q8_0"}), 2, "E-CONFIG-CONVERT-DTYPE", {".gguf"});
  expect_error(run({"convert", "model", "model", "--dtype", "bf16", "--overwrite"}), 2,
               "E-CONFIG-OUTPUT-INPUT", {"the model"});
  EXPECT_EQ(read_text(here / "files/m.gguf"), before);
  run_well({"convert", "narrow", "files/m.gguf", "--overwrite"});
  EXPECT_NE(read_text(here / "files/m.gguf"), before);
  run_well({"convert", "model", "q.gguf", "--dtype", "Q4_K_M"});
  EXPECT_EQ(run({"convert", "model", "q.gguf", "--dtype", "Q9"}).exit_code, 2);
  train_well({"max_steps=1", "save_steps=1", "adapter=lora", "lora_target_linear=true", "output_dir=tuned"});
  expect_error(run({"convert", "tuned", "m.gguf"}), 4, "E-MODEL-ADAPTER-CONVERT", {"tessera merge tuned"});
  expect_error(run({"convert", "tuned/checkpoint-1", "m.gguf"}), 2, "E-CONFIG-CONVERT-INPUT",
               {"tessera convert tuned/checkpoint-1"});
  run_well({"merge", "tuned", "merged", "--dtype", "bf16"});
  EXPECT_EQ(nlohmann::json::parse(read_text(here / "merged/config.json")).at("dtype"), "bfloat16");
}

TEST_F(VerbsTest, TrainingTakesAGgufFileAsTheFolderItStandsFor) {
  TinyModel tiny;
  tiny.vocab = 259;
  write_text(here / "m.gguf", tiny_gguf(tiny));
  run_well({"convert", "m.gguf", "converted"});
  const Words chats = {"datasets.0.path=chats.jsonl", "datasets.0.type=chat_template", "max_steps=2"};
  const Words lora = with(chats, {"adapter=lora", "lora_target_linear=true", "lora_r=2"});
  for (const Words& keys : {chats, lora, with(chats, {"--nproc", "2"})}) {
    SCOPED_TRACE(keys.back());
    for (const char* base : {"m.gguf", "converted"})
      train_well(with(keys, {std::string("base_model=") + base, std::string("output_dir=of-") + base}));
    int64_t num_files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(here / "of-converted")) {
      const std::string name = entry.path().filename().string();
      // These hold times, or the base's name.
      if (name.ends_with(".jsonl") || name == "recipe.yaml" || name == "adapter_config.json") continue;
      EXPECT_EQ(read_text(here / ("of-m.gguf/" + name)), read_text(entry.path().string())) << name;
      ++num_files;
    }
    EXPECT_GE(num_files, 3);
    EXPECT_EQ(losses("of-m.gguf"), losses("of-converted"));
  }
  train_well(with(lora, {"base_model=m.gguf"}));
  EXPECT_EQ(logits("m.gguf", "out"), logits("converted", "out"));
  const Words tokenize = {"debug", "tokenize", "--file", "rows.jsonl", "--model"};
  EXPECT_EQ(run_well(with(tokenize, {"m.gguf"})).out, run_well(with(tokenize, {"converted"})).out);
  expect_error(run({"merge", "out", "merged"}), 4, "E-MODEL-ADAPTER-BASE", {"m.gguf", "tessera convert"});
  run_well({"merge", "out", "merged", "--base", "converted"});
  // The adapter names its base.
  run_well({"generate", "--model", "out", "--chat", "--max-new-tokens", "3", "Hi"});
  // A prepared row belongs to the tokenizer of the file.
  run_well({"data", "show", "recipe.yaml", "base_model=m.gguf", "datasets.0.path=chats.jsonl",
            "datasets.0.type=chat_template"});
  run_well({"recipe", "check", "recipe.yaml", "base_model=m.gguf", "output_dir=other"});
  write_text(here / "not.gguf", "something else");
  expect_error(train({"base_model=not.gguf"}), 4, "E-MODEL", {"not.gguf"});
  expect_error(train({"lora_model_dir=m.gguf", "adapter=lora", "lora_target_linear=true"}), 2,
               "E-CONFIG-NOT-A-FOLDER", {"lora_model_dir"});
}

}  // namespace
}  // namespace tessera::testing

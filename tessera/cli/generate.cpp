// The verb `tessera generate`.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tessera/cli/answer_output.h"
#include "tessera/cli/answering.h"
#include "tessera/cli/draft_option.h"
#include "tessera/cli/verbs.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/core/utf8.h"
#include "tessera/generation/load_for_inference.h"
#include "tessera/generation/prompts.h"
#include "tessera/io/file.h"
#include "tessera/io/json_file.h"
#include "tessera/io/output_file.h"
#include "tessera/text/constraint/constraint.h"
#include "tessera/text/select_chat_template.h"

namespace tessera::cli {
namespace {

using generation::Prompt;

struct Options : AnsweringOptions {
  std::string prompts_file, output_file;
  std::vector<std::string> prompts, more_prompts;
  std::string schema_file, regex, grammar_file;
  std::vector<std::string> choices;
  int64_t batch_size = 8, prefill_tokens = 1024;
  bool is_chat = false, shows_stats = false, overwrite = false;
};

std::vector<Prompt> gather_prompts(const Options& options) {
  std::vector<Prompt> prompts;
  const auto append = [&](std::vector<Prompt> more) {
    prompts.insert(prompts.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  for (const std::string& text : options.prompts) {
    append(text == "-" ? generation::read_prompt_lines() : std::vector<Prompt>{{.text = text}});
  }
  for (const std::string& text : options.more_prompts) prompts.push_back({.text = text});
  if (!options.prompts_file.empty()) append(generation::read_prompt_file(options.prompts_file));
  if (prompts.empty()) {
    throw Error(ErrorKind::Config, "PROMPT", "there is no prompt")
        .need("a prompt, --prompt TEXT, --prompts FILE, or - for the lines of standard input");
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    prompts[i].index = static_cast<int64_t>(i);
    if (prompts[i].place.empty() && prompts.size() > 1) prompts[i].place = "prompt " + std::to_string(i + 1);
    const int64_t bad = find_invalid_utf8(prompts[i].text);
    if (bad < 0) continue;
    Error error(ErrorKind::Config, "PROMPT", "the prompt is not UTF-8 at byte " + std::to_string(bad));
    throw error.in(prompts[i].place);
  }
  return prompts;
}

nlohmann::ordered_json to_json(const std::vector<Prompt>& prompts) {
  auto json = nlohmann::ordered_json::array();
  for (const Prompt& prompt : prompts)
    json.push_back(
        {prompt.text, prompt.messages, prompt.tools, prompt.place, prompt.later_turns, prompt.index});
  return json;
}

// Returns the prompts of the first rank on all ranks. Collective.
std::vector<Prompt> shared_prompts(std::vector<Prompt> prompts, comm::Communicator& world) {
  if (world.size() == 1) return prompts;
  const std::string told =
      world.rank() > 0
          ? ""
          : to_json(prompts).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  const auto json = nlohmann::ordered_json::parse(world.all_gather_string(told)[0]);
  if (world.rank() == 0) return prompts;
  for (const auto& prompt : json)
    prompts.push_back({prompt[0], prompt[1], prompt[2], prompt[3], nullptr, prompt[4], prompt[5]});
  return prompts;
}

// Returns the prompts of the first rank, which owns standard input, on all ranks, and gives all ranks its
// seed. Collective.
std::vector<Prompt> prompts_of_first(Options& options, comm::Communicator& world) {
  std::vector<Prompt> prompts;
  if (world.rank() == 0) {
    prompts = gather_prompts(options);
    settle_sampling(options);
  }
  if (world.size() > 1) {
    const std::string seed = std::to_string(options.generate.sampling.seed);
    const nlohmann::json told = nlohmann::json::parse(world.all_gather_string(seed)[0]);
    options.generate.sampling.seed = told;
  }
  return shared_prompts(std::move(prompts), world);
}

// Answers the prompts, and then the later turns of those that have some, as often as there are any.
// Collective.
generation::Work answer_all(std::vector<Prompt> prompts, const generation::PromptEncoder& encoder,
                            const Options& options, generation::Generator& generator,
                            const generation::InferenceRank& rank, AnswerOutput* output) {
  generation::Work all;
  while (!prompts.empty()) {
    if (output != nullptr) output->ask(prompts);
    const generation::Work work = generation::answer_prompts(prompts, encoder, options, generator,
                                                             {rank.mesh(), prompts.size(), output});
    all.times = work.times;
    all.new_tokens += work.new_tokens;
    all.seconds += work.seconds;
    prompts = shared_prompts(output != nullptr ? output->next_turns() : std::vector<Prompt>(), rank.world());
  }
  return all;
}

void log_stats(const generation::Work& work, const generation::GeneratorCounts& counts) {
  const auto& [times, new_tokens, seconds] = work;
  const auto rate = [](int64_t tokens, double s) { return s > 0.0 ? static_cast<double>(tokens) / s : 0.0; };
  char text[256];
  std::snprintf(text, sizeof text,
                "%lld prompt + %lld new tokens in %.2f s (%.1f tokens/s); prefill %.1f, decode %.1f tokens/s",
                static_cast<long long>(times.prefill_tokens), static_cast<long long>(new_tokens), seconds,
                rate(new_tokens, seconds), rate(times.prefill_tokens, times.prefill_s),
                rate(times.decode_tokens, times.decode_s));
  log::info(text);
  if (counts.drafts > 0) {
    log::info(std::to_string(counts.accepted_tokens) + " of " + std::to_string(counts.drafted_tokens) +
              " speculated tokens were right, in " + std::to_string(counts.drafts) + " drafts");
  }
}

// Answers are made anew each time, so a file of earlier ones is not replaced unasked.
void check_output(Options& options) {
  if (options.output_file.empty()) return;
  io::check_output_file({.path = options.output_file,
                         .named_by = "--output",
                         .inputs = {{"the prompts", options.prompts_file},
                                    {"the model", options.model},
                                    {"the adapter", options.adapters.folder()}},
                         .overwrites = options.overwrite});
}

// Returns what answers have to match, if the options say so. Throws Error for one that is not valid.
std::optional<text::ConstraintSource> read_answer_constraint(const Options& options) {
  using Kind = text::ConstraintSource::Kind;
  constexpr int64_t kMostBytes = int64_t{8} << 20;
  std::optional<text::ConstraintSource> source;
  if (!options.schema_file.empty() + !options.regex.empty() + !options.choices.empty() +
          !options.grammar_file.empty() >
      1) {
    throw Error(ErrorKind::Config, "USAGE",
                "answers have one constraint: --json-schema, --regex, --choice or --grammar");
  }
  if (!options.schema_file.empty()) {
    // Members keep their order, which nlohmann::json of the strict parser would not.
    const std::string text =
        io::read_json_text(options.schema_file, ErrorKind::Config, {.max_bytes = kMostBytes});
    io::parse_json(text, options.schema_file, ErrorKind::Config);
    source = {Kind::JsonSchema, nlohmann::ordered_json::parse(text)};
  }
  if (!options.regex.empty()) source = {Kind::Regex, options.regex};
  if (!options.choices.empty()) source = {Kind::Choice, options.choices};
  if (!options.grammar_file.empty())
    source = {Kind::Grammar, io::read_file(options.grammar_file, kMostBytes)};
  if (source) text::read_constraint(*source);
  return source;
}

int run_generate(Options options, const CommandLine& line) {
  const at::TensorOptions compute = options.compute.resolved();
  check_output(options);
  generation::check_cache_type(options.cache_type, compute.device());
  check_draft_option(options.speculate_tokens, options.prefill_tokens, options.ranks.pipeline_parallel);
  const auto constraint = read_answer_constraint(options);
  if (const auto code = start_ranks(options.ranks, line)) return *code;
  const generation::InferenceRank rank = join_ranks(options.ranks, compute.device());
  const std::vector<Prompt> prompts = prompts_of_first(options, rank.world());
  const bool any_chat =
      options.is_chat || std::any_of(prompts.begin(), prompts.end(),
                                     [](const Prompt& prompt) { return !prompt.messages.is_null(); });
  if (!any_chat && (!options.system.empty() || !options.chat_template.empty())) {
    throw Error(ErrorKind::Config, "USAGE",
                std::string(options.system.empty() ? "--chat-template" : "--system") +
                    " applies to chats, but no prompt is a chat")
        .hint("add --chat, or give prompts with \"messages\"");
  }
  std::optional<AnswerOutput> output;
  if (rank.is_first() && !options.output_file.empty()) output.emplace(options.output_file);
  const generation::ModelSource source(options.model, options.adapters.folder());
  generation::PromptEncoder encoder{source.tokenizer(), nullptr, options.system, options.is_chat};
  if (any_chat)
    encoder.chat_template = text::select_chat_template(options.chat_template, "", "", encoder.tokenizer);
  settle_biases(options.biases, encoder.tokenizer, options.generate.biases);
  const auto model = source.load(compute, rank.mesh());
  options.generate.stop_ids = source.stop_ids(*model);
  if (constraint) {
    text::ConstraintMaker maker(encoder.tokenizer, model->config().vocab_size);
    options.generate.constraint = maker.make(*constraint);
  }
  generation::Generator generator(*model, {.max_batch = options.batch_size,
                                           .max_prefill_tokens = options.prefill_tokens,
                                           .max_draft_tokens = options.speculate_tokens,
                                           .cache_type = options.cache_type});
  if (rank.is_first()) tell_of_drafts(options.speculate_tokens, *model);
  if (rank.is_first() && !output) output.emplace("");
  const generation::Work work =
      answer_all(prompts, encoder, options, generator, rank, output ? &*output : nullptr);
  if (rank.is_first() && options.shows_stats) log_stats(work, generator.counts());
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, CommandLine& line) {
  auto options = std::make_shared<Options>();
  options->ranks.has_many_prompts = true;
  CLI::App* verb = app.add_subcommand("generate", "Generate text from prompts, or answers of a chat model");
  add_answering_options(*verb, line, *options);
  verb->add_option(
      "prompt", options->prompts,
      "One or more texts to continue or questions to answer; - reads one from every line of standard input");
  // The option takes one value each time, so that it does not take the prompts behind it.
  verb->add_option("--prompt", options->more_prompts, "A prompt, given as an option; repeatable")
      ->allow_extra_args(false);
  verb->add_option("--prompts", options->prompts_file,
                   "A file of JSON lines, or a JSON array, of objects with \"prompt\", \"messages\", "
                   "\"conversations\" (ShareGPT) or \"turns\" (MT-bench); - reads standard input")
      ->check(CLI::ExistingPath | CLI::IsMember({"-"}));
  verb->add_option("--json-schema", options->schema_file,
                   "Answer with JSON that the schema in this file accepts")
      ->check(CLI::ExistingFile);
  verb->add_option("--regex", options->regex, "Answer with text that this regular expression matches");
  verb->add_option("--choice", options->choices, "Answer with one of these texts; repeatable")
      ->allow_extra_args(false);
  verb->add_option("--grammar", options->grammar_file,
                   "Answer with text of the grammar in this file, in the notation of llama.cpp (GBNF)")
      ->check(CLI::ExistingFile);
  verb->add_option("--output", options->output_file,
                   "Write the answers to this new file of JSON lines instead of printing them");
  verb->add_flag("--overwrite", options->overwrite, kOverwriteHelp);
  verb->add_option("--batch-size", options->batch_size, "Prompts to process at once")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--prefill-tokens", options->prefill_tokens,
                   "Read prompts together, up to this many tokens at a time; 1 = read each prompt alone, "
                   "which makes an answer bit-identical in any batch")
      ->check(CLI::Range(1, 1 << 20));
  verb->add_flag("--chat", options->is_chat, "Treat each prompt as a user's message in the chat template");
  verb->add_flag("--stats", options->shows_stats, "Print tokens/s on standard error");
  line.set_action(*verb, [options, &line] { return run_generate(*options, line); });
}

}  // namespace tessera::cli

// The verb `tessera generate`.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tessera/cli/answer_output.h"
#include "tessera/cli/answering.h"
#include "tessera/cli/model_source.h"
#include "tessera/cli/prompts.h"
#include "tessera/cli/verbs.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"
#include "tessera/core/utf8.h"
#include "tessera/text/select_chat_template.h"

namespace tessera::cli {
namespace {

struct Options : AnsweringOptions {
  std::string prompts_file, output_file;
  std::vector<std::string> prompts, more_prompts;
  int64_t batch_size = 8, prefill_tokens = 1024;
  bool is_chat = false, shows_stats = false;
};

struct Work {
  models::GenerationTimes times;
  int64_t new_tokens = 0;
};

// Shares the prompts among the copies of the model that the ranks hold. Each copy answers its part as one
// process would, and from time to time the first rank gets the answers that are finished.
class Copies {
 public:
  Copies(const InferenceRank& rank, size_t num_prompts)
      : world_(rank.world()),
        count_(static_cast<size_t>(rank.mesh().size(parallel::kAxisDp))),
        number_(static_cast<size_t>(rank.mesh().coordinate(parallel::kAxisDp))),
        tells_(rank.mesh().coordinate(parallel::kAxisTp) == 0 &&
               rank.mesh().coordinate(parallel::kAxisPp) == 0),
        texts_(num_prompts) {}

  // Returns whether this rank's copy answers the prompt.
  bool answers(size_t index) const { return index % count_ == number_; }
  void add(size_t index, const std::string& text) {
    if (tells_) texts_[index] += text;
  }
  void finish(size_t index, const AnswerEnd& end) {
    if (tells_) finished_.push_back({index, texts_[index], end.reason, end.prompt_tokens, end.new_tokens});
    texts_[index] = {};
  }

  // Call it after every step of the generator. Returns whether any copy goes on; `own_goes_on` and `own` are
  // the state and the work so far of this rank's copy. `output`, of the first rank, gets the answers of the
  // other copies. Collective over all ranks.
  bool go_on(bool own_goes_on, const Work& own, AnswerOutput* output) {
    work_ = own;
    if (count_ == 1) return own_goes_on;
    if (++num_steps_ % kStepsBetween != 0) return true;
    std::string told;
    if (tells_) {
      const models::GenerationTimes& times = own.times;
      nlohmann::json::to_cbor({{"goes_on", own_goes_on},
                               {"finished", std::exchange(finished_, nlohmann::json::array())},
                               {"tokens", {own.new_tokens, times.prefill_tokens, times.decode_tokens}},
                               {"seconds", {times.prefill_s, times.decode_s}}},
                              told);
    }
    work_ = {};
    bool any_goes_on = false;
    for (const std::string& text : world_.all_gather_string(told)) {
      if (text.empty()) continue;
      const nlohmann::json copy = nlohmann::json::from_cbor(text);
      any_goes_on = any_goes_on || copy["goes_on"].get<bool>();
      work_.new_tokens += copy["tokens"][0].get<int64_t>();
      work_.times.join({copy["seconds"][0], copy["seconds"][1], copy["tokens"][1], copy["tokens"][2]});
      if (output == nullptr) continue;
      for (const nlohmann::json& answer : copy["finished"]) {
        const auto index = answer[0].get<size_t>();
        output->add(index, answer[1].get<std::string>());
        output->finish(index,
                       {answer[2].get<std::string>(), answer[3].get<int64_t>(), answer[4].get<int64_t>()});
      }
    }
    return any_goes_on;
  }
  // Returns the work of all copies, with the longest times.
  const Work& work() const { return work_; }

 private:
  static constexpr int64_t kStepsBetween = 16;

  comm::Communicator& world_;
  const size_t count_, number_;
  const bool tells_;  // this rank speaks for its copy
  std::vector<std::string> texts_;
  nlohmann::json finished_ = nlohmann::json::array();
  int64_t num_steps_ = 0;
  Work work_;
};

std::vector<Prompt> gather_prompts(const Options& options) {
  std::vector<Prompt> prompts;
  const auto append = [&](std::vector<Prompt> more) {
    prompts.insert(prompts.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  for (const std::string& text : options.prompts) {
    append(text == "-" ? read_prompt_lines() : std::vector<Prompt>{{text, nullptr, nullptr, ""}});
  }
  for (const std::string& text : options.more_prompts) prompts.push_back({text, nullptr, nullptr, ""});
  if (!options.prompts_file.empty()) append(read_prompt_file(options.prompts_file));
  if (prompts.empty()) {
    throw Error(ErrorKind::Config, "PROMPT", "there is no prompt")
        .need("a prompt, --prompt TEXT, a line of --prompts FILE, or - for the lines of standard input");
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].place.empty() && prompts.size() > 1) prompts[i].place = "prompt " + std::to_string(i + 1);
    const int64_t bad = find_invalid_utf8(prompts[i].text);
    if (bad < 0) continue;
    Error error(ErrorKind::Config, "PROMPT", "the prompt is not UTF-8 at byte " + std::to_string(bad));
    throw error.in(prompts[i].place);
  }
  return prompts;
}

// Returns the prompts of the first rank, which owns standard input, on all ranks, and gives all ranks its
// seed. Collective.
std::vector<Prompt> prompts_of_first(Options& options, comm::Communicator& world) {
  std::vector<Prompt> prompts;
  std::string told;
  if (world.rank() == 0) {
    prompts = gather_prompts(options);
    settle_sampling(options);
    if (world.size() == 1) return prompts;
    nlohmann::ordered_json json = {{"seed", options.generate.sampling.seed}, {"prompts", nullptr}};
    for (const Prompt& prompt : prompts)
      json["prompts"].push_back({prompt.text, prompt.messages, prompt.tools, prompt.place});
    told = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
  const auto json = nlohmann::ordered_json::parse(world.all_gather_string(told)[0]);
  if (world.rank() == 0) return prompts;
  options.generate.sampling.seed = json["seed"];
  for (const auto& prompt : json["prompts"]) prompts.push_back({prompt[0], prompt[1], prompt[2], prompt[3]});
  return prompts;
}

// `chat_template` may be null if no prompt is a conversation.
std::vector<int64_t> encode_prompt(const Options& options, const text::Tokenizer& tokenizer,
                                   const text::ChatTemplate* chat_template, const Prompt& prompt) {
  if (!options.is_chat && prompt.messages.is_null()) {
    const auto ids = tokenizer.encode(prompt.text, {.parse_special = true, .add_special_tokens = true});
    return {ids.begin(), ids.end()};
  }
  auto messages = nlohmann::ordered_json::array();
  const bool has_system = !prompt.messages.is_null() && prompt.messages[0]["role"] == "system";
  if (!options.system.empty() && !has_system) messages.push_back(message("system", options.system));
  if (prompt.messages.is_null()) messages.push_back(message("user", prompt.text));
  for (const nlohmann::ordered_json& given : prompt.messages) messages.push_back(given);
  return encode_messages(tokenizer, *chat_template, messages, prompt.tools);
}

void log_stats(const Work& work, double seconds) {
  const auto& [times, new_tokens] = work;
  const auto rate = [](int64_t tokens, double s) { return s > 0.0 ? static_cast<double>(tokens) / s : 0.0; };
  char text[256];
  std::snprintf(text, sizeof text,
                "%lld prompt + %lld new tokens in %.2f s (%.1f tokens/s); prefill %.1f, decode %.1f tokens/s",
                static_cast<long long>(times.prefill_tokens), static_cast<long long>(new_tokens), seconds,
                rate(new_tokens, seconds), rate(times.prefill_tokens, times.prefill_s),
                rate(times.decode_tokens, times.decode_s));
  log::info(text);
}

int run_generate(Options options, const CommandLine& line) {
  const at::TensorOptions compute = options.compute.resolved();
  if (const auto code = start_ranks(options.ranks, line)) return *code;
  const InferenceRank rank(options.ranks, compute.device());
  const bool is_first = rank.is_first();
  const std::vector<Prompt> prompts = prompts_of_first(options, rank.world());
  const bool any_chat =
      options.is_chat || std::any_of(prompts.begin(), prompts.end(),
                                     [](const Prompt& prompt) { return !prompt.messages.is_null(); });
  if (!any_chat && (!options.system.empty() || !options.chat_template.empty())) {
    throw Error(ErrorKind::Config, "USAGE",
                std::string(options.system.empty() ? "--chat-template" : "--system") +
                    " says how to write a chat, and no prompt is one")
        .hint("add --chat, or give prompts with \"messages\"");
  }
  std::optional<AnswerOutput> output;
  if (is_first && !options.output_file.empty()) output.emplace(prompts, options.output_file);
  const ModelSource source(options.model, options.adapter);
  const text::Tokenizer& tokenizer = source.tokenizer();
  std::shared_ptr<const text::ChatTemplate> chat_template;
  if (any_chat) chat_template = text::select_chat_template(options.chat_template, "", "", tokenizer);
  const auto model = source.load(compute, rank.mesh());

  models::Generator generator(
      *model, {.max_batch = options.batch_size, .max_prefill_tokens = options.prefill_tokens});
  if (is_first && !output) output.emplace(prompts, "");
  Copies copies(rank, prompts.size());
  std::vector<int64_t> prompt_tokens(prompts.size());
  const auto show = [&](size_t index, const std::string& more) {
    output ? output->add(index, more) : copies.add(index, more);
  };
  std::vector<AnswerText> texts;
  std::map<int64_t, size_t> open;
  for (size_t i = 0; i < prompts.size(); ++i) {
    texts.emplace_back(tokenizer, options.stop_strings);
    models::GenerateOptions generate = options.generate;
    generate.stop_ids = source.stop_ids(*model);
    generate.sampling.sequence = i;
    generate.on_token = [&, i](int64_t id) {
      show(i, texts[i].add(id));
      return !texts[i].has_stopped();
    };
    try {
      auto ids = encode_prompt(options, tokenizer, chat_template.get(), prompts[i]);
      prompt_tokens[i] = static_cast<int64_t>(ids.size());
      const int64_t request = generator.add({std::move(ids), generate});
      if (copies.answers(i)) {
        open[request] = i;
      } else {
        // Every rank adds every prompt, so that one that is refused is refused on all ranks. The prompts of
        // other copies are then taken back.
        generator.cancel(request);
        generator.take(request);
      }
    } catch (Error& error) {
      if (!prompts[i].place.empty()) error.within(prompts[i].place);
      throw;
    }
  }
  const Timer timer;
  int64_t new_tokens = 0;
  for (bool goes_on = true; goes_on;) {
    goes_on = generator.step();
    std::erase_if(open, [&](const auto& entry) {
      const auto result = generator.take(entry.first);
      if (!result) return false;
      const size_t index = entry.second;
      const auto num_tokens = static_cast<int64_t>(result->token_ids.size());
      new_tokens += num_tokens;
      show(index, texts[index].finish());
      // At a stop string the callback on_token ends the answer, which also counts as "stop".
      const bool is_cut = result->reason == models::FinishReason::Length;
      const AnswerEnd end{is_cut ? "length" : "stop", prompt_tokens[index], num_tokens};
      output ? output->finish(index, end) : copies.finish(index, end);
      return true;
    });
    goes_on = copies.go_on(goes_on, {generator.times(), new_tokens}, output ? &*output : nullptr);
  }
  if (is_first && options.shows_stats) log_stats(copies.work(), timer.seconds());
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, const CommandLine& line, Action& action) {
  auto options = std::make_shared<Options>();
  options->ranks.has_many_prompts = true;
  CLI::App* verb = app.add_subcommand("generate", "Continue a text, or answer as a chat model");
  add_answering_options(*verb, *options);
  verb->add_option(
      "prompt", options->prompts,
      "The text, or the question; any number of them; - reads one from every line of standard input");
  // The option takes one value each time, so that it does not take the prompts behind it.
  verb->add_option("--prompt", options->more_prompts, "The same as an option, any number of times")
      ->allow_extra_args(false);
  verb->add_option(
          "--prompts", options->prompts_file,
          "A file of JSON lines, each an object with \"prompt\" or \"messages\"; - is standard input")
      ->check(CLI::ExistingPath | CLI::IsMember({"-"}));
  verb->add_option("--output", options->output_file,
                   "Write the answers into this new file of JSON lines instead of printing them");
  verb->add_option("--batch-size", options->batch_size, "Prompts that are answered at once")
      ->check(CLI::Range(1, 4096));
  verb->add_option(
          "--prefill-tokens", options->prefill_tokens,
          "Prompts are read together up to this many tokens; 1 = each alone, which makes an answer the "
          "same to the last bit in any batch")
      ->check(CLI::Range(1, 1 << 20));
  verb->add_flag("--chat", options->is_chat, "Treat each prompt as a user's message in the chat template");
  verb->add_flag("--stats", options->shows_stats, "Print tokens/s on standard error");
  verb->callback(
      [options, line, &action] { action = [options, line] { return run_generate(*options, line); }; });
}

}  // namespace tessera::cli

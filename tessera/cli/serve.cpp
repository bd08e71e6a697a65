// The verb `tessera serve`.
#include <chrono>
#include <csignal>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "tessera/cli/adapters.h"
#include "tessera/cli/answering.h"
#include "tessera/cli/cache_option.h"
#include "tessera/cli/compute_options.h"
#include "tessera/cli/draft_option.h"
#include "tessera/cli/listening.h"
#include "tessera/cli/verbs.h"
#include "tessera/comm/bootstrap.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"
#include "tessera/core/unix_time.h"
#include "tessera/generation/load_for_inference.h"
#include "tessera/generation/serving_engine.h"
#include "tessera/generation/serving_orders.h"
#include "tessera/io/file.h"
#include "tessera/io/run_inputs.h"
#include "tessera/nn/kv_cache.h"
#include "tessera/serving/http_server.h"
#include "tessera/serving/service.h"
#include "tessera/text/chat_encoding.h"
#include "tessera/text/select_chat_template.h"

namespace tessera::cli {
namespace {

struct Options {
  AdapterOptions adapters;
  std::string model, served_name, chat_template, tool_format, pooling;
  std::string typed_model;  // as it was typed, before its download
  ComputeOptions compute;
  generation::ServingEngineOptions engine;
  ListenOptions listen;
  RankOptions ranks;
  int64_t max_answer_tokens = 2048, max_body_mb = 8;
  double drain_s = 30.0;
  bool has_no_prefix_cache = false;
};

// Returns the name by which clients ask for the model: that of the hub, or the last part of a path.
std::string name_of(const Options& options) {
  if (!options.served_name.empty()) return options.served_name;
  if (!io::exists(options.typed_model)) return options.typed_model;
  std::string path = std::filesystem::path(options.typed_model).lexically_normal().string();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::string last = std::filesystem::path(path).filename().string();
  return last.empty() || last == "." || last == ".." ? "model" : last;
}

// Returns the format of the model's tool calls, or null if they remain text.
const text::ToolFormat* tool_format_of(const Options& options, const serving::ServedModel& served) {
  if (options.tool_format == "none" || served.chat_template == nullptr) return nullptr;
  if (!options.tool_format.empty()) return &text::find_tool_format(options.tool_format);
  const text::ToolFormat* format =
      text::recognise_tool_format(*served.chat_template, text::render_options(served.tokenizer));
  log::info(
      "'" + served.name + "': " +
      (format != nullptr
           ? "tool calls are read as '" + std::string(format->name) + "', as the chat template writes them"
           : "tool calls remain text, since the chat template writes none in a form that is known; "
             "--tool-format names one"));
  return format;
}

serving::ServedModel describe(const Options& options, const std::string& name, int64_t adapter,
                              const generation::ModelSource& source, const models::CausalLM& model) {
  serving::ServedModel served{.name = name,
                              .adapter = adapter,
                              .tokenizer = source.tokenizer(),
                              .chat_template = nullptr,
                              .no_template = "",
                              .stop_ids = source.stop_ids(model),
                              .max_answer_tokens = options.max_answer_tokens,
                              .created = static_cast<int64_t>(unix_time_s())};
  if (io::is_folder(source.base())) serving::read_generation_config(source.base(), served.defaults);
  if (model.config().is_encoder) return served;
  try {
    served.chat_template = text::select_chat_template(options.chat_template, "", "", source.tokenizer());
  } catch (const Error& error) {
    // A model without a template can still complete texts.
    if (!options.chat_template.empty()) throw;
    served.no_template = "give the server one with --chat-template";
    log::warn("chats with '" + name + "' will be refused: " + std::string(error.message()));
  }
  served.tool_format = tool_format_of(options, served);
  return served;
}

// Waits for a signal to stop, and then for the answers under way.
void serve_until_stopped(serving::Service& service, const serving::HttpServer& server, double drain_s) {
  StopSignals::wait();
  const int64_t open = server.num_open();
  log::info("stopping: " + std::to_string(open) + " requests under way have " + format_duration(drain_s) +
            "; a second signal ends at once");
  service.drain(drain_s);
  const Timer timer;
  while (server.num_open() > 0 && timer.seconds() < drain_s)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (server.num_open() > 0)
    log::warn(std::to_string(server.num_open()) + " requests were cut off after " + format_duration(drain_s));
}

// The models of a server: that of the command line, and one more for each adapter that has a name. The first
// rank alone has descriptions of them.
struct Models {
  std::shared_ptr<models::CausalLM> model;
  std::deque<generation::ModelSource> sources;  // whose tokenizers `served` uses
  std::vector<serving::ServedModel> served;
};

Models load_models(Options& options, const at::TensorOptions& compute,
                   const generation::InferenceRank& rank) {
  Models all;
  auto named = options.adapters.by_name();
  const std::string name = name_of(options);
  all.sources.emplace_back(options.model, named.empty() ? options.adapters.folder() : "");
  if (const std::string& own = all.sources.front().adapter(); !named.empty() && !own.empty()) {
    throw Error(ErrorKind::Config, "ADAPTER-NAME", "the model has an adapter that all requests get")
        .at(own)
        .hint("name its base model instead, and give the adapter a name: --adapter NAME=" + own);
  }
  all.model =
      all.sources.front().load(compute, rank.mesh(), {.embeddings = true, .adapters = !named.empty()});
  std::vector<std::string> folders;
  for (auto& [adapter, chosen] : named) {
    if (adapter == name) {
      throw Error(ErrorKind::Config, "ADAPTER-NAME", "an adapter has the name of the model")
          .at("command line")
          .got("'" + name + "'")
          .hint("--served-model-name gives the model another one");
    }
    folders.push_back(chosen.folder());
  }
  if (!folders.empty()) generation::add_adapters(*all.model, all.sources.front().base(), folders);
  if (!rank.is_first()) return all;
  all.served.push_back(describe(options, name, 0, all.sources.front(), *all.model));
  for (size_t i = 0; i < named.size(); ++i) {
    all.sources.emplace_back(all.sources.front().base(), folders[i]);
    all.served.push_back(
        describe(options, named[i].first, static_cast<int64_t>(i) + 1, all.sources.back(), *all.model));
  }
  return all;
}

std::string names_of(const std::vector<serving::ServedModel>& served) {
  std::vector<std::string> names;
  for (const serving::ServedModel& each : served) names.push_back("'" + each.name + "'");
  return join(names, ", ");
}

std::string what_is_served(const serving::EngineFacts& facts) {
  if (!facts.no_answers.empty())
    return "embeddings of " + std::to_string(facts.embedding_size) + " numbers alone";
  return "cache " + group_digits(facts.cache_tokens) + " tokens, " + std::to_string(facts.max_sequences) +
         " answers at once";
}

// Ends the job, of which other ranks may wait for this one in vain.
void end_job(const std::exception& error) {
  log::error(error.what());
  const auto* const own = dynamic_cast<const Error*>(&error);
  comm::Bootstrap::abort(exit_code(own != nullptr ? own->kind() : ErrorKind::Internal));
}

int run_serve(Options options, const CommandLine& command_line) {
  check_draft_option(options.engine.max_draft_tokens, options.engine.max_prefill_tokens,
                     options.ranks.pipeline_parallel);
  if (!options.tool_format.empty() && options.tool_format != "none")
    text::find_tool_format(options.tool_format);
  const at::TensorOptions compute = options.compute.resolved();
  generation::check_cache_type(options.engine.cache_type, compute.device());
  if (const auto code = start_ranks(options.ranks, command_line)) return *code;
  const generation::InferenceRank rank = join_ranks(options.ranks, compute.device());
  options.listen.http.max_body = options.max_body_mb << 20;
  options.engine.has_prefix_cache = !options.has_no_prefix_cache;
  // On the host, parts of a page are read nearly as fast as larger ones (ops/panel_linear.h), and others wait
  // less for them.
  if (compute.device() == kHost) {
    options.engine.max_part_tokens = nn::KvCache::kPageTokens;
    options.engine.whole_parts = 3;
  }
  const serving::ApiKeys keys = read_keys(options.listen);
  Models all = load_models(options, compute, rank);
  std::optional<generation::Pooling> pooling;
  if (!options.pooling.empty()) pooling = generation::read_pooling(options.pooling);
  options.engine.embeddings = generation::embedding_options(*all.model, all.sources.front().base(), pooling);
  if (!rank.is_alone()) {
    if (rank.mesh().size(parallel::kAxisPp) > 1)
      options.engine.embeddings.refusal = "its layers lie on several ranks (--pipeline-parallel-size)";
    options.engine.orders = std::make_shared<generation::RankOrders>(rank.world());
    options.engine.on_broken = end_job;
  }
  if (!rank.is_first()) {
    // The first rank takes the signals, and its end ends all ranks.
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGTERM, SIG_IGN);
    generation::follow_serving_engine(*all.model, options.engine);
    return 0;
  }
  const std::string names = names_of(all.served);
  generation::ServingEngine engine(*all.model, options.engine);
  const serving::EngineFacts facts = engine.facts();
  if (options.engine.has_prefix_cache && facts.no_answers.empty()) {
    if (const std::string why = generation::why_no_shared_pages(*all.model); !why.empty())
      log::info("the prefix cache is off: " + why);
  }
  if (facts.no_answers.empty()) tell_of_drafts(options.engine.max_draft_tokens, *all.model);
  serving::Service service(engine, std::move(all.served), {.keys = keys});
  const StopSignals signals;
  const serving::HttpServer server(
      options.listen.http, [&](const serving::HttpRequest& head) { return service.check(head); },
      [&](const std::shared_ptr<serving::HttpExchange>& exchange) { service.handle(exchange); });
  warn_of_open_door(options.listen, keys);
  log::info("serving " + names + " at " + address_of(options.listen, server) + "/v1 (context " +
            group_digits(facts.context) + " tokens, " + what_is_served(facts) + ")");
  serve_until_stopped(service, server, options.drain_s);
  return 0;
}

void add_engine_options(CLI::App& verb, generation::ServingEngineOptions& engine, bool& has_no_prefix_cache) {
  verb.add_option("--max-concurrent", engine.max_batch, "Answers to generate at once")
      ->check(CLI::Range(1, 4096));
  verb.add_option("--max-waiting", engine.max_waiting,
                  "Requests that may wait for their turn; more are refused with 503")
      ->check(CLI::Range(0, 1 << 20));
  verb.add_option("--max-cache-tokens", engine.max_cache_tokens,
                  "Room of the cache, in tokens of all prompts and answers; the longest request must fit; "
                  "0 = a quarter of the free memory")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 32));
  verb.add_flag(
      "--no-prefix-cache", has_no_prefix_cache,
      "Read every prompt from its beginning, even if the cache holds that part from another request");
  add_draft_option(verb, engine.max_draft_tokens);
  add_cache_option(verb, engine.cache_type);
  verb.add_option("--max-context", engine.max_context,
                  "Maximum length of a prompt and its answer together, in tokens; 0 = the model's limit")
      ->check(CLI::Range(0, 1 << 24));
  verb.add_option("--prefill-tokens", engine.max_prefill_tokens,
                  "Read prompts together, up to this many tokens at a time; 1 = read each prompt alone, "
                  "which makes an answer bit-identical under any load of up to 16 answers")
      ->check(CLI::Range(1, 1 << 20));
}

}  // namespace

void add_serve(CLI::App& app, CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("serve", "Answer requests over HTTP, as the OpenAI and Anthropic APIs have them");
  line.add_model(*verb, "model", options->model,
                 "A Hugging Face model folder, a GGUF file, an adapter's folder (its base model is found "
                 "automatically), or the name of a model on the hub, which is downloaded")
      ->required()
      ->each([options](const std::string& typed) { options->typed_model = typed; });
  add_adapter_options(
      *verb, line, options->adapters,
      "Folder of an adapter to apply to the model, or, with a name, one that requests choose by "
      "it as their model");
  add_listen_options(*verb, options->listen, 8000);
  verb->add_option("--served-model-name", options->served_name,
                   "Name by which requests ask for the model; default: its name on the hub, or the last part "
                   "of its path");
  verb->add_option("--chat-template", options->chat_template,
                   "chatml, llama3, mistral or alpaca; default: the model's");
  verb->add_option("--tool-format", options->tool_format,
                   "How the model writes tool calls: " + text::tool_format_names() +
                       ", or none to leave them in the text; default: as its chat template writes them");
  add_compute_options(*verb, options->compute);
  verb->add_option("--pooling", options->pooling,
                   "What makes an embedding: the hidden state of the first token (cls) or the last one, or "
                   "the mean of all; default: as the model's files say, else last (cls for an encoder)")
      ->check(CLI::IsMember({"cls", "last", "mean"}));
  add_engine_options(*verb, options->engine, options->has_no_prefix_cache);
  verb->add_option("--max-answer-tokens", options->max_answer_tokens,
                   "Length of a chat's answer if the request gives none")
      ->check(CLI::Range(1, 1 << 24));
  verb->add_option("--max-body-mb", options->max_body_mb,
                   "Largest body of a request, in MiB; all bodies together may have 16 times as much")
      ->check(CLI::Range(1, 64));
  verb->add_option("--drain-seconds", options->drain_s,
                   "Time to finish the answers in progress when SIGTERM or Ctrl-C stops the server")
      ->check(CLI::Range(0.0, 86400.0));
  add_rank_options(*verb, options->ranks);
  verb->footer(
      "Routes: /v1/chat/completions, /v1/completions, /v1/messages, /v1/embeddings, /v1/models, "
      "/tokenize,\n/detokenize, /health, /metrics, /version.\nExample:\n  tessera serve MODEL --port 8000\n  "
      "curl "
      "http://127.0.0.1:8000/v1/chat/completions "
      "-H 'Content-Type: application/json' \\\n    -d '{\"messages\": [{\"role\": \"user\", \"content\": "
      "\"Hello\"}]}'");
  line.set_action(*verb, [options, &line] { return run_serve(*options, line); });
}

}  // namespace tessera::cli

#include "tessera/train/run/samples.h"

#include <algorithm>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/generation/answer_requests.h"
#include "tessera/generation/generate.h"
#include "tessera/generation/load_for_inference.h"

namespace tessera::train {
namespace {

constexpr int64_t kAtOnce = 8;  // prompts that are continued together

// [Note: one rank chooses] All ranks run the model on the same texts, because parameters that are sharded are
// gathered in each pass, by all ranks together. The first rank chooses the tokens and tells them, so that
// ranks on processors that round differently make equally many passes.
generation::GeneratorOptions options_for(comm::Communicator& world) {
  generation::GeneratorOptions options{.max_batch = kAtOnce, .records = false};
  if (world.size() == 1) return options;
  if (world.rank() == 0) {
    options.tell = [&world](const auto& tokens) { world.all_gather_string(nlohmann::json(tokens).dump()); };
  } else {
    options.hear = [&world] {
      return nlohmann::json::parse(world.all_gather_string("").front()).get<std::vector<int64_t>>();
    };
  }
  return options;
}

// Makes the next tokens and returns whether there were any to make. Logits that are not finite end their own
// text, on the first rank alone; the others hear of it.
bool make_tokens(generation::Generator& generator) {
  try {
    return generator.step();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Numerics) throw;
    return true;
  }
}

const char* finish_name(generation::FinishReason reason) {
  switch (reason) {
    case generation::FinishReason::Length: return "length";
    case generation::FinishReason::Callback: return "not finite";
    default: return "stop";
  }
}

// Returns the rows that train a token, by the numbers of their datasets.
std::map<int64_t, std::vector<int64_t>> trained_rows(const data::RowSet& rows, int64_t most) {
  std::map<int64_t, std::vector<int64_t>> found;
  for (int64_t i = 0; i < rows.size(); ++i) {
    auto& of_dataset = found[rows.store->dataset(rows.rows[i])];
    if (std::ssize(of_dataset) < most && rows.label_count(i) > 0) of_dataset.push_back(rows.rows[i]);
  }
  return found;
}

}  // namespace

Samples::Samples(const config::Recipe& recipe, const models::CausalLM& model,
                 const std::optional<text::Tokenizer>& tokenizer, const data::RowSet& rows)
    : max_new_tokens_(recipe.eval_max_new_tokens),
      max_length_(generation::scored_length(model) - model.num_virtual_tokens()),
      tokenizer_(tokenizer ? &*tokenizer : nullptr) {
  if (!tokenizer) {
    throw recipe.error("SAMPLES", "samples are texts, and the model has no tokenizer", {"eval_table_size"})
        .need("a base_model or tokenizer_config with a tokenizer.json");
  }
  stop_ids_ = generation::stop_ids(model, *tokenizer);
  const auto found = trained_rows(rows, recipe.eval_table_size);
  for (size_t turn = 0; turn < static_cast<size_t>(recipe.eval_table_size); ++turn) {
    for (const auto& [dataset, of_dataset] : found) {
      if (turn >= of_dataset.size() || size() == recipe.eval_table_size) continue;
      const bool has_several = found.size() > 1;
      add(*rows.store, of_dataset[turn], has_several ? rows.store->dataset_name(dataset) : "",
          model.config().is_encoder_decoder);
    }
  }
}

void Samples::add(const data::RowStore& store, int64_t row, const std::string& dataset, bool has_sides) {
  store.check(row);
  const std::span<const int32_t> ids = store.tokens(row);
  // A label at position 0 trains nothing, as no token precedes it.
  const auto runs = store.label_runs(row);
  data::LabelRun trained = *std::ranges::find_if(runs, [](const auto& run) { return run.end > 1; });
  if (trained.begin <= 1) trained.begin = std::max(1, trained.end / 2);
  // An encoder-decoder begins its target with a token of its own.
  auto prompt = ids.first(static_cast<size_t>(trained.begin - (has_sides ? 1 : 0)));
  const int64_t room = std::max<int64_t>(1, max_length_ - max_new_tokens_);
  if (std::ssize(prompt) > room) prompt = prompt.last(static_cast<size_t>(room));
  if (prompt.empty()) return;
  prompts_.emplace_back(prompt.begin(), prompt.end());
  const auto answer =
      ids.subspan(static_cast<size_t>(trained.begin), static_cast<size_t>(trained.end - trained.begin));
  samples_.push_back({dataset, tokenizer_->decode(prompt),
                      tokenizer_->decode(answer, /*skip_special_tokens=*/true), "", ""});
}

std::string Samples::describe() const {
  return group_digits(size()) + (size() == 1 ? " prompt" : " prompts") + ", by up to " +
         group_digits(max_new_tokens_) + " tokens";
}

std::optional<std::vector<Sample>> Samples::make(TrainedModel& trained, comm::Communicator& world,
                                                 const std::function<bool(int64_t done)>& on_pass) const {
  generation::GenerateOptions options{.max_new_tokens = max_new_tokens_, .stop_ids = stop_ids_};
  generation::Generator generator(*trained.model, options_for(world));
  trained.model->eval();
  std::vector<int64_t> requests;
  for (const auto& prompt : prompts_) requests.push_back(generator.add({prompt, options}));
  bool goes_on = true;
  while (goes_on && make_tokens(generator))
    goes_on = on_pass(size() - generator.num_waiting() - generator.num_running());
  trained.model->train();
  if (!goes_on) return std::nullopt;
  if (world.rank() > 0) return std::vector<Sample>();
  std::vector<Sample> samples = samples_;
  for (size_t i = 0; i < samples.size(); ++i) {
    const generation::Generation made = generator.take(requests[i]).value();
    const std::vector<int32_t> ids(made.token_ids.begin(), made.token_ids.end());
    samples[i].generated = tokenizer_->decode(ids, /*skip_special_tokens=*/true);
    samples[i].finish = finish_name(made.reason);
  }
  return samples;
}

}  // namespace tessera::train

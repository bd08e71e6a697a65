#include "tessera/generation/generate.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/error.h"
#include "tessera/core/process_stats.h"
#include "tessera/generation/token_log_probs.h"

namespace tessera::generation {
namespace {

nn::KvCacheOptions bounded_cache(const models::CausalLM& model, const GeneratorOptions& options) {
  TESSERA_ASSERT(options.max_batch > 0 && options.max_cache_tokens >= 0 && options.max_prefill_tokens > 0,
                 "options of a Generator");
  nn::KvCacheOptions result = cache_options(model, options.cache_type);
  result.max_pages = nn::KvCache::pages_for(options.max_cache_tokens);
  return result;
}

}  // namespace

Generator::Generator(models::CausalLM& model, const GeneratorOptions& options)
    : model_(model),
      options_(options),
      max_logits_(std::max<int64_t>(1, options.max_logits / model.config().vocab_size)),
      cache_(bounded_cache(model, options)),
      runner_(model, cache_, options.records),
      share_unit_(share_unit(model, options)),
      // A cache of windows may not hold all of a text at once, as a pass over the whole of it would need; and
      // an encoder-decoder takes all that such a pass reads for its source.
      replays_(options.max_prefill_tokens == 1 || cache_.options().window > 0 ||
               model.config().is_encoder_decoder) {
  if (!why_no_drafts(model).empty()) options_.max_draft_tokens = 0;
}

int64_t Generator::add(GenerationRequest request) {
  if (request.options.on_prompt_log_probs)
    model_.check_continues_texts("telling the log-probabilities of a prompt");
  RunningRequest entry(model_, std::move(request));
  // See [Note: pages of requests] in generator_pages.cpp.
  const int64_t fed = num_tokens_besides() + entry.prompt_size();
  const int64_t pages = cache_.most_pages(fed, fed + std::max<int64_t>(entry.budget - 1, 0));
  if (const int64_t most = cache_.options().max_pages; most > 0 && pages > most) {
    throw Error(ErrorKind::Config, "CACHE", "the prompt and its answer do not fit in the cache")
        .got(std::to_string(entry.prompt_size()) + " + " + std::to_string(entry.budget) + " tokens")
        .need("at most " + std::to_string(most * nn::KvCache::kPageTokens));
  }
  const int64_t request_number = next_++;
  entry.request = request_number;
  if (entry.budget <= 0) {
    finished_[request_number] = {};
  } else {
    if (shares(entry)) entry.add_keys();
    waiting_.push_back(std::move(entry));
  }
  return request_number;
}

bool Generator::step() {
  bool has_worked = false;
  int64_t num_prefills = 0;
  // If no sequence runs, nobody is kept waiting, and all places are filled at once.
  while ((options_.max_prefills == 0 || num_prefills < options_.max_prefills ||
          (running_.empty() && reading_.empty())) &&
         admit()) {
    has_worked = true;
    ++num_prefills;
  }
  if (running_.empty()) return has_worked;

  const Timer timer;
  make_room_for_step();
  if (running_.empty()) return true;
  const std::exception_ptr failure = make_drafts() ? decode_with_drafts() : decode();
  times_.decode_s += timer.seconds();
  if (failure) std::rethrow_exception(failure);
  return true;
}

std::exception_ptr Generator::decode() {
  std::vector<models::NewTokens> batch;
  std::vector<TokenDraw> draws;
  for (const RunningRequest& running : running_) {
    batch.push_back(running.next_tokens(1));
    draws.push_back(running.next_draw());
  }
  // If this throws, nothing has changed: running_ still holds all sequences, and the cache their old lengths.
  NextLogits logits;
  in_pass([&] { logits = runner_.decode(batch, draws); });
  for (RunningRequest& running : running_) {
    ++running.num_fed;
    give_keys(running);
  }
  times_.decode_tokens += std::ranges::count_if(running_, &RunningRequest::is_fed);
  return take_tokens(std::exchange(running_, {}), logits);
}

std::vector<Generator::Chosen> Generator::choose_tokens(const std::vector<RunningRequest>& batch,
                                                        const NextLogits& logits) const {
  std::vector<Chosen> chosen(batch.size());
  std::vector<int64_t> rows, ids;
  int64_t num_top = 0;
  std::optional<TokenChoice> choice;
  std::exception_ptr problem;
  try {
    // Waits for the device, inside the try: an error of the device ends the requests of this batch.
    if (std::ranges::any_of(batch, &RunningRequest::is_fed)) choice.emplace(logits.logits, logits.chosen);
  } catch (...) {
    problem = std::current_exception();
  }
  // On the host a choice among the whole vocabulary takes long enough to be shared among threads.
  at::parallel_for(0, std::ssize(batch), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      Chosen& own = chosen[static_cast<size_t>(row)];
      const RunningRequest& request = batch[static_cast<size_t>(row)];
      if (!request.is_fed()) continue;
      own.failure = problem;
      if (problem) continue;
      try {
        own.token = request.choose(*choice, row);
      } catch (...) {
        own.failure = std::current_exception();
      }
    }
  });
  for (size_t i = 0; i < batch.size(); ++i) {
    if (chosen[i].failure || !batch[i].is_fed() || !batch[i].options.on_log_probs) continue;
    rows.push_back(static_cast<int64_t>(i));
    ids.push_back(chosen[i].token);
    num_top = std::max(num_top, batch[i].options.num_log_probs);
  }
  if (rows.empty()) return chosen;
  try {
    const auto log_probs = token_log_probs(logits.raw(), rows, ids, num_top);
    for (size_t k = 0; k < rows.size(); ++k) {
      const auto row = static_cast<size_t>(rows[k]);
      chosen[row].log_probs = batch[row].with_wanted_top(log_probs[k]);
    }
  } catch (...) {
    for (const int64_t row : rows) chosen[static_cast<size_t>(row)].failure = std::current_exception();
  }
  return chosen;
}

std::exception_ptr Generator::take_tokens(std::vector<RunningRequest> batch, const NextLogits& logits) {
  if (options_.hear) {
    take_heard(std::move(batch));
    return nullptr;
  }
  // One request's exception must not take the others along, whose tokens are computed already: it ends its
  // own request, all others of the batch get their tokens, and the caller throws it afterwards.
  std::exception_ptr failure;
  const std::vector<Chosen> chosen = choose_tokens(batch, logits);
  std::vector<int64_t> told(batch.size(), GeneratorOptions::kEnded);
  is_taking_ = true;
  for (size_t i = 0; i < batch.size(); ++i) {
    bool goes_on = false;
    const bool is_chosen = batch[i].is_fed();
    try {
      if (chosen[i].failure) std::rethrow_exception(chosen[i].failure);
      if (!cancelled_.contains(batch[i].request)) goes_on = !is_chosen || give(batch[i], chosen[i]);
    } catch (...) {
      failure = std::current_exception();
      batch[i].result.reason = FinishReason::Callback;
    }
    // A callback may have cancelled this request or a later one of the batch. cancel() does not find those,
    // since they are neither in waiting_ nor in running_ now, and leaves their numbers in cancelled_.
    if (cancelled_.contains(batch[i].request)) {
      batch[i].result.reason = FinishReason::Callback;
      goes_on = false;
    }
    if (goes_on) {
      told[i] = is_chosen ? batch[i].result.token_ids.back() : GeneratorOptions::kNoToken;
      running_.push_back(std::move(batch[i]));
    } else {
      finish(batch[i]);
    }
  }
  is_taking_ = false;
  cancelled_.clear();
  if (options_.tell) options_.tell(told);
  return failure;
}

void Generator::take_heard(std::vector<RunningRequest> batch) {
  const std::vector<int64_t> heard = options_.hear();
  TESSERA_ASSERT(heard.size() == batch.size(), "ranks that work on the same sequences");
  for (size_t i = 0; i < batch.size(); ++i) {
    if (heard[i] == GeneratorOptions::kEnded) {
      cache_.free(batch[i].sequence);
      continue;
    }
    if (heard[i] != GeneratorOptions::kNoToken) batch[i].result.token_ids.push_back(heard[i]);
    running_.push_back(std::move(batch[i]));
  }
}

bool Generator::give(RunningRequest& running, const Chosen& chosen) {
  const GenerateOptions& options = running.options;
  if (running.result.token_ids.empty()) counts_.prompt_tokens += running.prompt_size();
  if (running.scores_prompt()) options.on_prompt_log_probs(std::exchange(running.of_prompt, {}));
  if (options.on_log_probs) options.on_log_probs(chosen.token, chosen.log_probs);
  return running.accept(chosen.token);
}

void Generator::end_all(std::vector<RunningRequest>& requests) {
  for (RunningRequest& request : requests) {
    request.result.reason = FinishReason::Callback;
    finish(request);
  }
}

void Generator::finish(RunningRequest& running) {
  cache_.free(running.sequence);
  finished_[running.request] = std::move(running.result);
}

void Generator::cancel(int64_t request) {
  const auto is_it = [request](const RunningRequest& entry) { return entry.request == request; };
  if (const auto found = std::find_if(waiting_.begin(), waiting_.end(), is_it); found != waiting_.end()) {
    found->result.reason = FinishReason::Callback;
    finished_[request] = std::move(found->result);
    waiting_.erase(found);
  }
  if (const auto found = std::find_if(running_.begin(), running_.end(), is_it); found != running_.end()) {
    found->result.reason = FinishReason::Callback;
    finish(*found);
    running_.erase(found);
  }
  if (const auto found = std::find_if(reading_.begin(), reading_.end(), is_it); found != reading_.end()) {
    found->result.reason = FinishReason::Callback;
    finish(*found);
    reading_.erase(found);
  }
  if (is_taking_) cancelled_.insert(request);
}

std::optional<Generation> Generator::take(int64_t request) {
  const auto found = finished_.find(request);
  if (found == finished_.end()) return std::nullopt;
  Generation result = std::move(found->second);
  finished_.erase(found);
  return result;
}

void GenerationTimes::join(const GenerationTimes& other) {
  prefill_s = std::max(prefill_s, other.prefill_s);
  decode_s = std::max(decode_s, other.decode_s);
  prefill_tokens += other.prefill_tokens;
  decode_tokens += other.decode_tokens;
}

Generation generate(models::CausalLM& model, const std::vector<int64_t>& prompt,
                    const GenerateOptions& options) {
  Generator generator(model, {.max_batch = 1});
  const int64_t request = generator.add({prompt, options});
  while (generator.step()) {
  }
  return generator.take(request).value();
}

}  // namespace tessera::generation

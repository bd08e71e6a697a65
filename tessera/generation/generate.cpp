#include "tessera/generation/generate.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/process_stats.h"

namespace tessera::generation {
namespace {

nn::KvCacheOptions cache_options(const models::CausalLM& model, const GeneratorOptions& options) {
  TESSERA_ASSERT(options.max_batch > 0 && options.max_cache_tokens >= 0 && options.max_prefill_tokens > 0,
                 "options of a Generator");
  nn::KvCacheOptions result = model.cache_options();
  result.max_pages = nn::KvCache::pages_for(options.max_cache_tokens);
  return result;
}

}  // namespace

Generator::Generator(models::CausalLM& model, const GeneratorOptions& options)
    : model_(model),
      options_(options),
      cache_(cache_options(model, options)),
      decoder_(model, cache_, options.records) {}

int64_t Generator::add(GenerationRequest request) {
  Running entry(model_, std::move(request));
  const int64_t prompt_size = std::ssize(entry.prompt);
  // See [Note: reserved pages].
  entry.pages = cache_.most_pages(prompt_size, prompt_size + std::max<int64_t>(entry.budget - 1, 0));
  if (const int64_t most = cache_.options().max_pages; most > 0 && entry.pages > most) {
    throw Error(ErrorKind::Config, "CACHE", "the prompt and its answer do not fit in the cache")
        .got(std::to_string(prompt_size) + " + " + std::to_string(entry.budget) + " tokens")
        .need("at most " + std::to_string(most * nn::KvCache::kPageTokens));
  }
  const int64_t request_number = next_++;
  entry.request = request_number;
  if (entry.budget <= 0) {
    finished_[request_number] = {};
  } else {
    waiting_.push_back(std::move(entry));
  }
  return request_number;
}

// [Note: reserved pages] In a cache with a bound, a request is admitted only if the pages that it may ever
// need, for its prompt and its whole budget of tokens, are free beside those that all running requests may
// ever need. So no running request ever runs out of pages, and none has to be thrown out or computed again.
// The next request in the queue waits until it fits, and those behind it wait with it: a large request is not
// overtaken forever. If nothing runs, the next request always fits: add() has refused those that are larger
// than the cache.
//
// A request that has not finished is in waiting_, in running_, or in the local batch of the call that is
// giving it a token. Its pages are reserved from admit() to finish(), also if an exception ends it.

bool Generator::step() {
  bool has_worked = false;
  while (admit()) has_worked = true;
  if (running_.empty()) return has_worked;

  const Timer timer;
  std::vector<models::NewTokens> batch;
  std::vector<TokenDraw> draws;
  for (const Running& running : running_) {
    batch.push_back({running.sequence, {running.result.token_ids.back()}});
    draws.push_back(running.next_draw());
  }
  // If this throws, nothing has changed: running_ still holds all sequences, and the cache their old lengths.
  const NextLogits logits = decoder_.decode(batch, draws);
  times_.decode_tokens += num_running();
  const std::exception_ptr failure = take_tokens(std::exchange(running_, {}), logits);
  times_.decode_s += timer.seconds();
  if (failure) std::rethrow_exception(failure);
  return true;
}

bool Generator::has_room(int64_t tokens_before) const {
  if (waiting_.empty()) return false;
  const Running& next = waiting_.front();
  const int64_t most = cache_.options().max_pages;
  if (most > 0 && reserved_pages_ + next.pages > most) return false;
  return tokens_before == 0 ||
         tokens_before + static_cast<int64_t>(next.prompt.size()) <= options_.max_prefill_tokens;
}

bool Generator::admit() {
  const Timer timer;
  std::vector<Running> group;
  std::vector<models::NewTokens> batch;
  std::vector<TokenDraw> draws;
  int64_t tokens = 0;
  while (num_running() + static_cast<int64_t>(group.size()) < options_.max_batch && has_room(tokens)) {
    Running running = std::move(waiting_.front());
    waiting_.pop_front();
    running.sequence = cache_.add();
    reserved_pages_ += running.pages;
    tokens += static_cast<int64_t>(running.prompt.size());
    batch.push_back({running.sequence, std::exchange(running.prompt, {})});
    draws.push_back(running.next_draw());
    group.push_back(std::move(running));
  }
  if (group.empty()) return false;
  NextLogits logits;
  try {
    logits = decoder_.prefill(batch, draws);
  } catch (...) {
    // Their prompts are moved from and cannot be queued again. Which one failed is not known: all of them
    // end.
    for (Running& running : group) {
      running.result.reason = FinishReason::Callback;
      finish(running);
    }
    throw;
  }
  times_.prefill_tokens += tokens;
  const std::exception_ptr failure = take_tokens(std::move(group), logits);
  times_.prefill_s += timer.seconds();
  if (failure) std::rethrow_exception(failure);
  return true;
}

std::exception_ptr Generator::take_tokens(std::vector<Running> batch, const NextLogits& logits) {
  // One request's exception must not take the others along, whose tokens are computed already: it ends its
  // own request, all others of the batch get their tokens, and the caller throws it afterwards.
  std::exception_ptr failure;
  std::optional<TokenChoice> choice;
  is_taking_ = true;
  for (size_t i = 0; i < batch.size(); ++i) {
    bool goes_on = false;
    try {
      // Waits for the device, inside the try: an error of the device ends the requests of this batch.
      if (!choice) choice.emplace(logits.logits, logits.chosen);
      if (!cancelled_.contains(batch[i].request)) goes_on = batch[i].accept(*choice, static_cast<int64_t>(i));
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
      running_.push_back(std::move(batch[i]));
    } else {
      finish(batch[i]);
    }
  }
  is_taking_ = false;
  cancelled_.clear();
  return failure;
}

void Generator::finish(Running& running) {
  cache_.free(running.sequence);
  reserved_pages_ -= running.pages;
  finished_[running.request] = std::move(running.result);
}

void Generator::cancel(int64_t request) {
  const auto is_it = [request](const Running& entry) { return entry.request == request; };
  if (const auto found = std::find_if(waiting_.begin(), waiting_.end(), is_it); found != waiting_.end()) {
    finished_[request].reason = FinishReason::Callback;
    waiting_.erase(found);
  }
  if (const auto found = std::find_if(running_.begin(), running_.end(), is_it); found != running_.end()) {
    found->result.reason = FinishReason::Callback;
    finish(*found);
    running_.erase(found);
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

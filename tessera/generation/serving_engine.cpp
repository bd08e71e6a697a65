#include "tessera/generation/serving_engine.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <omp.h>

#include "tessera/comm/flight_recorder.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"
#include "tessera/device/device.h"
#include "tessera/device/device_memory.h"
#include "tessera/generation/answer_requests.h"
#include "tessera/generation/embedding_queue.h"
#include "tessera/generation/serving_orders.h"

namespace tessera::generation {
namespace {

using serving::EndReason;

// The calls of one answer leave this for its end.
struct Course {
  bool has_stopped = false;  // its receiver wants no more tokens
  int64_t new_tokens = 0;
};

// Ends the threads that share the calling thread's loops. It has loaded the model, which another thread will
// run with a team of its own: with more threads than cores, OpenMP lets a team sleep between two loops, and
// waking it costs a token more than its products do.
void end_idle_team() { omp_pause_resource_all(omp_pause_soft); }

// Tells who is at fault for an error of an answer: a setting that is not valid, as a constraint, is the
// request's own.
EndReason failure_of(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return known != nullptr && known->kind() == ErrorKind::Config ? EndReason::Refused : EndReason::Failed;
}

GenerationRequest request_of(const serving::EngineRequest& request, const std::shared_ptr<Course>& course) {
  GenerationRequest made{request.prompt, {}};
  GenerateOptions& options = made.options;
  const serving::Sampling& sampling = request.sampling;
  options.sampling = {.temperature = sampling.temperature,
                      .top_p = sampling.top_p,
                      .top_k = sampling.top_k,
                      .min_p = sampling.min_p,
                      .repetition_penalty = sampling.repetition_penalty,
                      .presence_penalty = sampling.presence_penalty,
                      .frequency_penalty = sampling.frequency_penalty,
                      .seed = sampling.seed,
                      .sequence = sampling.sequence};
  for (const auto& [id, delta] : sampling.logit_bias) options.biases.logit_bias.push_back({id, delta});
  options.biases.min_new_tokens = sampling.min_new_tokens;
  options.biases.bad_words = sampling.bad_words;
  options.max_new_tokens = request.max_new_tokens;
  options.adapter = request.adapter;
  options.cache_salt = request.cache_salt;
  options.constraint = request.constraint;
  options.stop_ids = request.stop_ids;
  constexpr int64_t kNoToken = -1;
  if (options.stop_ids.empty()) options.stop_ids = {kNoToken};
  options.num_log_probs = request.num_top;
  const std::shared_ptr<serving::AnswerReceiver> receiver = request.receiver;
  options.on_token = [receiver, course](int64_t id) {
    ++course->new_tokens;
    course->has_stopped = !receiver->token(id);
    return !course->has_stopped;
  };
  if (request.wants_log_probs)
    options.on_log_probs = [receiver](int64_t id, const auto& values) { receiver->log_probs(id, values); };
  if (request.scores_prompt)
    options.on_prompt_log_probs = [receiver](const auto& values) { receiver->of_prompt(values); };
  return made;
}

// Returns the number of tokens in the parts of a long prompt. They are smaller where beginnings of prompts
// are shared in whole parts alone, also if there is no prefix cache, so that answers are the same with and
// without one.
int64_t part_tokens(const ServingEngineOptions& options) {
  constexpr int64_t kShared = 128;
  return options.max_prefill_tokens == 1 ? std::min(options.max_part_tokens, kShared)
                                         : options.max_part_tokens;
}

}  // namespace

int64_t default_cache_tokens(const models::CausalLM& model, CacheType type, int64_t context) {
  const nn::KvCache one(cache_options(model, type));
  const at::Device device = model.device();
  const int64_t free = device == kHost ? available_memory_bytes() : device_room(device).free_bytes;
  const int64_t pages = free / 4 / std::max<int64_t>(1, one.page_bytes());
  return std::max(context, pages * nn::KvCache::kPageTokens);
}

serving::EngineFacts engine_facts(const models::CausalLM& model, const ServingEngineOptions& options) {
  model.check_continues_texts("serving");
  serving::EngineFacts facts;
  const models::ModelConfig& config = model.config();
  facts.vocabulary = config.vocab_size;
  facts.context = scored_length(model);
  if (config.document_bound) facts.context = std::min(facts.context, config.document_bound->tokens);
  if (options.max_context > 0) facts.context = std::min(facts.context, options.max_context);
  facts.embedding_size = config.hidden_size;
  facts.no_embeddings = options.embeddings.refusal;
  facts.max_sequences = options.max_batch;
  facts.max_waiting = options.max_waiting;
  if (config.is_encoder) facts.no_answers = "the model is an encoder, which generates nothing";
  if (config.classification && !config.is_encoder)
    facts.no_answers = "the model is a classifier, which generates nothing";
  if (!facts.no_answers.empty()) return facts;
  facts.cache_tokens = options.max_cache_tokens;
  // By default it need not hold more than all answers at once may need; prompts to come would profit.
  if (facts.cache_tokens == 0) {
    facts.cache_tokens = std::min(default_cache_tokens(model, options.cache_type, facts.context),
                                  options.max_batch * (facts.context + nn::KvCache::kPageTokens));
  }
  if (options.orders == nullptr) return facts;
  facts.cache_tokens = options.orders->least_of(facts.cache_tokens);
  // Ranks make the same choices about their caches only if these work alike.
  const std::string way = std::to_string(model.cache_options().window) + why_no_shared_pages(model);
  if (!options.orders->is_same(way)) {
    throw Error(ErrorKind::Config, "PARALLELISM",
                "the stages of this model keep their caches in different ways")
        .need("--pipeline-parallel-size 1")
        .hint("--tensor-parallel-size divides each layer instead");
  }
  return facts;
}

GeneratorOptions generator_options(const serving::EngineFacts& facts, const ServingEngineOptions& options) {
  return {.max_batch = options.max_batch,
          .max_cache_tokens = facts.cache_tokens,
          .max_prefill_tokens = options.max_prefill_tokens,
          .max_prefills = 1,
          .max_part_tokens = part_tokens(options),
          .whole_parts = options.max_prefill_tokens == 1 ? 1 : options.whole_parts,
          .shares_pages = options.has_prefix_cache,
          .max_draft_tokens = options.max_draft_tokens,
          .cache_type = options.cache_type};
}

// The lists below are handed over under the mutex; the generator and the open answers belong to the thread.
class ServingEngine::Worker {
 public:
  Worker(models::CausalLM& model, const ServingEngineOptions& options)
      : facts_(engine_facts(model, options)),
        orders_(options.orders),
        on_broken_(options.on_broken),
        embeddings_(model, options.embeddings.pooling, options.max_prefill_tokens, on_pass()) {
    if (facts_.no_answers.empty()) {
      GeneratorOptions of_generator = generator_options(facts_, options);
      if (orders_ != nullptr) of_generator.tell = [this](const auto& got) { orders_->tell(text_of(got)); };
      generator_.emplace(model, of_generator);
    }
    end_idle_team();
    thread_ = std::thread([this] { run(); });
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  const serving::EngineFacts& facts() const { return facts_; }

  serving::EngineState state() const {
    const std::lock_guard lock(mutex_);
    return state_;
  }

  std::optional<std::vector<int64_t>> submit(std::vector<serving::EngineRequest> requests) {
    std::vector<int64_t> numbers;
    {
      const std::lock_guard lock(mutex_);
      const auto all = num_open_ + std::ssize(requests);
      if (is_stopping_ || all > facts_.max_sequences + facts_.max_waiting) return std::nullopt;
      num_open_ = all;
      state_.waiting += std::ssize(requests);
      for (serving::EngineRequest& request : requests) {
        numbers.push_back(next_++);
        new_.emplace_back(numbers.back(), std::move(request));
      }
    }
    wake_.notify_one();
    return numbers;
  }

  std::optional<int64_t> embed(serving::EmbeddingRequest request) {
    int64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_ || num_open_ >= facts_.max_sequences + facts_.max_waiting) return std::nullopt;
      ++num_open_;
      ++state_.waiting;
      number = next_++;
      new_embeddings_.emplace_back(number, std::move(request));
    }
    wake_.notify_one();
    return number;
  }

  void cancel(int64_t number) {
    {
      const std::lock_guard lock(mutex_);
      cancelled_.push_back(number);
    }
    wake_.notify_one();
  }

 private:
  struct Open {
    int64_t number = 0;
    std::shared_ptr<serving::AnswerReceiver> receiver;
    std::shared_ptr<Course> course;
    bool is_cancelled = false;
  };

  void run() {
    while (take_orders()) {
      std::string problem;
      EndReason failure = EndReason::Failed;
      count_ended(embeddings_.step());
      try {
        tell_step();
        if (generator_) generator_->step();
      } catch (const std::exception& error) {
        if (is_broken(error)) on_broken_(error);
        // Answers that ended by it are found below; the others go on.
        problem = first_line(error.what());
        failure = failure_of(error);
        if (failure == EndReason::Failed) log::warn("an answer has failed: " + problem);
      }
      give_back(failure, problem);
    }
    for (auto& [request, open] : open_) open.receiver->end(EndReason::Cancelled, "");
    for (auto& [number, request] : new_) request.receiver->end(EndReason::Cancelled, "");
    embeddings_.cancel_all();
    for (auto& [number, request] : new_embeddings_) request.receiver->end(EndReason::Cancelled, "");
    if (orders_ != nullptr) orders_->tell(end_order());
  }

  // Returns the order of a pass over texts for the other ranks; nothing if there are no texts.
  EmbeddingQueue::OnPass on_pass() {
    if (orders_ == nullptr) return nullptr;
    return [this](const auto& texts, int64_t adapter) { orders_->tell(embed_order(texts, adapter)); };
  }

  // Tells whether other ranks may now be elsewhere in the work of the model.
  bool is_broken(const std::exception& error) const {
    if (orders_ == nullptr) return false;
    const auto* const own = dynamic_cast<const Error*>(&error);
    return (generator_ && generator_->has_broken_off()) || (own != nullptr && own->kind() == ErrorKind::Peer);
  }

  // Tells the other ranks which requests have come since the last step, and that a step begins.
  void tell_step() {
    if (orders_ == nullptr || !generator_) return;
    orders_->tell(step_order(std::exchange(step_, {})));
  }

  // Waits for something to do and takes what has come; returns false if the engine is to end.
  bool take_orders() {
    std::vector<std::pair<int64_t, serving::EngineRequest>> requests;
    std::vector<int64_t> cancelled;
    {
      // Nobody knows when the next request comes: the ranks that wait for this one are not in a hang.
      std::optional<comm::flight::StorageScope> is_long;
      if (orders_ != nullptr) is_long.emplace("wait for a request");
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] {
        return is_stopping_ || !new_.empty() || !new_embeddings_.empty() || !cancelled_.empty() ||
               !open_.empty() || !embeddings_.empty();
      });
      if (is_stopping_) return false;
      requests.swap(new_);
      cancelled.swap(cancelled_);
      for (auto& [number, request] : new_embeddings_) embeddings_.add(number, std::move(request));
      new_embeddings_.clear();
    }
    for (auto& [number, request] : requests) {
      try {
        const auto course = std::make_shared<Course>();
        const int64_t own = generator_.value().add(request_of(request, course));
        if (orders_ != nullptr) step_.add.push_back(request);
        open_[own] = {number, request.receiver, course};
      } catch (const std::exception& error) {
        end(*request.receiver, failure_of(error), first_line(error.what()));
      }
    }
    for (const int64_t number : cancelled) {
      if (embeddings_.cancel(number)) count_ended(1);
      const auto found =
          std::ranges::find(open_, number, [](const auto& entry) { return entry.second.number; });
      if (found == open_.end()) continue;
      found->second.is_cancelled = true;
      step_.cancel.push_back(found->first);
      generator_->cancel(found->first);
    }
    return true;
  }

  // Ends the answers that are finished, those that an error has ended by the reason `failure`.
  void give_back(EndReason failure, const std::string& problem) {
    std::erase_if(open_, [&](const auto& entry) {
      const auto result = generator_->take(entry.first);
      if (!result) return false;
      const Open& open = entry.second;
      EndReason reason = result->reason == FinishReason::Length ? EndReason::Length : EndReason::Stop;
      if (result->reason == FinishReason::Complete) reason = EndReason::Complete;
      if (result->reason == FinishReason::Callback && !open.course->has_stopped)
        reason = open.is_cancelled ? EndReason::Cancelled : failure;
      num_new_tokens_ += open.course->new_tokens;
      if (result->cached_tokens > 0) open.receiver->cached(result->cached_tokens);
      end(*open.receiver, reason, reason == failure ? problem : "");
      return true;
    });
    const std::lock_guard lock(mutex_);
    state_.running = embeddings_.size();
    state_.waiting = std::ssize(new_) + std::ssize(new_embeddings_);
    state_.prompt_tokens = embeddings_.num_tokens();
    if (!generator_) return;
    state_.running += generator_->num_running();
    state_.waiting += generator_->num_waiting();
    const nn::KvCache& cache = generator_->cache();
    state_.cache_usage = static_cast<double>(cache.used_pages()) /
                         static_cast<double>(std::max<int64_t>(1, cache.options().max_pages));
    const GeneratorCounts& counts = generator_->counts();
    state_.prompt_tokens += counts.prompt_tokens;
    state_.preemptions = counts.preemptions;
    state_.looked_up_tokens = counts.looked_up_tokens;
    state_.found_tokens = counts.found_tokens;
    state_.drafts = counts.drafts;
    state_.drafted_tokens = counts.drafted_tokens;
    state_.accepted_tokens = counts.accepted_tokens;
    state_.new_tokens = num_new_tokens_;
  }

  void end(serving::AnswerReceiver& receiver, EndReason reason, const std::string& problem) {
    receiver.end(reason, problem);
    count_ended(1);
  }
  void count_ended(int64_t requests) {
    const std::lock_guard lock(mutex_);
    num_open_ -= requests;
  }

  const serving::EngineFacts facts_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::pair<int64_t, serving::EngineRequest>> new_;
  std::vector<std::pair<int64_t, serving::EmbeddingRequest>> new_embeddings_;
  std::vector<int64_t> cancelled_;
  serving::EngineState state_;
  int64_t next_ = 0, num_open_ = 0;
  bool is_stopping_ = false;

  const std::shared_ptr<RankOrders> orders_;  // null if the model is whole here
  const std::function<void(const std::exception&)> on_broken_;
  StepOrder step_;  // that the other ranks are yet to be told

  std::optional<Generator> generator_;  // of a model that gives answers
  EmbeddingQueue embeddings_;
  std::map<int64_t, Open> open_;  // by their numbers in the generator
  int64_t num_new_tokens_ = 0;    // of answers that have ended
  std::thread thread_;            // the last member: it uses all others
};

ServingEngine::ServingEngine(models::CausalLM& model, const ServingEngineOptions& options)
    : worker_(std::make_unique<Worker>(model, options)) {}
ServingEngine::~ServingEngine() = default;
serving::EngineFacts ServingEngine::facts() const { return worker_->facts(); }
serving::EngineState ServingEngine::state() const { return worker_->state(); }
std::optional<std::vector<int64_t>> ServingEngine::submit(std::vector<serving::EngineRequest> requests) {
  return worker_->submit(std::move(requests));
}
std::optional<int64_t> ServingEngine::embed(serving::EmbeddingRequest request) {
  return worker_->embed(std::move(request));
}
void ServingEngine::cancel(int64_t number) { worker_->cancel(number); }

}  // namespace tessera::generation

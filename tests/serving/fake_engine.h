// An engine for tests that answers each prompt with the prompt's own tokens, one after another, or as told.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tessera/serving/engine.h"

namespace tessera::testing {

class FakeEngine : public serving::Engine {
 public:
  FakeEngine() : thread_([this] { run(); }) {}
  ~FakeEngine() override {
    {
      const std::lock_guard lock(mutex_);
      has_ended_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  serving::EngineFacts facts() const override {
    return {.vocabulary = 264,
            .context = 100,
            .cache_tokens = 0,
            .max_sequences = 2,
            .max_waiting = 4,
            .embedding_size = 3,
            .no_answers = no_answers,
            .no_embeddings = no_embeddings};
  }
  serving::EngineState state() const override {
    return {.running = 1, .waiting = 2, .cache_usage = 0.5, .accepted_tokens = 5};
  }
  std::optional<std::vector<int64_t>> submit(std::vector<serving::EngineRequest> requests) override {
    const std::lock_guard lock(mutex_);
    if (is_full) return std::nullopt;
    std::vector<int64_t> numbers;
    for (auto& request : requests) {
      numbers.push_back(next_++);
      last_ = request;
      queue_.push_back({numbers.back(), std::move(request)});
    }
    wake_.notify_one();
    return numbers;
  }
  // The embedding of a text is its size, its first token and 0.1, or their quotients.
  std::optional<int64_t> embed(serving::EmbeddingRequest request) override {
    if (is_full) return std::nullopt;
    for (const auto& text : request.texts) {
      if (is_broken) break;
      std::vector<float> values = {static_cast<float>(text.size()), static_cast<float>(text[0]), 0.1F};
      if (request.normalizes) values = {values[0] / values[1], 1.0F, values[2] / values[1]};
      request.receiver->embedding(values);
    }
    request.receiver->end(is_broken ? serving::EndReason::Failed : serving::EndReason::Stop,
                          is_broken ? "an embedding is not finite" : "");
    const std::lock_guard lock(mutex_);
    return next_++;
  }
  void cancel(int64_t number) override {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(number);
    ++num_cancelled;
    wake_.notify_one();
  }

  // Returns the last request that was submitted.
  serving::EngineRequest last() {
    const std::lock_guard lock(mutex_);
    return last_;
  }

  std::atomic<bool> is_full = false;    // refuses requests
  std::atomic<bool> is_held = false;    // answers nothing
  std::atomic<bool> is_broken = false;  // every answer fails after its first token
  std::atomic<serving::EndReason> failure = serving::EndReason::Failed;  // by which it does
  std::atomic<int> num_cancelled = 0;
  std::string no_answers, no_embeddings;  // set before it is asked
  std::vector<int64_t> told;              // the answer to every prompt, if not empty; set before it is asked

 private:
  using Entry = std::pair<int64_t, serving::EngineRequest>;

  void run() {
    while (true) {
      Entry entry;
      bool is_cancelled = false;
      {
        std::unique_lock lock(mutex_);
        wake_.wait_for(lock, std::chrono::milliseconds(2), [this] { return has_ended_; });
        const auto gone = std::ranges::find_if(queue_, [this](const Entry& each) {
          return has_ended_ || std::ranges::find(cancelled_, each.first) != cancelled_.end();
        });
        is_cancelled = gone != queue_.end();
        if (!is_cancelled && has_ended_) return;
        if (!is_cancelled && (queue_.empty() || is_held)) continue;
        const auto chosen = is_cancelled ? gone : queue_.begin();
        entry = std::move(*chosen);
        queue_.erase(chosen);
      }
      if (is_cancelled) {
        entry.second.receiver->end(serving::EndReason::Cancelled, "");
      } else {
        answer(entry.second);
      }
    }
  }

  static scoring::TokenLogProbs log_probs_of(const serving::EngineRequest& request, size_t place) {
    scoring::TokenLogProbs made{-0.25 * static_cast<double>(place), {}};
    for (int64_t i = 0; i < request.num_top; ++i)
      made.top.push_back({i + 65, -0.5 * static_cast<double>(i + 1)});
    return made;
  }

  void answer(const serving::EngineRequest& request) {
    serving::AnswerReceiver& receiver = *request.receiver;
    if (request.scores_prompt) {
      std::vector<scoring::TokenLogProbs> of_prompt;
      for (size_t i = 1; i < request.prompt.size(); ++i) of_prompt.push_back(log_probs_of(request, i));
      receiver.of_prompt(of_prompt);
    }
    receiver.cached(std::ssize(request.prompt) / 2);
    const std::vector<int64_t>& answer = told.empty() ? request.prompt : told;
    for (size_t i = 0; i < answer.size(); ++i) {
      const int64_t id = answer[i];
      if (request.wants_log_probs) receiver.log_probs(id, log_probs_of(request, request.prompt.size() + i));
      if (std::ranges::find(request.stop_ids, id) != request.stop_ids.end())
        return receiver.end(serving::EndReason::Stop, "");
      if (!receiver.token(id)) return receiver.end(serving::EndReason::Stop, "");
      if (is_broken) return receiver.end(failure, "the logits are not finite");
      if (static_cast<int64_t>(i) + 1 == request.max_new_tokens)
        return receiver.end(serving::EndReason::Length, "");
    }
    receiver.end(serving::EndReason::Length, "");
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Entry> queue_;
  std::vector<int64_t> cancelled_;
  serving::EngineRequest last_;
  int64_t next_ = 0;
  bool has_ended_ = false;
  std::thread thread_;
};

}  // namespace tessera::testing

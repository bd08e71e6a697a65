// Parts that tests of engines share: a receiver that keeps an answer, and requests whose answers are drawn.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tessera/generation/generate.h"
#include "tessera/serving/engine.h"

namespace tessera::generation {

class Receiver : public serving::AnswerReceiver {
 public:
  void of_prompt(const std::vector<scoring::TokenLogProbs>& log_probs) override {
    num_of_prompt = log_probs.size();
  }
  void log_probs(int64_t, const scoring::TokenLogProbs&) override { ++num_log_probs; }
  bool token(int64_t id) override {
    ids.push_back(id);
    ++num_tokens;
    return std::ssize(ids) < most;
  }
  void cached(int64_t tokens) override { num_cached = tokens; }
  void end(serving::EndReason why, const std::string& what) override {
    reason = why;
    problem = what;
    has_ended = true;
  }
  void wait() const {
    for (int i = 0; i < 6000 && !has_ended; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_TRUE(has_ended);
  }

  std::vector<int64_t> ids;
  int64_t most = 1 << 20;
  size_t num_of_prompt = 0;
  int64_t num_cached = 0;
  std::atomic<int64_t> num_tokens = 0, num_log_probs = 0;
  std::atomic<bool> has_ended = false;
  serving::EndReason reason = serving::EndReason::Failed;
  std::string problem;
};

inline serving::EngineRequest request_for(const std::shared_ptr<Receiver>& receiver,
                                          std::vector<int64_t> prompt, int64_t max_new_tokens) {
  return {.prompt = std::move(prompt),
          .sampling = {.temperature = 1.0, .seed = 5},
          .max_new_tokens = max_new_tokens,
          .receiver = receiver};
}

inline GenerateOptions options_like(int64_t max_new_tokens) {
  GenerateOptions options;
  options.sampling = {.temperature = 1.0, .seed = 5};
  options.stop_ids = {-1};
  options.max_new_tokens = max_new_tokens;
  return options;
}

}  // namespace tessera::generation

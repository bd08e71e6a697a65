// One request for answers, from its submission to the last byte of its reply.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/serving/http_server.h"
#include "tessera/serving/metrics.h"
#include "tessera/serving/requests.h"

namespace tessera::serving {

// Everything behind start() happens on the engine's thread.
class Job : public AnswerListener, public std::enable_shared_from_this<Job> {
 public:
  // `request_id` is told to the client.
  Job(std::shared_ptr<HttpExchange> exchange, AnswerRequest request, std::shared_ptr<const ServedModel> model,
      std::shared_ptr<Metrics> metrics, std::string request_id);

  // Gives the answers to the engine, which must outlive the job. If the client goes away, they are cancelled.
  // Throws ApiError (503) if the engine has no room; nothing is sent then.
  void start(Engine& engine);

  void has_grown(Answer& answer) override;
  void has_ended(Answer& answer, const std::string& problem) override;

 private:
  using Clock = std::chrono::steady_clock;
  // The times of one answer.
  struct Course {
    Clock::time_point first, last;
    bool has_begun = false;
  };

  std::vector<std::pair<std::string, std::string>> headers() const;
  // Begins the event stream, once.
  void begin();
  void fail(const ApiError& error);
  void complete();
  // Returns a new id for a call, as the model's template takes it.
  std::string call_id() const;
  void count(const Answer& answer, const std::string& problem);
  // Calls `use` with what has come of an answer since the last call.
  template <class Use>
  void take_piece(Answer& answer, Use use);

  const std::shared_ptr<HttpExchange> exchange_;
  AnswerRequest request_;
  // The engine may end answers after the service is gone.
  const std::shared_ptr<const ServedModel> model_;
  const std::shared_ptr<Metrics> metrics_;
  const std::string request_id_;
  const ReplyFacts facts_;
  const SendEvent send_;
  const Clock::time_point arrived_ = Clock::now();
  std::deque<Answer> answers_;  // keep their addresses
  std::vector<Course> courses_;
  size_t num_ended_ = 0;
  std::vector<Json> replies_;  // of answers that are not streamed, by their numbers
  std::once_flag has_begun_;
  bool has_failed_ = false;
};

// Returns `prefix` with 128 random bits.
std::string random_id(const std::string& prefix);

}  // namespace tessera::serving

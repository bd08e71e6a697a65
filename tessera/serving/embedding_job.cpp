#include "tessera/serving/embedding_job.h"

#include "tessera/serving/api_error.h"

namespace tessera::serving {

void EmbeddingJob::start(Engine& engine) {
  const auto number =
      engine.embed({std::move(fields_.texts), fields_.normalizes, shared_from_this(), model_->adapter});
  if (!number) {
    metrics_->count_rejection();
    throw ApiError::busy("too many requests are waiting for an answer; try again later");
  }
  exchange_->when_gone([&engine, number = *number] { engine.cancel(number); });
}

void EmbeddingJob::end(EndReason reason, const std::string& problem) {
  const bool is_done = reason == EndReason::Stop;
  metrics_->count_answer({.reason = is_done                          ? "stop"
                                    : reason == EndReason::Cancelled ? "abort"
                                                                     : "error",
                          .prompt_tokens = fields_.num_tokens,
                          .whole_s = std::chrono::duration<double>(Clock::now() - arrived_).count()});
  HttpReply reply;
  if (is_done) {
    reply.body = embedding_reply(fields_, vectors_, model_->name);
  } else {
    const ApiError error = reason == EndReason::Cancelled ? ApiError::busy("the request was cancelled")
                                                          : ApiError::failed(problem);
    reply = {error.status(), error.body()};
    if (!error.may_retry()) reply.headers.emplace_back("X-Should-Retry", "false");
  }
  reply.headers.emplace_back("X-Request-Id", request_id_);
  exchange_->reply(std::move(reply));
}

}  // namespace tessera::serving

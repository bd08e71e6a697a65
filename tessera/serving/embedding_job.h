// One request for embeddings, from its submission to its reply.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tessera/serving/embedding_request.h"
#include "tessera/serving/engine.h"
#include "tessera/serving/http_server.h"
#include "tessera/serving/metrics.h"

namespace tessera::serving {

// Everything behind start() happens on the engine's thread.
class EmbeddingJob : public EmbeddingReceiver, public std::enable_shared_from_this<EmbeddingJob> {
 public:
  // `request_id` is told to the client.
  EmbeddingJob(std::shared_ptr<HttpExchange> exchange, EmbeddingFields fields,
               std::shared_ptr<const ServedModel> model, std::shared_ptr<Metrics> metrics,
               std::string request_id)
      : exchange_(std::move(exchange)),
        fields_(std::move(fields)),
        model_(std::move(model)),
        metrics_(std::move(metrics)),
        request_id_(std::move(request_id)) {}

  // Gives the texts to the engine, which must outlive the job. If the client goes away, the request is
  // cancelled. Throws ApiError (503) if the engine has no room; nothing is sent then.
  void start(Engine& engine);

  void embedding(std::vector<float> values) override { vectors_.push_back(std::move(values)); }
  void end(EndReason reason, const std::string& problem) override;

 private:
  using Clock = std::chrono::steady_clock;

  const std::shared_ptr<HttpExchange> exchange_;
  EmbeddingFields fields_;
  // The engine may end requests after the service is gone.
  const std::shared_ptr<const ServedModel> model_;
  const std::shared_ptr<Metrics> metrics_;
  const std::string request_id_;
  const Clock::time_point arrived_ = Clock::now();
  std::vector<std::vector<float>> vectors_;
};

}  // namespace tessera::serving

// The routes of the server.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tessera/serving/api_keys.h"
#include "tessera/serving/engine.h"
#include "tessera/serving/fields.h"
#include "tessera/serving/http_server.h"
#include "tessera/serving/metrics.h"
#include "tessera/serving/served_model.h"

namespace tessera::serving {

struct ServiceOptions {
  ApiKeys keys = {};
  int num_threads = 2;  // that read requests: parse, render templates, encode texts
};

// A HttpServer calls check() and handle(). The engine must outlive the server and the service, and the
// service the server.
class Service {
 public:
  // A request that names no model gets the first one. Names differ.
  Service(Engine& engine, std::vector<ServedModel> models, ServiceOptions options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  std::optional<HttpReply> check(const HttpRequest& head) const;
  void handle(const std::shared_ptr<HttpExchange>& exchange);
  // Refuses new answers from now on, which /health tells, with the time that is left for those under way.
  void drain(double seconds);

 private:
  using Model = std::shared_ptr<const ServedModel>;

  HttpReply health() const;
  HttpReply page(const std::string& path) const;
  HttpReply tokenize(const Json& body, const ServedModel& model) const;
  HttpReply detokenize(const Json& body, const ServedModel& model) const;
  Json describe(const ServedModel& model) const;
  // Returns the model of this name, or null.
  Model find_model(const std::string& name) const;
  // Returns the model that a request asks for. Throws ApiError (404) if it is not served here.
  Model model_of(const Json& body) const;
  // Answers a request whose body has to be read; runs on one of the threads.
  void answer(const std::shared_ptr<HttpExchange>& exchange);
  void start_job(const std::shared_ptr<HttpExchange>& exchange, const Json& body,
                 const std::string& request_id);
  void start_embedding(const std::shared_ptr<HttpExchange>& exchange, const Json& body,
                       const std::string& request_id);
  // Throws ApiError (503) if the server takes nothing new.
  void refuse_when_draining() const;
  void warn_of(const std::vector<std::string>& unknown);
  void work();

  Engine& engine_;
  std::vector<Model> models_;
  const ServiceOptions options_;
  const std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  std::atomic<double> drains_until_ = 0.0;  // seconds since 1970; 0 = does not drain

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<HttpExchange>> queue_;
  std::set<std::string> warned_;  // fields of which the log has told
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tessera::serving

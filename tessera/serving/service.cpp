#include "tessera/serving/service.h"

#include <algorithm>
#include <new>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/core/unix_time.h"
#include "tessera/core/version.h"
#include "tessera/serving/api_error.h"
#include "tessera/serving/browser_page.h"
#include "tessera/serving/embedding_job.h"
#include "tessera/serving/embedding_request.h"
#include "tessera/serving/fields.h"
#include "tessera/serving/job.h"
#include "tessera/serving/message_format.h"
#include "tessera/serving/message_request.h"
#include "tessera/serving/pages.h"
#include "tessera/serving/requests.h"
#include "tessera/serving/tool_fields.h"

namespace tessera::serving {
namespace {

struct Route {
  const char* method;
  const char* path;
};
constexpr const char* kModels = "/v1/models";
constexpr const char* kMessages = "/v1/messages";
constexpr const char* kEmbeddings = "/v1/embeddings";
constexpr const char* kPage = "/";
constexpr Route kRoutes[] = {{"GET", kPage},
                             {"GET", "/health"},
                             {"GET", "/version"},
                             {"GET", "/metrics"},
                             {"GET", kModels},
                             {"POST", "/v1/messages"},
                             {"POST", "/v1/messages/count_tokens"},
                             {"POST", "/v1/completions"},
                             {"POST", "/v1/chat/completions"},
                             {"POST", kEmbeddings},
                             {"POST", "/tokenize"},
                             {"POST", "/detokenize"}};

bool is_message_route(const std::string& path) { return path.starts_with(kMessages); }

// Returns the reply to a request for `path`, in the form of its protocol.
HttpReply reply_of(const ApiError& error, const std::string& path) {
  HttpReply reply{error.status(),
                  is_message_route(path) ? MessageFormat::message_error(error) : error.body()};
  if (error.may_retry()) reply.headers.emplace_back("Retry-After", "1");
  if (error.status() >= 500 && !error.may_retry()) reply.headers.emplace_back("X-Should-Retry", "false");
  return reply;
}

HttpReply reply_of(const Json& json) { return {200, text_of(json)}; }

// Returns the client's own number of the request if it may stand in a header, else a new one.
std::string id_of(const HttpRequest& request) {
  const std::string given = request.header("x-request-id");
  const bool is_safe =
      !given.empty() && given.size() <= 128 && std::ranges::all_of(given, [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
      });
  return is_safe ? given : random_id("req-");
}

ServedModel with_constraints(ServedModel model, const EngineFacts& facts) {
  model.constraints = std::make_shared<text::ConstraintMaker>(model.tokenizer, facts.vocabulary);
  return model;
}

}  // namespace

Service::Service(Engine& engine, std::vector<ServedModel> models, ServiceOptions options)
    : engine_(engine), options_(std::move(options)) {
  TESSERA_ASSERT(!models.empty(), "a server has a model");
  for (ServedModel& model : models)
    models_.push_back(
        std::make_shared<const ServedModel>(with_constraints(std::move(model), engine.facts())));
  for (int i = 0; i < options_.num_threads; ++i) threads_.emplace_back([this] { work(); });
}

Service::~Service() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::optional<HttpReply> Service::check(const HttpRequest& head) const {
  // The page holds nothing of the server's: it asks for the key that its requests need.
  const bool is_open = head.path == "/health" || head.path == kPage;
  if (!is_open && !options_.keys.allow(head.header("authorization"), head.header("x-api-key")))
    return reply_of(ApiError::no_key(), head.path);
  const auto route = std::ranges::find_if(kRoutes, [&](const Route& each) { return head.path == each.path; });
  const bool is_one_model = head.path.starts_with(kModels + std::string("/"));
  if (route == std::end(kRoutes) && !is_one_model)
    return reply_of(ApiError::not_found("there is no route " + head.method + " " + head.path), head.path);
  const std::string method = is_one_model ? "GET" : route->method;
  if (head.method != method && !(method == "GET" && head.method == "HEAD")) {
    HttpReply reply =
        reply_of(ApiError(405, "invalid_request_error", head.path + " takes " + method), head.path);
    reply.headers.emplace_back("Allow", method);
    return reply;
  }
  // A page of another site cannot send this type without asking first, so that it cannot use a server that
  // only listens to its own machine.
  if (method == "POST" && !lower(head.header("content-type")).starts_with("application/json")) {
    return reply_of(
        ApiError(415, "invalid_request_error", "the header Content-Type: application/json is needed"),
        head.path);
  }
  return std::nullopt;
}

void Service::handle(const std::shared_ptr<HttpExchange>& exchange) {
  const HttpRequest& request = exchange->request();
  if (request.method != "POST") {
    HttpReply reply = page(request.path);
    reply.headers.emplace_back("X-Request-Id", id_of(request));
    return exchange->reply(std::move(reply));
  }
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(exchange);
  }
  wake_.notify_one();
}

void Service::drain(double seconds) { drains_until_ = unix_time_s() + seconds; }

HttpReply Service::page(const std::string& path) const {
  if (path == "/health") return health();
  if (path == kPage) return browser_page(std::string(chat_page()));
  if (path == "/version") return reply_of(Json{{"version", program_version()}});
  if (path == "/metrics")
    return {200, metrics_->text(models_.front()->name, engine_.state()),
            "text/plain; version=0.0.4; charset=utf-8"};
  if (path == kModels) {
    Json all = Json::array();
    for (const Model& model : models_) all.push_back(describe(*model));
    return reply_of(Json{{"object", "list"}, {"data", all}});
  }
  const std::string name = path.substr(std::string(kModels).size() + 1);
  if (const Model model = find_model(name)) return reply_of(describe(*model));
  return reply_of(
      ApiError::not_found("the model '" + name + "' is not served here", "model", "model_not_found"), path);
}

Json Service::describe(const ServedModel& model) const {
  Json told = {{"id", model.name},
               {"object", "model"},
               {"created", model.created},
               {"owned_by", "tessera"},
               {"max_model_len", engine_.facts().context}};
  if (model.adapter != 0) told["parent"] = models_.front()->name;
  return told;
}

Service::Model Service::find_model(const std::string& name) const {
  const auto found = std::ranges::find_if(models_, [&](const Model& each) { return each->name == name; });
  return found == models_.end() ? nullptr : *found;
}

Service::Model Service::model_of(const Json& body) const {
  const auto name = Fields(body).text("model");
  if (!name) return models_.front();
  if (Model model = find_model(*name)) return model;
  std::vector<std::string> names;
  for (const Model& each : models_) names.push_back("'" + each->name + "'");
  throw ApiError::not_found(
      "the model '" + *name + "' is not served here; this server has " + join(names, ", "), "model",
      "model_not_found");
}

HttpReply Service::health() const {
  if (const double until = drains_until_; until > 0.0) {
    HttpReply reply =
        reply_of(Json{{"status", "draining"}, {"seconds_left", std::max(0.0, until - unix_time_s())}});
    reply.status = 503;
    return reply;
  }
  return reply_of(Json{{"status", "ok"}});
}

HttpReply Service::tokenize(const Json& body, const ServedModel& model) const {
  Fields fields(body);
  std::vector<int64_t> ids;
  if (fields.find("messages") != nullptr) {
    ids = encode_messages(fields, read_tools(fields).tools, model);
  } else if (const auto text = fields.text("prompt")) {
    ids = encode_text(*text, fields.boolean("add_special_tokens", true), model);
  } else {
    throw fields.problem("prompt", "\"prompt\" or \"messages\" is needed");
  }
  Json reply = {{"count", ids.size()}, {"max_model_len", engine_.facts().context}, {"tokens", ids}};
  if (fields.boolean("return_token_strs", false)) {
    reply["token_strs"] = Json::array();
    for (const int64_t id : ids)
      reply["token_strs"].push_back(model.tokenizer.id_to_token(static_cast<int32_t>(id)));
  }
  return reply_of(reply);
}

HttpReply Service::detokenize(const Json& body, const ServedModel& model) const {
  Fields fields(body);
  if (fields.find("tokens") == nullptr) throw fields.problem("tokens", "this field is needed");
  const auto ids = fields.integers("tokens", 0, engine_.facts().vocabulary - 1);
  return reply_of(Json{{"prompt", model.tokenizer.decode(std::vector<int32_t>(ids.begin(), ids.end()))}});
}

void Service::work() {
  while (true) {
    std::shared_ptr<HttpExchange> exchange;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return is_stopping_ || !queue_.empty(); });
      if (is_stopping_) return;
      exchange = std::move(queue_.front());
      queue_.pop_front();
    }
    answer(exchange);
  }
}

void Service::answer(const std::shared_ptr<HttpExchange>& exchange) {
  const HttpRequest& request = exchange->request();
  const std::string id = id_of(request);
  HttpReply reply;
  try {
    const Json body = parse_body(request.body);
    if (request.path == "/tokenize") {
      reply = tokenize(body, *model_of(body));
    } else if (request.path == "/detokenize") {
      reply = detokenize(body, *model_of(body));
    } else if (request.path == "/v1/messages/count_tokens") {
      reply = reply_of(Json{{"input_tokens", count_message_tokens(body, *model_of(body))}});
    } else if (request.path == kEmbeddings) {
      return start_embedding(exchange, body, id);
    } else {
      return start_job(exchange, body, id);
    }
  } catch (const ApiError& error) {
    reply = reply_of(error, request.path);
  } catch (const Error& error) {
    // The request is at fault for what a template or the tokenizer refuses.
    const bool is_ours = error.kind() == ErrorKind::Internal || error.kind() == ErrorKind::Memory;
    reply = reply_of(is_ours ? ApiError::failed(std::string(error.message()))
                             : ApiError::bad(std::string(error.message())),
                     request.path);
  } catch (const std::bad_alloc&) {
    reply = reply_of(ApiError::failed("out of memory"), request.path);
  } catch (const std::exception& error) {
    log::warn("request " + id + ": " + first_line(error.what()));
    reply = reply_of(ApiError::failed("the request could not be read"), request.path);
  }
  reply.headers.emplace_back("X-Request-Id", id);
  exchange->reply(std::move(reply));
}

void Service::start_job(const std::shared_ptr<HttpExchange>& exchange, const Json& body,
                        const std::string& request_id) {
  refuse_when_draining();
  const EngineFacts facts = engine_.facts();
  if (!facts.no_answers.empty())
    throw ApiError::bad(facts.no_answers + "; ask " + kEmbeddings + " for embeddings", "model");
  const std::string& path = exchange->request().path;
  const Model model = model_of(body);
  AnswerRequest request = path == kMessages           ? read_message_request(body, *model, facts)
                          : path == "/v1/completions" ? read_completion(body, *model, facts)
                                                      : read_chat(body, *model, facts);
  warn_of(request.unknown);
  if (const auto most = facts.max_sequences + facts.max_waiting; std::ssize(request.plans) > most) {
    throw ApiError::bad("the request asks for " + std::to_string(request.plans.size()) +
                            " answers, but this server takes at most " + std::to_string(most) + " at once",
                        "n");
  }
  std::make_shared<Job>(exchange, std::move(request), model, metrics_, request_id)->start(engine_);
}

void Service::start_embedding(const std::shared_ptr<HttpExchange>& exchange, const Json& body,
                              const std::string& request_id) {
  refuse_when_draining();
  const Model model = model_of(body);
  EmbeddingFields fields = read_embedding(body, *model, engine_.facts());
  warn_of(fields.unknown);
  std::make_shared<EmbeddingJob>(exchange, std::move(fields), model, metrics_, request_id)->start(engine_);
}

void Service::refuse_when_draining() const {
  if (drains_until_ > 0.0) throw ApiError::busy("the server is shutting down");
}

void Service::warn_of(const std::vector<std::string>& unknown) {
  constexpr size_t kMostWarnings = 100;
  for (const std::string& name : unknown) {
    const std::string shown = name.substr(0, 60);
    {
      const std::lock_guard lock(mutex_);
      if (warned_.size() >= kMostWarnings || !warned_.insert(shown).second) continue;
    }
    log::warn("requests have the unknown field '" + shown + "', which is ignored (told once)");
  }
}

}  // namespace tessera::serving

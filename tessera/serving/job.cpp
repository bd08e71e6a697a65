#include "tessera/serving/job.h"

#include <cstdio>
#include <random>
#include <utility>

#include "tessera/core/unix_time.h"

namespace tessera::serving {
namespace {

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

std::string random_id(const std::string& prefix) {
  static thread_local std::random_device chance;
  char text[40];
  std::snprintf(text, sizeof text, "%08x%08x%08x%08x", chance(), chance(), chance(), chance());
  return prefix + text;
}

Job::Job(std::shared_ptr<HttpExchange> exchange, AnswerRequest request,
         std::shared_ptr<const ServedModel> model, std::shared_ptr<Metrics> metrics, std::string request_id)
    : exchange_(std::move(exchange)),
      request_(std::move(request)),
      model_(std::move(model)),
      metrics_(std::move(metrics)),
      request_id_(std::move(request_id)),
      facts_({.id = random_id(request_.format->id_prefix()),
              .model = model_->name,
              .created = static_cast<int64_t>(unix_time_s()),
              .num_answers = std::ssize(request_.plans),
              .prompt_tokens = request_.prompt_tokens,
              .includes_usage = request_.fields.includes_usage}),
      send_([exchange = exchange_](const std::string& name, const std::string& data) {
        exchange->send_event(data, name);
      }),
      courses_(request_.plans.size()),
      replies_(request_.plans.size()) {
  for (const AnswerPlan& plan : request_.plans)
    answers_.emplace_back(plan, request_.fields, model_->tokenizer, *this);
}

void Job::start(Engine& engine) {
  std::vector<EngineRequest> requests;
  const auto self = shared_from_this();
  const AnswerFields& fields = request_.fields;
  for (size_t i = 0; i < answers_.size(); ++i) {
    AnswerPlan& plan = request_.plans[i];
    Sampling sampling = fields.sampling;
    // Each prompt of a list is answered as if it were alone.
    sampling.sequence = i % static_cast<size_t>(fields.n);
    requests.push_back({.prompt = std::move(plan.prompt),
                        .sampling = sampling,
                        .max_new_tokens = request_.max_new_tokens[i],
                        .adapter = model_->adapter,
                        .cache_salt = fields.cache_salt,
                        .stop_ids = fields.stop_ids,
                        .constraint = fields.constraint,
                        .wants_log_probs = fields.wants_log_probs,
                        .scores_prompt = plan.tells_prompt,
                        .num_top = fields.num_top,
                        .receiver = std::shared_ptr<AnswerReceiver>(self, &answers_[i])});
  }
  const auto numbers = engine.submit(std::move(requests));
  if (!numbers) {
    metrics_->count_rejection();
    throw ApiError::busy("too many requests are waiting for an answer; try again later");
  }
  begin();
  exchange_->when_gone([&engine, all = *numbers] {
    for (const int64_t number : all) engine.cancel(number);
  });
}

std::vector<std::pair<std::string, std::string>> Job::headers() const {
  return {{"X-Request-Id", request_id_}};
}

void Job::begin() {
  // The engine may have begun before start() comes here.
  std::call_once(has_begun_, [this] {
    if (!request_.fields.streams) return;
    exchange_->begin_events(headers());
    request_.format->begin(facts_, send_);
  });
}

template <class Use>
void Job::take_piece(Answer& answer, Use use) {
  const std::vector<ToldToken> tokens = answer.take_tokens();
  std::vector<ToldCall> calls;
  for (const text::CallDelta& call : answer.take_calls())
    calls.push_back({call.index, call.name.empty() ? "" : call_id(), call.name, call.arguments});
  use(Piece{.index = answer.index(),
            .text = answer.take_text(),
            .reasoning = answer.take_reasoning(),
            .calls = std::move(calls),
            .tokens = request_.fields.wants_log_probs ? &tokens : nullptr,
            .finish_reason = answer.finish_reason(),
            .stop = answer.stopped_by()});
}

std::string Job::call_id() const {
  std::string id = random_id(request_.format->call_prefix());
  const size_t letters = model_->tool_format != nullptr ? model_->tool_format->id_letters : 0;
  return letters > 0 ? id.substr(id.size() - letters) : id;
}

void Job::has_grown(Answer& answer) {
  begin();
  Course& course = courses_[static_cast<size_t>(answer.index())];
  const auto now = Clock::now();
  if (course.has_begun) {
    metrics_->count_token_gap(seconds(now - course.last));
  } else {
    course.first = now;
    course.has_begun = true;
  }
  course.last = now;
  // Text that may yet become a stop text or a call, and half a character, wait in the answer.
  if (request_.fields.streams && !has_failed_ && answer.has_news())
    take_piece(answer, [this](const Piece& piece) { request_.format->piece(facts_, piece, send_); });
}

void Job::has_ended(Answer& answer, const std::string& problem) {
  begin();
  count(answer, problem);
  ++num_ended_;
  if (!problem.empty() && !has_failed_)
    fail(answer.is_refused() ? ApiError::bad(problem) : ApiError::failed(problem));
  if (has_failed_) return;
  take_piece(answer, [&](const Piece& piece) {
    if (request_.fields.streams) {
      request_.format->piece(facts_, piece, send_);
    } else {
      replies_[static_cast<size_t>(answer.index())] = request_.format->answer(piece);
    }
  });
  if (num_ended_ == answers_.size()) complete();
}

void Job::fail(const ApiError& error) {
  has_failed_ = true;
  if (request_.fields.streams) {
    // The status has gone out already.
    request_.format->fail(error, send_);
    return exchange_->end_events();
  }
  HttpReply reply{error.status(), request_.format->error_body(error), "application/json", headers()};
  if (error.status() >= 500) reply.headers.emplace_back("X-Should-Retry", "false");
  exchange_->reply(std::move(reply));
}

void Job::complete() {
  Usage usage{request_.prompt_tokens, 0, 0};
  for (const Answer& answer : answers_) {
    usage.new_tokens += answer.new_tokens();
    // Like its tokens, what was cached of a prompt counts once, and not where its own other answers used it.
    if (answer.index() % request_.fields.n == 0) usage.cached_tokens += answer.cached_tokens();
  }
  if (request_.fields.streams) {
    request_.format->end(facts_, usage, send_);
    return exchange_->end_events();
  }
  exchange_->reply(
      {200, text_of(request_.format->whole(facts_, replies_, usage)), "application/json", headers()});
}

void Job::count(const Answer& answer, const std::string& problem) {
  const Course& course = courses_[static_cast<size_t>(answer.index())];
  AnswerFacts facts{.reason = !problem.empty()        ? "error"
                              : answer.is_cancelled() ? "abort"
                                                      : answer.finish_reason(),
                    .prompt_tokens = answer.prompt_tokens(),
                    .new_tokens = answer.new_tokens(),
                    .whole_s = seconds(Clock::now() - arrived_)};
  if (course.has_begun) {
    facts.queue_and_prefill_s = seconds(course.first - arrived_);
    facts.decode_s = seconds(course.last - course.first);
  }
  metrics_->count_answer(facts);
}

}  // namespace tessera::serving

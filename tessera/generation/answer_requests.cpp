#include "tessera/generation/answer_requests.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "tessera/generation/equal_passes.h"
#include "tessera/generation/score_tokens.h"

namespace tessera::generation {
namespace {

using scoring::OutputType;
using scoring::Request;
using scoring::Response;
using scoring::Task;
using scoring::TokenRequest;
using Responses = std::vector<std::vector<Response>>;

constexpr int64_t kUnboundedLength = 2048;

// Gives every rank the responses of all copies. `own` holds those of this rank's copy; the others are empty.
// Collective.
void share(Responses& own, const parallel::DeviceMesh& mesh) {
  if (mesh.size(parallel::kAxisLoss) == 1) return;
  std::string told;
  if (mesh.coordinate(parallel::kAxisTp) == 0 && mesh.coordinate(parallel::kAxisPp) == 0) {
    auto list = nlohmann::json::array();
    for (size_t i = 0; i < own.size(); ++i) {
      if (!own[i].empty()) list.push_back({i, own[i][0].log_likelihood, own[i][0].is_greedy});
    }
    nlohmann::json::to_cbor(list, told);
  }
  for (const std::string& text : mesh.world()->all_gather_string(told)) {
    if (text.empty()) continue;
    for (const nlohmann::json& one : nlohmann::json::from_cbor(text))
      own[one[0].get<size_t>()] = {{one[1].get<double>(), one[2].get<bool>(), ""}};
  }
}

Responses score_requests(const Task& task, models::CausalLM& model, const scoring::RequestEncoder& encoder,
                         const parallel::DeviceMesh& mesh, const AnswerRequestsOptions& options) {
  const std::vector<Request>& requests = task.requests();
  const auto copies = static_cast<size_t>(mesh.size(parallel::kAxisLoss)),
             own = static_cast<size_t>(mesh.coordinate(parallel::kAxisLoss));
  std::vector<TokenRequest> tokens;
  std::vector<size_t> owners;
  Responses responses(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    // Every rank encodes all requests, so that one that is refused is refused on all ranks.
    std::vector<TokenRequest> parts = task.encode(requests[i], encoder);
    if (requests[i].document % copies != own) continue;
    responses[i] = {{0.0, true, ""}};
    owners.insert(owners.end(), parts.size(), i);
    std::ranges::move(parts, std::back_inserter(tokens));
  }
  const std::vector<TokenScore> scores =
      score_tokens(model, tokens,
                   {.max_tokens = options.max_tokens,
                    .on_progress = options.on_progress,
                    .shares_beginnings = mesh.size(parallel::kAxisPp) == 1});
  for (size_t k = 0; k < scores.size(); ++k) {
    Response& response = responses[owners[k]][0];
    response.log_likelihood += scores[k].log_prob;
    response.is_greedy = response.is_greedy && scores[k].is_greedy;
  }
  share(responses, mesh);
  // The log-likelihood of a text is the same each time.
  for (auto& one : responses) one.resize(static_cast<size_t>(task.config().repeats), one.front());
  return responses;
}

// Takes the answers to the requests, `repeats` to each one after another.
class ResponseSink : public AnswerSink {
 public:
  ResponseSink(size_t requests, size_t repeats, std::function<void(int64_t, int64_t)> on_progress)
      : repeats_(repeats),
        on_progress_(std::move(on_progress)),
        responses_(requests, std::vector<Response>(repeats)) {}

  void add(size_t index, const std::string& text) override {
    responses_[index / repeats_][index % repeats_].text += text;
  }
  void finish(size_t, const AnswerEnd&) override {
    ++num_done_;
    if (on_progress_) on_progress_(num_done_, static_cast<int64_t>(responses_.size() * repeats_));
  }
  Responses take() { return std::move(responses_); }

 private:
  size_t repeats_;
  std::function<void(int64_t, int64_t)> on_progress_;
  int64_t num_done_ = 0;
  Responses responses_;
};

Responses generate_answers(const Task& task, models::CausalLM& model, const text::Tokenizer& tokenizer,
                           const scoring::RequestEncoder& encoder, const parallel::DeviceMesh& mesh,
                           const AnswerRequestsOptions& options) {
  const scoring::GenerationConfig& generation = task.config().generation;
  const auto repeats = static_cast<size_t>(task.config().repeats);
  std::vector<Prompt> prompts;
  for (const Request& request : task.requests()) {
    Prompt prompt;
    prompt.place = "task " + task.config().name + ", document " + std::to_string(request.document);
    prompt.ids = encoder.prompt(request.context, generation.max_tokens);
    prompts.insert(prompts.end(), repeats, prompt);
  }
  AnswerOptions answer;
  answer.generate.max_new_tokens = generation.max_tokens;
  answer.generate.stop_ids = options.stop_ids;
  answer.generate.sampling.temperature = generation.temperature;
  answer.generate.sampling.top_p = generation.top_p;
  answer.generate.sampling.top_k = generation.top_k;
  answer.generate.sampling.seed = options.seed;
  answer.stop_strings = generation.until;
  ResponseSink sink(task.requests().size(), repeats, options.on_progress);
  std::optional<EqualPasses> passes;
  if (options.is_in_training) passes.emplace(model, *mesh.world());
  GeneratorOptions generating{.max_batch = options.batch_size,
                              .max_prefill_tokens = options.max_tokens,
                              .records = !options.is_in_training};
  if (passes) generating.before_pass = [&] { passes->begin(); };
  Generator generator(model, generating);
  const auto after_step = [&] {
    if (passes) passes->catch_up();
    return !options.after_step || options.after_step();
  };
  answer_prompts(prompts, {tokenizer, nullptr, "", false}, answer, generator,
                 {mesh, prompts.size(), mesh.world()->rank() == 0 ? &sink : nullptr, after_step});
  return sink.take();
}

}  // namespace

int64_t scored_length(const models::CausalLM& model) {
  const models::ModelConfig& config = model.config();
  int64_t length = config.max_position_embeddings > 0 ? config.max_position_embeddings : kUnboundedLength;
  if (config.generation_bound) length = std::min(length, config.generation_bound->tokens);
  return length;
}

Responses answer_requests(const Task& task, models::CausalLM& model, const text::Tokenizer& tokenizer,
                          const scoring::RequestEncoder& encoder, const parallel::DeviceMesh& mesh,
                          const AnswerRequestsOptions& options) {
  if (task.config().output_type == OutputType::GenerateUntil)
    return generate_answers(task, model, tokenizer, encoder, mesh, options);
  return score_requests(task, model, encoder, mesh, options);
}

}  // namespace tessera::generation

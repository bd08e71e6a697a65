#include "tessera/generation/session.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "tessera/generation/answer_requests.h"
#include "tessera/generation/drafts.h"

namespace tessera::generation {

Session::Session(models::CausalLM& model, const parallel::DeviceMesh& mesh, const SessionOptions& options)
    : model_(model),
      options_(options),
      stages_(mesh.group(parallel::kAxisPp)),
      cache_(cache_options(model, options.cache_type)),
      runner_(model, cache_),
      sequence_(cache_.add()) {
  model.check_continues_texts("a chat");
  const bool has_drafts = options.max_draft_tokens > 0 && mesh.size(parallel::kAxisPp) == 1;
  if (has_drafts && why_no_drafts(model).empty() && why_no_shared_pages(model).empty()) start_generator();
}

void Session::start_generator() {
  generator_.emplace(model_,
                     GeneratorOptions{.max_batch = 1,
                                      .max_cache_tokens = scored_length(model_) + nn::KvCache::kPageTokens,
                                      .shares_pages = true,
                                      .max_draft_tokens = options_.max_draft_tokens,
                                      .cache_type = options_.cache_type});
}

Generation Session::generate_with_drafts(const std::vector<int64_t>& prompt, const GenerateOptions& options) {
  const int64_t before = generator_->times().prefill_tokens, number = generator_->add({prompt, options});
  while (generator_->step()) {
  }
  num_fed_ = generator_->times().prefill_tokens - before;
  return generator_->take(number).value();
}

void Session::reset() {
  if (generator_) return start_generator();
  cache_.free(sequence_);
  sequence_ = cache_.add();
  ids_.clear();
}

Generation Session::answer(const std::vector<int64_t>& prompt, const GenerateOptions& options) {
  if (generator_) return generate_with_drafts(prompt, options);
  Continuation text(model_, {prompt, options});
  num_fed_ = 0;
  if (text.budget <= 0) return {};
  try {
    make(text);
  } catch (...) {
    // The cache may hold more tokens than ids_, or numbers that are of no use.
    reset();
    throw;
  }
  return std::move(text.result);
}

void Session::make(Continuation& text) {
  keep_beginning_of(text.prompt);
  const auto kept = std::ssize(ids_);
  if (text.options.sampling.repetition_penalty != 1.0) runner_.set_occurred(sequence_, ids_);
  const std::vector<int64_t> rest(text.prompt.begin() + kept, text.prompt.end());
  num_fed_ = std::ssize(rest);
  NextLogits logits = runner_.prefill({{sequence_, rest}}, {text.next_draw()});
  ids_ = text.prompt;
  while (text.accept(text.choose(TokenChoice(logits.logits, logits.chosen), 0))) {
    const int64_t token = text.result.token_ids.back();
    logits = runner_.decode({{sequence_, {token}}}, {text.next_draw()});
    ids_.push_back(token);
  }
}

void Session::keep_beginning_of(const std::vector<int64_t>& prompt) {
  const std::span before_last(prompt.data(), prompt.size() - 1);
  const auto common = std::ranges::mismatch(before_last, ids_).in1 - before_last.begin();
  const int64_t kept = common == 0 ? 0 : model_.num_virtual_tokens() + common;
  // Stages of a pipeline may have windows of different sizes, and the model is fed the same on all ranks.
  const std::string own = cache_.can_truncate(sequence_, kept) ? "keeps" : "";
  const std::vector<std::string> told = stages_->all_gather_string(own);
  if (std::ranges::find(told, "") != told.end()) return reset();
  cache_.truncate(sequence_, kept);
  ids_.resize(static_cast<size_t>(common));
}

}  // namespace tessera::generation

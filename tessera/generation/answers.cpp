#include "tessera/generation/answers.h"

#include <map>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/core/process_stats.h"
#include "tessera/text/answer_text.h"

namespace tessera::generation {

Copies::Copies(const parallel::DeviceMesh& mesh, size_t num_prompts, AnswerSink* output,
               std::function<bool()> after_step)
    : world_(*mesh.world()),
      count_(static_cast<size_t>(mesh.size(parallel::kAxisLoss))),
      number_(static_cast<size_t>(mesh.coordinate(parallel::kAxisLoss))),
      tells_(mesh.coordinate(parallel::kAxisTp) == 0 && mesh.coordinate(parallel::kAxisPp) == 0),
      output_(output),
      after_step_(std::move(after_step)),
      texts_(num_prompts) {}

void Copies::add(size_t index, const std::string& text) {
  if (output_ != nullptr) return output_->add(index, text);
  if (tells_) texts_[index] += text;
}

void Copies::finish(size_t index, const AnswerEnd& end) {
  if (output_ != nullptr) return output_->finish(index, end);
  if (tells_) finished_.push_back({index, texts_[index], end.reason, end.prompt_tokens, end.new_tokens});
  texts_[index] = {};
}

bool Copies::go_on(bool own_goes_on, const Work& own) {
  work_ = own;
  if (after_step_ && !after_step_()) return false;
  if (count_ == 1) return own_goes_on;
  if (++num_steps_ % kStepsBetween != 0) return true;
  std::string told;
  if (tells_) {
    const GenerationTimes& times = own.times;
    nlohmann::json::to_cbor({{"goes_on", own_goes_on},
                             {"finished", std::exchange(finished_, nlohmann::json::array())},
                             {"tokens", {own.new_tokens, times.prefill_tokens, times.decode_tokens}},
                             {"seconds", {times.prefill_s, times.decode_s}}},
                            told);
  }
  work_ = {};
  bool any_goes_on = false;
  for (const std::string& text : world_.all_gather_string(told)) {
    if (text.empty()) continue;
    const nlohmann::json copy = nlohmann::json::from_cbor(text);
    any_goes_on = any_goes_on || copy["goes_on"].get<bool>();
    work_.new_tokens += copy["tokens"][0].get<int64_t>();
    work_.times.join({copy["seconds"][0], copy["seconds"][1], copy["tokens"][1], copy["tokens"][2]});
    if (output_ == nullptr) continue;
    for (const nlohmann::json& answer : copy["finished"]) {
      const auto index = answer[0].get<size_t>();
      output_->add(index, answer[1].get<std::string>());
      output_->finish(index,
                      {answer[2].get<std::string>(), answer[3].get<int64_t>(), answer[4].get<int64_t>()});
    }
  }
  return any_goes_on;
}

Work answer_prompts(const std::vector<Prompt>& prompts, const PromptEncoder& encoder,
                    const AnswerOptions& options, Generator& generator, Copies copies) {
  std::vector<int64_t> prompt_tokens(prompts.size());
  std::vector<text::AnswerText> texts;
  std::map<int64_t, size_t> open;
  for (size_t i = 0; i < prompts.size(); ++i) {
    texts.emplace_back(encoder.tokenizer, options.stop_strings);
    GenerateOptions generate = options.generate;
    generate.sampling.sequence = i;
    generate.on_token = [&, i](int64_t id) {
      copies.add(i, texts[i].add(id));
      return !texts[i].has_stopped();
    };
    try {
      auto ids = encoder.encode(prompts[i]);
      prompt_tokens[i] = static_cast<int64_t>(ids.size());
      const int64_t request = generator.add({std::move(ids), generate});
      if (copies.answers(i)) {
        open[request] = i;
      } else {
        // Every rank adds every prompt, so that one that is refused is refused on all ranks. The prompts of
        // other copies are then taken back.
        generator.cancel(request);
        generator.take(request);
      }
    } catch (Error& error) {
      if (!prompts[i].place.empty()) error.within(prompts[i].place);
      throw;
    }
  }
  const Timer timer;
  int64_t new_tokens = 0;
  for (bool goes_on = true; goes_on;) {
    goes_on = generator.step();
    std::erase_if(open, [&](const auto& entry) {
      const auto result = generator.take(entry.first);
      if (!result) return false;
      const size_t index = entry.second;
      const auto num_tokens = static_cast<int64_t>(result->token_ids.size());
      new_tokens += num_tokens;
      copies.add(index, texts[index].finish());
      // At a stop string the callback on_token ends the answer, which also counts as "stop".
      const bool is_cut = result->reason == FinishReason::Length;
      copies.finish(index, {is_cut ? "length" : "stop", prompt_tokens[index], num_tokens});
      return true;
    });
    goes_on = copies.go_on(goes_on, {generator.times(), new_tokens});
  }
  Work work = copies.work();
  work.seconds = timer.seconds();
  return work;
}

}  // namespace tessera::generation

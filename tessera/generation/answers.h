// Answers to prompts: their text as it grows, and their way from all copies of the model to those who asked.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/generation/generate.h"
#include "tessera/generation/prompts.h"
#include "tessera/parallel/device_mesh.h"

namespace tessera::generation {

struct AnswerOptions {
  GenerateOptions generate;
  std::vector<std::string> stop_strings;  // texts that end an answer and are not part of it
};

// How an answer ended.
struct AnswerEnd {
  std::string reason;  // "stop" or "length"
  int64_t prompt_tokens = 0, new_tokens = 0;
};

// Takes the answers to numbered prompts.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  // Add text to the answer to prompt `index`, and finish it.
  virtual void add(size_t index, const std::string& text) = 0;
  virtual void finish(size_t index, const AnswerEnd& end) = 0;
};

struct Work {
  GenerationTimes times;
  int64_t new_tokens = 0;
  double seconds = 0.0;
};

// Shares the prompts among the copies of the model that the ranks hold. Each copy answers its part as one
// process would, and from time to time the first rank gets the answers that are finished.
class Copies {
 public:
  // `output` takes the answers of all copies on the first rank, and is null on the others. The mesh and
  // `output` must outlive this object. `after_step`, if given, is called at the beginning of each go_on();
  // where it returns false, on all ranks alike, no copy goes on.
  Copies(const parallel::DeviceMesh& mesh, size_t num_prompts, AnswerSink* output,
         std::function<bool()> after_step = nullptr);

  // Returns whether this rank's copy answers the prompt.
  bool answers(size_t index) const { return index % count_ == number_; }
  // Take the answers of this rank's copy.
  void add(size_t index, const std::string& text);
  void finish(size_t index, const AnswerEnd& end);

  // Call it after every step of the generator. Returns whether any copy goes on; `own_goes_on` and `own` are
  // the state and the work so far of this rank's copy. Collective over all ranks.
  bool go_on(bool own_goes_on, const Work& own);
  // Returns the work of all copies, with the longest times.
  const Work& work() const { return work_; }

 private:
  static constexpr int64_t kStepsBetween = 16;

  comm::Communicator& world_;
  const size_t count_, number_;
  const bool tells_;  // this rank speaks for its copy
  AnswerSink* const output_;
  const std::function<bool()> after_step_;
  std::vector<std::string> texts_;
  nlohmann::json finished_ = nlohmann::json::array();
  int64_t num_steps_ = 0;
  Work work_;
};

// Answers all prompts and returns the work of all copies of the model. The number of a prompt is that of its
// answer's random numbers. Throws what Generator and `copies` throw; an Error about a prompt names its place.
// Collective over all ranks.
Work answer_prompts(const std::vector<Prompt>& prompts, const PromptEncoder& encoder,
                    const AnswerOptions& options, Generator& generator, Copies copies);

}  // namespace tessera::generation

#include "tessera/train/run/evaluation.h"

#include <cmath>
#include <cstdio>
#include <string>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/train/step/best_evaluation.h"
#include "tessera/train/step/run_schedule.h"
#include "tessera/train/step/step.h"

namespace tessera::train {

Evaluation::Evaluation(Training& training, const parallel::DeviceMesh& mesh, EvaluationParts parts, Tell tell,
                       std::function<bool()> goes_on)
    : training_(training),
      mesh_(mesh),
      parts_(std::move(parts)),
      tell_(std::move(tell)),
      goes_on_(std::move(goes_on)) {
  Evaluated expected;
  if (parts_.loader) {
    expected.loss = 0.0;
    const std::vector<std::string> names = parts_.loader->datasets();
    for (size_t i = 0; names.size() > 1 && i < names.size(); ++i)
      expected.datasets.push_back({names[i], 0.0, 0});
    const nn::TaskHead& head = training.trained().model->head();
    expected.metrics = head.metrics(std::vector<double>(static_cast<size_t>(head.num_statistics())));
  }
  if (parts_.tasks) expected.tasks = parts_.tasks->expected();
  deciding_ = deciding_metric(training.recipe(), expected);
}

bool Evaluation::after_step() {
  const TrainState& state = training_.state();
  if (!is_evaluated(training_.recipe(), state.step, training_.total_steps(),
                    training_.data().steps_per_epoch(), state.ends_epoch())) {
    return true;
  }
  const AtAverage average(training_);
  const std::optional<Evaluated> evaluated = measure();
  if (!evaluated) return false;
  tell_([&](Reporter& reporter) { reporter.on_evaluation(state.step, *evaluated); });
  if (training_.note_evaluation(*evaluated)) tell_early_stop();
  return true;
}

std::optional<Evaluated> Evaluation::measure() {
  std::optional<Evaluated> evaluated = Evaluated();
  if (parts_.loader) {
    const int64_t total = parts_.loader->steps_per_epoch();
    evaluated = evaluate(training_.trained(), mesh_, *parts_.loader,
                         [&](int64_t done) { return tell_progress(done, total); });
    if (!evaluated) return std::nullopt;
    if (!std::isfinite(*evaluated->loss)) {
      throw Error(
          ErrorKind::Numerics, "EVAL-LOSS",
          "the evaluation loss after step " + std::to_string(training_.state().step) + " is not finite")
          .got(std::to_string(*evaluated->loss))
          .hint("no result is saved; lower learning_rate, or check the data");
    }
  }
  if (parts_.samples) {
    auto samples = parts_.samples->make(training_.trained(), *mesh_.world(), [&](int64_t done) {
      return tell_progress(done, parts_.samples->size());
    });
    if (!samples) return std::nullopt;
    evaluated->samples = std::move(*samples);
  }
  if (!parts_.tasks) return evaluated;
  const int64_t total = parts_.tasks->num_requests();
  auto tasks = parts_.tasks->evaluate(training_.trained(), mesh_,
                                      [&](int64_t done) { return tell_progress(done, total); });
  if (!tasks) return std::nullopt;
  evaluated->tasks = std::move(*tasks);
  return evaluated;
}

bool Evaluation::tell_progress(int64_t done, int64_t total) const {
  tell_([&](Reporter& reporter) { reporter.on_evaluating(done, total); });
  return goes_on_();
}

void Evaluation::tell_early_stop() const {
  char best[32];
  std::snprintf(best, sizeof best, "%.4f", std::abs(training_.state().early_stopping.best_loss()));
  log::info("stopped early after step " + std::to_string(training_.state().step) + ": no evaluation has a " +
            deciding_.name + (deciding_.higher_is_better ? " above " : " below ") + best + " in the last " +
            std::to_string(training_.recipe().early_stopping_patience));
}

}  // namespace tessera::train

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

Evaluation::Evaluation(Training& training, const parallel::DeviceMesh& mesh, data::Loader loader, Tell tell,
                       std::function<bool()> goes_on)
    : training_(training),
      mesh_(mesh),
      loader_(std::move(loader)),
      tell_(std::move(tell)),
      goes_on_(std::move(goes_on)) {
  Evaluated expected;
  const std::vector<std::string> names = loader_.datasets();
  for (size_t i = 0; names.size() > 1 && i < names.size(); ++i)
    expected.datasets.push_back({names[i], 0.0, 0});
  if (const auto& classes = training.trained().model->config().classification) {
    const std::vector<double> nothing(static_cast<size_t>(num_class_statistics(*classes)));
    expected.metrics = class_metrics(*classes, nothing);
  }
  deciding_loss(training.recipe(), expected);
}

bool Evaluation::after_step() {
  const TrainState& state = training_.state();
  const config::Recipe& recipe = training_.recipe();
  if (!is_evaluated(recipe, state.step, training_.total_steps(), training_.data().steps_per_epoch(),
                    state.ends_epoch())) {
    return true;
  }
  const int64_t total = loader_.steps_per_epoch();
  const AtAverage average(training_);
  const auto evaluated = evaluate(training_.trained(), mesh_, loader_, [&](int64_t done) {
    tell_([&](Reporter& reporter) { reporter.on_evaluating(done, total); });
    return goes_on_();
  });
  if (!evaluated) return false;
  const double loss = evaluated->loss;
  if (!std::isfinite(loss)) {
    throw Error(ErrorKind::Numerics, "EVAL-LOSS",
                "the evaluation loss after step " + std::to_string(state.step) + " is not finite")
        .got(std::to_string(loss))
        .hint("no result is saved; lower learning_rate, or check the data");
  }
  tell_([&](Reporter& reporter) { reporter.on_evaluation(state.step, *evaluated); });
  if (training_.note_evaluation(*evaluated)) {
    char best[32];
    const double deciding = state.early_stopping.best_loss();
    std::snprintf(best, sizeof best, "%.4f", std::abs(deciding));
    log::info("stopped early after step " + std::to_string(state.step) +
              (deciding < 0.0 ? ": no " + recipe.metric_for_best_model + " above "
                              : ": no evaluation loss below ") +
              best + " in " + std::to_string(recipe.early_stopping_patience) + " evaluations");
  }
  return true;
}

}  // namespace tessera::train

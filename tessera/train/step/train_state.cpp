#include "tessera/train/step/train_state.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace tessera::train {
namespace {

nlohmann::ordered_json to_json(const optim::Plateau& plateau) {
  nlohmann::ordered_json json = {
      {"num_bad", plateau.num_bad}, {"cooldown_left", plateau.cooldown_left}, {"factor", plateau.factor}};
  if (plateau.best) json["best"] = *plateau.best;
  return json;
}

optim::Plateau plateau_from(const nlohmann::ordered_json& json) {
  optim::Plateau plateau;
  plateau.num_bad = json.at("num_bad");
  plateau.cooldown_left = json.at("cooldown_left");
  plateau.factor = json.at("factor");
  if (json.contains("best")) plateau.best = json.at("best").get<double>();
  return plateau;
}

// Members of a stream's place, by their names in a checkpoint.
constexpr std::pair<const char*, int64_t data::StreamPlace::*> kPlaceFields[] = {
    {"pass", &data::StreamPlace::pass},         {"file", &data::StreamPlace::file},
    {"record", &data::StreamPlace::record},     {"index", &data::StreamPlace::index},
    {"line", &data::StreamPlace::line},         {"offset", &data::StreamPlace::offset},
    {"document", &data::StreamPlace::document}, {"token", &data::StreamPlace::token}};

nlohmann::ordered_json to_json(const std::vector<data::StreamPlace>& streams) {
  auto list = nlohmann::ordered_json::array();
  for (const data::StreamPlace& place : streams) {
    nlohmann::ordered_json fields;
    for (const auto& [name, field] : kPlaceFields) fields[name] = place.*field;
    list.push_back(std::move(fields));
  }
  return list;
}

std::vector<data::StreamPlace> streams_from(const nlohmann::ordered_json& list) {
  std::vector<data::StreamPlace> streams;
  for (const auto& fields : list) {
    data::StreamPlace& place = streams.emplace_back();
    for (const auto& [name, field] : kPlaceFields) place.*field = fields.at(name);
  }
  return streams;
}

}  // namespace

nlohmann::ordered_json to_json(const TrainState& state) {
  return {{"step", state.step},
          {"epoch", state.cursor.epoch},
          {"sample", state.cursor.sample},
          {"streams", to_json(state.cursor.streams)},
          {"tokens", state.tokens},
          {"first_loss", state.first_loss},
          {"last_loss", state.last_loss},
          {"loss_scaler", state.scaler.to_json()},
          {"window", state.window.to_json()},
          {"guard", state.guard.to_json()},
          {"early_stopping", state.early_stopping.to_json()},
          {"best", state.best.to_json()},
          {"plateau", to_json(state.plateau)}};
}

TrainState train_state_from(const nlohmann::ordered_json& json) {
  TrainState state;
  state.step = json.at("step");
  state.cursor = {json.at("epoch"), json.at("sample"), streams_from(json.at("streams"))};
  state.tokens = json.at("tokens");
  state.first_loss = json.at("first_loss");
  state.last_loss = json.at("last_loss");
  state.scaler = LossScaler::from_json(json.at("loss_scaler"));
  state.window = MetricsWindow::from_json(json.at("window"));
  state.guard = StepGuard::from_json(json.at("guard"));
  state.early_stopping = EarlyStopping::from_json(json.at("early_stopping"));
  state.best = BestEvaluation::from_json(json.at("best"));
  state.plateau = plateau_from(json.at("plateau"));
  return state;
}

}  // namespace tessera::train

#include "tessera/train/run/result_upload.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <thread>

#include "tessera/comm/agreed_work.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/hub/upload.h"

namespace tessera::train {
namespace {

hub::UploadTarget target_of(const config::UploadConfig& keys) {
  return {keys.hub_model_id, keys.hub_revision, keys.hub_private_repo};
}

// Calls `check` where the recipe uploads; its errors name the key.
void run_check(const config::UploadConfig& keys, const config::KeyPlaces& places,
               const std::function<void(const hub::UploadTarget&)>& check) {
  if (!keys.uploads()) return;
  try {
    check(target_of(keys));
  } catch (Error& error) {
    error.at(places.place_of({"hub_model_id"})).within("key 'hub_model_id'");
    throw;
  }
}

// Sets `stop` once the run is asked to stop.
void watch(const std::stop_token& ended, const RunSignals& signals, std::atomic<bool>& stop) {
  while (!ended.stop_requested()) {
    if (signals.stop_signal() != 0) stop = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// Uploads the result from this process. Throws nothing.
void upload_here(const config::Recipe& recipe, RunSignals& signals) {
  // Also in a run that saves no checkpoints a first request now ends the upload, not the process.
  signals.defer_stops();
  const hub::UploadTarget target = target_of(recipe);
  std::atomic<bool> stop = false;
  std::string why;
  try {
    const std::jthread watcher([&](const std::stop_token& ended) { watch(ended, signals, stop); });
    hub::upload(hub::files_to_upload(recipe.output_dir), target, stop);
    return;
  } catch (const Error& error) {
    why = error.message();
  } catch (const std::exception& error) {
    why = error.what();
  }
  if (signals.stop_signal() != 0) why = "the upload was interrupted";
  log::warn("the result is complete in " + recipe.output_dir + ", but was not uploaded: " + why +
            "; to upload it, run: " + target.command(recipe.output_dir));
}

}  // namespace

void check_result_upload(const config::UploadConfig& keys, const config::KeyPlaces& places) {
  run_check(keys, places, hub::check_upload);
}

void check_result_upload(const config::UploadConfig& keys, const config::KeyPlaces& places,
                         comm::Communicator& world) {
  comm::AgreedWork work({&world}, "upload to the hub");
  work.run_on_first([&] { check_result_upload(keys, places); });
  work.finish();
}

void prepare_result_upload(const config::UploadConfig& keys, const config::KeyPlaces& places,
                           comm::Communicator& world) {
  comm::AgreedWork work({&world}, "upload to the hub");
  work.run_on_first(
      [&] { run_check(keys, places, [](const hub::UploadTarget& target) { hub::prepare_upload(target); }); });
  work.finish();
}

void upload_result(const config::Recipe& recipe, RunSignals& signals, comm::Communicator& world) {
  if (!recipe.uploads()) return;
  // Nothing is left to stop on the others.
  if (world.rank() != 0) signals.set_done();
  // The others wait here, where they may wait for long, and not in the end of MPI, where a launcher may limit
  // the wait for the last rank: Slurm's PMIx to 5 minutes.
  comm::AgreedWork work({&world}, "upload the result");
  work.run_on_first([&] { upload_here(recipe, signals); });
  work.finish();
}

}  // namespace tessera::train

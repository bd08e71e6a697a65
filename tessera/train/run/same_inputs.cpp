#include "tessera/train/run/same_inputs.h"

#include <algorithm>
#include <vector>

#include "tessera/core/content_hash.h"
#include "tessera/core/error.h"
#include "tessera/data/mix.h"
#include "tessera/text/chat_template/chat_template.h"
#include "tessera/train/run/same_recipe.h"

namespace tessera::train {
namespace {

std::vector<uint64_t> row_hashes(const data::RowSet& rows) {
  std::vector<uint64_t> hashes;
  for (int64_t i = 0; i < rows.size(); ++i) hashes.push_back(rows.store->hash(rows.rows[i]));
  return hashes;
}

std::string hash_of(const std::vector<uint64_t>& values) {
  ContentHash hash;
  hash.add(std::span<const uint64_t>(values));
  return hash.text();
}

std::string summary(const data::RowSet& rows, const std::vector<uint64_t>& hashes) {
  int64_t tokens = 0;
  for (int64_t i = 0; i < rows.size(); ++i) tokens += rows.length(i);
  return std::to_string(rows.size()) + " rows of " + std::to_string(tokens) + " tokens, hash " +
         hash_of(hashes);
}

void check_same_rows(const data::RowSet& rows, const std::string& which, comm::Communicator& world) {
  const std::vector<uint64_t> hashes = row_hashes(rows);
  const auto summaries = world.all_gather_string(summary(rows, hashes));
  const auto rank = first_other(summaries);
  if (!rank) return;
  // The hashes of all rows travel only now, when the run is over anyway.
  const auto all = world.all_gather_string(
      std::string(reinterpret_cast<const char*>(hashes.data()), hashes.size() * sizeof(uint64_t)));
  const std::string &first = all[0], &other = all[*rank];
  const auto ends = std::mismatch(first.begin(), first.end(), other.begin(), other.end());
  const auto row = static_cast<size_t>(ends.first - first.begin()) / sizeof(uint64_t);
  throw Error(ErrorKind::Data, "RANKS-DIFFER",
              "rank " + std::to_string(*rank) + " reads different data from rank 0: the " + which +
                  " rows differ from row " + std::to_string(row) + " on")
      .got(summaries[*rank])
      .need(summaries[0])
      .hint("the dataset or tokenizer files differ between the machines");
}

}  // namespace

void check_same_data(const data::PreparedData& data, comm::Communicator& world) {
  if (world.size() == 1) return;
  check_same_rows(data.train, "training", world);
  check_same_rows(data.eval, "evaluation", world);
}

void check_same_stream(const std::string& fingerprint, comm::Communicator& world) {
  if (world.size() == 1) return;
  const auto hashes = world.all_gather_string(fingerprint);
  const auto rank = first_other(hashes);
  if (!rank) return;
  throw Error(ErrorKind::Data, "RANKS-DIFFER",
              "rank " + std::to_string(*rank) + " reads different data from rank 0")
      .got("hash " + hashes[*rank])
      .need("hash " + hashes[0])
      .hint("the dataset or tokenizer files differ between the machines");
}

void check_same_model(const PlannedModel& planned, const std::string& config, comm::Communicator& world) {
  if (world.size() == 1) return;
  ContentHash hash;
  hash.add(config);
  for (const auto& files : planned.files) files->add_sample(hash);
  const auto hashes = world.all_gather_string(hash.text());
  const auto rank = first_other(hashes);
  if (!rank) return;
  throw Error(ErrorKind::Model, "RANKS-DIFFER",
              "rank " + std::to_string(*rank) + " reads a different base model or adapter from rank 0")
      .got("hash " + hashes[*rank])
      .need("hash " + hashes[0])
      .hint("the model's files differ between the machines");
}

int64_t agreed_clock(comm::Communicator& world) {
  return std::stoll(world.all_gather_string(std::to_string(text::local_clock())).front());
}

std::string rows_fingerprint(const data::RowSet& rows, const config::Recipe& recipe) {
  const auto hashes = row_hashes(rows);
  ContentHash hash;
  hash.add(std::span<const uint64_t>(hashes));
  const std::vector<int64_t> order = {recipe.seed, recipe.shuffle_merged_datasets, recipe.sample_packing,
                                      recipe.sample_packing ? recipe.sequence_len : 0};
  hash.add(std::span<const int64_t>(order));
  if (recipe.task == config::Task::MaskedLm) {
    const std::vector<double> masks = {recipe.mlm_probability, recipe.mask_replace_prob,
                                       recipe.random_replace_prob, recipe.whole_word_mask ? 1.0 : 0.0};
    hash.add(std::span<const double>(masks));
  }
  if (data::has_curriculum(recipe)) {
    for (const config::DatasetConfig& dataset : recipe.datasets) {
      hash.add(std::to_string(dataset.weight));
      for (const auto& [step, weight] : dataset.weight_from_step) hash.add(step + ' ' + weight);
    }
  }
  return hash.text();
}

std::string model_fingerprint(const PlannedModel& planned, const std::string& config) {
  ContentHash hash;
  hash.add(config);
  if (planned.adapter && !planned.files.empty()) planned.files.front()->add_sample(hash);
  return hash.text();
}

}  // namespace tessera::train

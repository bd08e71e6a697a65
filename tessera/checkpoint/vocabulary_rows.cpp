#include "tessera/checkpoint/vocabulary_rows.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include "tessera/checkpoint/random_source.h"
#include "tessera/core/rng.h"
#include "tessera/device/device.h"
#include "tessera/device/host_memory.h"
#include "tessera/nn/initial_value.h"
#include "tessera/parallel/box_part.h"

namespace tessera::checkpoint {
namespace {

constexpr double kCovarianceShare = 1e-9;  // the factor of Transformers

// Calls work(first row, rows [count, columns] float64) for the table's rows in order.
template <class Work>
void for_each_piece(const StoredTensors& files, const io::TensorSpec& table, const Work& work) {
  for_each_rows(table.shape, 8, [&](int64_t first, int64_t count) {
    const parallel::Box box = row_box(table.shape, first, count);
    const at::Tensor piece = at::empty(box.size, on_host(at::kDouble));
    files.read(table.name, box, piece);
    work(first, piece);
  });
}

// Returns `count` rows, [count, columns] float64, drawn around the mean m of the table's rows x_i with their
// covariance times kCovarianceShare: m + sqrt(share / n) * sum_i z_i (x_i - m), z_i ~ N(0, 1). The sums run
// over the rows in order whatever the number of threads.
at::Tensor draw_near_mean(const StoredTensors& files, const io::TensorSpec& table, int64_t count,
                          const CounterRng& rng) {
  const int64_t rows = table.shape[0], columns = table.shape[1];
  const at::Tensor mean = at::zeros({columns}, on_host(at::kDouble));
  const at::Tensor drawn = at::zeros({count, columns}, on_host(at::kDouble));
  double* const means = host_span<double>(mean).data();
  double* const sums = host_span<double>(drawn).data();
  const auto over_columns = [&](const auto& work) { at::parallel_for(0, columns, 64, work); };
  for_each_piece(files, table, [&](int64_t, const at::Tensor& piece) {
    const double* const x = host_span<const double>(piece).data();
    over_columns([&](int64_t begin, int64_t end) {
      for (int64_t row = 0; row < piece.size(0); ++row)
        for (int64_t c = begin; c < end; ++c) means[c] += x[row * columns + c];
    });
  });
  mean.div_(static_cast<double>(rows));
  for_each_piece(files, table, [&](int64_t first, const at::Tensor& piece) {
    const double* const x = host_span<const double>(piece).data();
    std::vector<double> weights(static_cast<size_t>(piece.size(0)));
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t row = 0; row < piece.size(0); ++row)
        weights[static_cast<size_t>(row)] = rng.normal(static_cast<uint64_t>(i * rows + first + row));
      over_columns([&](int64_t begin, int64_t end) {
        for (int64_t row = 0; row < piece.size(0); ++row)
          for (int64_t c = begin; c < end; ++c)
            sums[i * columns + c] += weights[static_cast<size_t>(row)] * (x[row * columns + c] - means[c]);
      });
    }
  });
  return drawn.mul_(std::sqrt(kCovarianceShare / static_cast<double>(rows))).add_(mean);
}

class ResizedTables : public StoredTensors {
 public:
  ResizedTables(std::shared_ptr<const StoredTensors> files, const std::vector<VocabularyTable>& tables,
                const VocabularyRows& rows, double initializer_range)
      : StoredTensors(files->place(), resized(*files, tables, rows.count)),
        files_(std::move(files)),
        rows_(rows),
        initializer_range_(initializer_range) {
    for (const VocabularyTable& table : tables) {
      const io::TensorSpec* stored = files_->find(table.name);
      if (stored != nullptr && stored->shape[0] != rows.count) tables_.try_emplace(table.name, table.stream);
    }
  }

  void read(const std::string& name, const parallel::Box& box, const at::Tensor& destination) const override {
    const auto table = tables_.find(name);
    if (table == tables_.end()) return files_->read(name, box, destination);
    const int64_t stored_rows = files_->find(name)->shape[0];
    const int64_t begin = box.offset[0], end = begin + box.size[0];
    const int64_t border = std::clamp(stored_rows, begin, end);
    if (begin < border) {
      parallel::Box old = box;
      old.size[0] = border - begin;
      files_->read(name, old, destination.narrow(0, 0, border - begin));
    }
    if (border < end) {
      parallel::Box added = box;
      added.offset[0] = border;
      added.size[0] = end - border;
      fill_new(table->second, name, added, destination.narrow(0, border - begin, end - border));
    }
  }

  std::optional<io::BlockForm> form(const std::string& name) const override {
    return tables_.contains(name) ? std::nullopt : files_->form(name);
  }
  void read_blocks(const std::string& name, const parallel::Box& box,
                   const at::Tensor& destination) const override {
    files_->read_blocks(name, box, destination);
  }
  void add_sample(ContentHash& hash) const override {
    files_->add_sample(hash);
    hash.add("vocabulary rows " + std::to_string(rows_.count));
  }

 private:
  struct Table {
    explicit Table(std::string stream_name) : stream(std::move(stream_name)) {}
    std::string stream;
    mutable std::once_flag is_drawn;
    mutable at::Tensor near_mean;  // the new rows, [count, columns] float64
  };

  static std::vector<io::TensorSpec> resized(const StoredTensors& files,
                                             const std::vector<VocabularyTable>& tables, int64_t rows) {
    std::vector<io::TensorSpec> specs = files.tensors();
    for (io::TensorSpec& spec : specs) {
      if (std::ranges::any_of(tables, [&](const VocabularyTable& table) { return table.name == spec.name; }))
        spec.shape[0] = rows;
    }
    return specs;
  }

  // Fills the new rows in `box` of the table.
  void fill_new(const Table& table, const std::string& name, const parallel::Box& box,
                const at::Tensor& destination) const {
    if (!rows_.are_near_mean) {
      const nn::InitialValue value{nn::InitialValue::Kind::Gaussian, initializer_range_};
      const at::Tensor dense = at::empty(box.size, on_host(destination.scalar_type()));
      fill_box(dense, table.stream, find(name)->shape, box, value, rows_.seed);
      destination.copy_(dense);
      return;
    }
    const io::TensorSpec& stored = *files_->find(name);
    std::call_once(table.is_drawn, [&] {
      const CounterRng rng(rows_.seed, stream_of(table.stream.c_str()));
      table.near_mean = draw_near_mean(*files_, stored, rows_.count - stored.shape[0], rng);
    });
    parallel::Box part = box;
    part.offset[0] -= stored.shape[0];
    destination.copy_(parallel::box_part(table.near_mean, part));
  }

  std::shared_ptr<const StoredTensors> files_;
  const VocabularyRows rows_;
  const double initializer_range_;
  std::unordered_map<std::string, Table> tables_;  // those that change
};

}  // namespace

std::shared_ptr<const StoredTensors> with_vocabulary_rows(std::shared_ptr<const StoredTensors> files,
                                                          const std::vector<VocabularyTable>& tables,
                                                          const VocabularyRows& rows,
                                                          double initializer_range) {
  return std::make_shared<const ResizedTables>(std::move(files), tables, rows, initializer_range);
}

std::string with_vocab_size(const std::string& config_json, int64_t vocab_size) {
  auto config = nlohmann::ordered_json::parse(config_json);
  const bool is_inner = config.contains("text_config") && config["text_config"].is_object();
  (is_inner ? config["text_config"] : config)["vocab_size"] = vocab_size;
  return config.dump(2) + "\n";
}

}  // namespace tessera::checkpoint

#include "tessera/peft/merge.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/checkpoint/rewrite_folder.h"
#include "tessera/checkpoint/save_folder.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/checkpoint/tied_weights.h"
#include "tessera/checkpoint/vocabulary_rows.h"
#include "tessera/checkpoint/whole_model.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/device/host_memory.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/io/file.h"
#include "tessera/io/json_reader.h"
#include "tessera/io/model_files.h"
#include "tessera/io/result_folder.h"
#include "tessera/peft/adapter_files.h"
#include "tessera/peft/carried_parameters.h"
#include "tessera/peft/layer_options.h"
#include "tessera/peft/merge_changes.h"
#include "tessera/peft/merge_files.h"
#include "tessera/peft/vera_files.h"

namespace tessera::peft {
namespace {

using checkpoint::StoredTensors;

// Merged weights above this are refused. It is far above any trained weight: a sum of a few hundred products
// of two such values overflows float32.
constexpr double kLargestWeight = 1e18;
void check_weight(const io::TensorSpec& tensor, const at::Tensor& piece) {
  if (piece.numel() == 0) return;
  const double largest = piece.abs().max().item<double>();  // NaN where there is one
  if (largest <= kLargestWeight) return;
  char got[32];
  std::snprintf(got, sizeof(got), "%g", largest);
  throw Error(ErrorKind::Numerics, "MERGE",
              "the merged weight '" + tensor.name + "' is not finite or far too large")
      .got(got)
      .hint("the adapter's values or its scaling are wrong; the training has probably diverged");
}

// A row takes 8 bytes an element at most, as the widest intermediate is float64.
constexpr int64_t kElementBytes = 8;

// Writes the rows of a tensor in pieces, as type `dtype`: `make(first, count)` returns `count` rows from
// `first` on, in any type.
template <class Make>
void write_rows(io::ShardedSafetensorsWriter& writer, const io::TensorSpec& tensor, DType dtype,
                const Make& make) {
  checkpoint::for_each_rows(tensor.shape, kElementBytes, [&](int64_t first, int64_t count) {
    const at::Tensor piece = make(first, count).to(to_scalar_type(dtype)).contiguous();
    check_weight(tensor, piece);
    const int64_t row_bytes = piece.numel() / count * dtype_size(dtype);
    writer.write(tensor.name, first * row_bytes, host_span<const char>(piece).data(), count * row_bytes);
  });
}

at::Tensor read_piece(const StoredTensors& files, const std::string& name, int64_t first, int64_t count,
                      const std::vector<int64_t>& shape) {
  const auto box = checkpoint::row_box(shape, first, count);
  const at::Tensor piece = at::empty(box.size, on_host(at::kDouble));
  files.read(name, box, piece);
  return piece;
}

at::Tensor read_adapter(const io::ModelFiles& adapter, const std::string& name, int64_t first, int64_t count,
                        const std::vector<int64_t>& shape) {
  const auto box = checkpoint::row_box(shape, first, count);
  const at::Tensor piece = at::empty(box.size, on_host(at::kDouble));
  checkpoint::read_box(adapter, name, box, piece);
  if (at::isfinite(piece).all().item<bool>()) return piece;
  throw adapter_error(adapter, name, "the adapter contains a value that is not finite");
}

// Writes a weight, or a bias, times the factors of its outputs or inputs.
void write_multiplied(const StoredTensors& base, const io::ModelFiles& adapter, const io::TensorSpec& tensor,
                      DType dtype, const Change& change, bool is_transposed,
                      io::ShardedSafetensorsWriter& writer) {
  const auto& shape = adapter.require(change.multiplier).tensor->shape;
  at::Tensor factors = read_adapter(adapter, change.multiplier, 0, shape[0], shape);
  const bool is_bias = tensor.shape.size() == 1;
  if (is_bias) factors = factors.flatten();
  if (!is_bias && is_transposed) factors = factors.t();
  // The outputs are the rows of a stored W, the inputs those of a stored W^T.
  const bool are_of_rows = is_bias || change.is_of_inputs == is_transposed;
  write_rows(writer, tensor, dtype, [&](int64_t first, int64_t count) {
    return read_piece(base, tensor.name, first, count, tensor.shape)
        .mul_(are_of_rows ? factors.narrow(0, first, count) : factors);
  });
}

// Writes a table, the base's or the one that the adapter brings, with the adapter's rows in place of those of
// the ids.
void write_with_rows(const StoredTensors& base, const io::ModelFiles& adapter, const io::TensorSpec& table,
                     DType dtype, const Change& change, const std::vector<int64_t>& ids,
                     io::ShardedSafetensorsWriter& writer) {
  const at::Tensor own = read_adapter(adapter, change.token_rows, 0, static_cast<int64_t>(ids.size()),
                                      adapter.require(change.token_rows).tensor->shape);
  write_rows(writer, table, dtype, [&](int64_t first, int64_t count) {
    at::Tensor piece = change.replacement.empty()
                           ? read_piece(base, table.name, first, count, table.shape)
                           : read_adapter(adapter, change.replacement, first, count, table.shape);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= first && ids[i] < first + count)
        piece.select(0, ids[i] - first).copy_(own.select(0, static_cast<int64_t>(i)));
    }
    return piece;
  });
}

void write_changed(const StoredTensors& base, const io::ModelFiles& adapter, const io::TensorSpec& tensor,
                   DType dtype, const Change& change, double scaling, bool is_transposed,
                   const LoraOptions& options, const VeraProjections* projections,
                   io::ShardedSafetensorsWriter& writer) {
  if (!change.token_rows.empty())
    return write_with_rows(base, adapter, tensor, dtype, change, options.trainable_token_indices, writer);
  if (!change.multiplier.empty())
    return write_multiplied(base, adapter, tensor, dtype, change, is_transposed, writer);
  if (!change.is_product()) {
    write_rows(writer, tensor, dtype, [&](int64_t first, int64_t count) {
      const at::Tensor own = read_adapter(adapter, change.any(), first, count, tensor.shape);
      if (change.addition.empty()) return own;
      return read_piece(base, tensor.name, first, count, tensor.shape).add_(own, scaling);
    });
    return;
  }
  const auto read_whole = [&](const std::string& name) {
    const std::vector<int64_t>& shape = adapter.require(name).tensor->shape;
    return read_adapter(adapter, name, 0, shape[0], shape);
  };
  at::Tensor a = read_whole(change.factor_a), b = read_whole(change.factor_b);
  if (change.is_vera) {
    const int64_t in = tensor.shape[is_transposed ? 0 : 1];
    a = a.unsqueeze(1) * projections->columns_of_a(0, in, a.options());
    b = b.unsqueeze(1) * projections->rows_of_b({{0, b.size(0)}}, b.options());
  }
  // Rows of a stored W take rows of B; rows of a stored W^T take rows of A^T.
  const at::Tensor rows = is_transposed ? a.t() : b, columns = is_transposed ? b.t() : a;
  const auto changed = [&](int64_t first, int64_t count) {
    const at::Tensor weight = read_piece(base, tensor.name, first, count, tensor.shape);
    return weight.addmm_(rows.narrow(0, first, count), columns, 1, scaling);
  };
  if (change.magnitude.empty()) return write_rows(writer, tensor, dtype, changed);

  // DoRA's rows run over the inputs, which are the rows of a stored W^T.
  const at::Tensor squares = at::zeros({b.size(0)}, on_host(at::kDouble));
  checkpoint::for_each_rows(tensor.shape, kElementBytes, [&](int64_t first, int64_t count) {
    const at::Tensor square = changed(first, count).square_();
    is_transposed ? squares.add_(square.sum(0)) : squares.narrow(0, first, count).copy_(square.sum(1));
  });
  const at::Tensor factors =
      read_whole(change.magnitude).div_(squares.sqrt_().masked_fill_(squares.eq(0), 1));
  write_rows(writer, tensor, dtype, [&](int64_t first, int64_t count) {
    return changed(first, count)
        .mul_(is_transposed ? factors.unsqueeze(0) : factors.narrow(0, first, count).unsqueeze(1));
  });
}

// Returns the matrices that the layers of VeRA share; null for other kinds of adapters.
std::shared_ptr<VeraProjections> projections_of(const StoredTensors& base, const io::ModelFiles& adapter,
                                                const AdapterConfig& config,
                                                const std::map<std::string, Change>& changes) {
  const VeraOptions& options = config.options.vera;
  if (config.options.method != AdapterMethod::Vera) return nullptr;
  int64_t in = 0, out = 0;
  for (const auto& [name, change] : changes) {
    if (!change.is_vera) continue;
    const std::vector<int64_t>& shape = base.find(name)->shape;
    in = std::max(in, shape[config.fan_in_fan_out ? 0 : 1]);
    out = std::max(out, shape[config.fan_in_fan_out ? 1 : 0]);
  }
  auto projections = std::make_shared<VeraProjections>(options.rank, in, out,
                                                       static_cast<uint64_t>(options.projection_prng_key));
  if (options.save_projection) read_projections(*projections, adapter);
  return projections;
}

// Returns the base with the vocabulary of the adapter's tables, which stand in the result for the base's.
// `rows` becomes the number of their tokens, or 0 if it is that of the base's.
std::shared_ptr<const StoredTensors> with_adapter_vocabulary(std::shared_ptr<const StoredTensors> base,
                                                             const io::ModelFiles& adapter, bool may_tie,
                                                             int64_t& rows) {
  const std::string embedding = checkpoint::find_embedding(*base);
  const io::TensorSpec* head = base->find("lm_head.weight");
  if (head == nullptr) head = base->find(checkpoint::older_text_name("lm_head.weight"));
  const int64_t carried = carried_vocabulary(adapter, may_tie).value_or(0);
  const bool is_other = !embedding.empty() && base->find(embedding)->shape.front() != carried;
  rows = is_other ? carried : 0;
  if (rows == 0) return base;
  std::vector<checkpoint::VocabularyTable> tables = {{embedding, embedding}};
  if (head != nullptr) tables.push_back({head->name, embedding});
  return checkpoint::with_vocabulary_rows(std::move(base), tables, {.count = rows}, 0.0);
}

// Gives config.json the type and the size of the vocabulary of the merged model, where they change.
void change_config(SideFiles& files, const std::string& base_folder, std::optional<DType> dtype,
                   int64_t vocabulary) {
  const auto file = files.texts.find("config.json");
  if ((!dtype && vocabulary == 0) || file == files.texts.end()) return;
  (void)io::JsonReader::parse(file->second, io::join_path(base_folder, file->first));  // names what is wrong
  if (dtype) file->second = checkpoint::with_config_dtype(file->second, *dtype);
  if (vocabulary > 0) file->second = checkpoint::with_vocab_size(file->second, vocabulary);
}

// Returns the tensors of the merged model: those of the base, and then heads that the adapter brings.
std::vector<io::TensorSpec> merged_specs(const StoredTensors& base, const io::ModelFiles& adapter,
                                         const std::map<std::string, Change>& changes,
                                         std::optional<DType> dtype) {
  std::vector<io::TensorSpec> specs;
  for (const io::TensorSpec& tensor : base.tensors())
    specs.push_back({tensor.name, checkpoint::written_dtype(base, tensor, dtype), tensor.shape});
  for (const auto& [name, change] : changes) {
    if (base.find(name) != nullptr) continue;
    specs.push_back({name, dtype.value_or(checkpoint::main_dtype(base)),
                     adapter.require(change.replacement).tensor->shape});
  }
  return specs;
}

// The tensors of a merged model, each from the base, the adapter or both.
struct MergedTensors {
  const StoredTensors& base;
  const io::ModelFiles& adapter;
  const AdapterConfig& config;
  const std::map<std::string, Change>& changes;
  std::optional<ExpertMerge>& experts;
  const VeraProjections* projections;
  const LayerOptions& options_of;

  // Writes one of them in the type of `spec`, and counts it in the report if the adapter changes it.
  void write(const io::TensorSpec& spec, io::ShardedSafetensorsWriter& writer, MergeReport& report) {
    const auto change = changes.find(spec.name);
    if (base.find(spec.name) == nullptr) {  // a head that the adapter brings
      write_rows(writer, spec, spec.dtype, [&](int64_t first, int64_t count) {
        return read_adapter(adapter, change->second.replacement, first, count, spec.shape);
      });
      ++report.num_replaced;
      return;
    }
    const io::TensorSpec& tensor = *base.find(spec.name);
    if (change == changes.end()) return checkpoint::copy_tensor(base, tensor, spec.dtype, writer);
    if (const std::string& name = change->second.experts; !name.empty()) {
      write_rows(writer, tensor, spec.dtype, [&](int64_t first, int64_t count) {
        const at::Tensor piece = read_piece(base, tensor.name, first, count, tensor.shape);
        experts->add(name, first, piece);
        return piece;
      });
      ++report.num_merged;
      return;
    }
    const bool has_scaling = config.options.method == AdapterMethod::Lora;
    const double scaling = has_scaling ? lora_scaling(options_of(change->second.layer)) : 1.0;
    write_changed(base, adapter, tensor, spec.dtype, change->second, scaling, config.fan_in_fan_out,
                  config.options, projections, writer);
    ++(change->second.replacement.empty() ? report.num_merged : report.num_replaced);
  }
};

}  // namespace

MergeReport merge_adapter(std::shared_ptr<const StoredTensors> base, const std::string& adapter_folder,
                          const std::string& output_folder, bool overwrites, std::optional<DType> dtype,
                          const ExpertBase* expert_base) {
  const AdapterConfig config = read_adapter_config(adapter_folder);
  if (config.options.method == AdapterMethod::Prompt) {
    throw Error(ErrorKind::Model, "ADAPTER", "a prompt is no change of weights, so it cannot be merged")
        .at(config.source_file)
        .hint("tessera generate, chat, serve and evaluate take it with --adapter");
  }
  const io::ModelFiles adapter = open_adapter(adapter_folder);
  int64_t vocabulary = 0;
  const std::string base_folder = base->place();
  base = with_adapter_vocabulary(std::move(base), adapter, may_tie(base_folder), vocabulary);
  std::optional<ExpertMerge> experts;
  if (!config.options.target_parameters.empty()) {
    TESSERA_ASSERT(expert_base != nullptr,
                   "an adapter of experts is merged into a model whose form is known");
    experts.emplace(*expert_base, config,
                    std::make_shared<const io::ModelFiles>(open_adapter(adapter_folder)));
  }
  const auto changes = plan_changes(*base, adapter, config, may_tie(base_folder),
                                    experts ? &*experts : nullptr, brings_classifier(adapter_folder));
  const LayerOptions options_of(config.options);
  const auto projections = projections_of(*base, adapter, config, changes);
  SideFiles side_files = read_side_files(base_folder, adapter_folder);
  change_config(side_files, base_folder, dtype, vocabulary);
  const std::vector<io::TensorSpec> specs = merged_specs(*base, adapter, changes, dtype);
  MergeReport report;
  for (const io::TensorSpec& spec : specs) report.total_bytes += spec.num_bytes();
  io::ResultFolder result(output_folder,
                          {.overwrites = overwrites,
                           .how_to_overwrite = "--overwrite",
                           .inputs = {{"the base model", base_folder}, {"the adapter", adapter_folder}}});
  result.begin();
  int64_t num_bytes = report.total_bytes;
  for (const auto& [name, bytes] : side_files.texts) num_bytes += static_cast<int64_t>(bytes.size());
  result.require_space(num_bytes);
  io::ShardedSafetensorsWriter writer(result.staging(), specs);
  at::NoGradGuard no_grad;
  MergedTensors merged{*base, adapter, config, changes, experts, projections.get(), options_of};
  for (const io::TensorSpec& spec : specs) merged.write(spec, writer, report);
  writer.commit();
  write_side_files(side_files, result.staging());
  result.commit();
  return report;
}

}  // namespace tessera::peft

// The verb `tessera debug compare`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>

#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/cli/verbs.h"
#include "tessera/core/error.h"
#include "tessera/core/ignore_label.h"
#include "tessera/core/strings.h"
#include "tessera/device/device.h"
#include "tessera/io/file.h"
#include "tessera/io/safetensors.h"
#include "tessera/models/common/base_model.h"
#include "tessera/models/common/load.h"
#include "tessera/models/registry.h"
#include "tessera/ops/plain.h"
#include "tessera/parallel/box_part.h"

namespace tessera::cli {
namespace {

constexpr const char* kIds = "input_ids";
constexpr const char* kHidden = "hidden_states.";
constexpr const char* kGradient = "gradients.";

struct CompareOptions {
  std::string model, reference, ops = "plain";
  double tolerance = 1e-8;
};

// The values of another implementation, by name.
class Reference {
 public:
  explicit Reference(const std::string& path) : file_(io::SafetensorsFile::open(path)) {}

  // Returns the tensor as float64, or as int64 if it holds ids; nothing if there is none.
  std::optional<at::Tensor> find(const std::string& name, at::ScalarType type = at::kDouble) const {
    const io::TensorInfo* tensor = file_.find(name);
    if (tensor == nullptr) return std::nullopt;
    const at::Tensor values = at::empty(tensor->shape, on_host(type));
    checkpoint::read_box(file_, *tensor, checkpoint::whole_box(tensor->shape), values);
    return values;
  }
  std::vector<std::string> names(const std::string& prefix) const {
    std::vector<std::string> found;
    for (const io::TensorInfo& tensor : file_.tensors()) {
      if (tensor.name.starts_with(prefix)) found.push_back(tensor.name);
    }
    return found;
  }
  Error error(const std::string& what) const {
    return Error(ErrorKind::Data, "REFERENCE", what).at(file_.path());
  }

 private:
  io::SafetensorsFile file_;
};

// Prints how far tensors lie apart, and remembers the first that lies beyond the tolerance.
class Table {
 public:
  Table(const Reference& reference, double tolerance) : reference_(reference), tolerance_(tolerance) {
    std::printf("%-58s %12s %12s\n", "tensor", "difference", "of largest");
  }

  // Compares `own` with the reference's tensor if it has one.
  void compare(const std::string& name, const at::Tensor& own) {
    const auto wanted = reference_.find(name);
    if (!wanted) return;
    if (wanted->sizes() != own.sizes())
      throw reference_.error("'" + name + "' has another shape than the model gives")
          .got(format_shape(wanted->sizes().vec()))
          .need(format_shape(own.sizes().vec()));
    const at::Tensor difference = (own.to(at::kDouble) - *wanted).abs();
    const double worst = own.numel() == 0 ? 0.0 : difference.max().item<double>();
    const double largest = own.numel() == 0 ? 1.0 : wanted->abs().max().item<double>();
    const double share = largest == 0.0 ? worst : worst / largest;
    const bool is_beyond = !(share <= tolerance_);  // also for NaN
    std::printf("%-58s %12.3g %12.3g%s\n", name.c_str(), worst, share, is_beyond ? "  <--" : "");
    if (is_beyond && first_.empty()) first_ = name;
    ++count_;
  }
  int finish() const {
    if (count_ == 0)
      throw reference_.error("the file has nothing to compare")
          .need("logits, hidden_states.N or gradients.NAME");
    if (first_.empty()) {
      std::printf("%lld tensors agree to %g of their largest values\n", static_cast<long long>(count_),
                  tolerance_);
      return 0;
    }
    std::printf("'%s' is the first that lies beyond %g of its largest value\n", first_.c_str(), tolerance_);
    return 1;
  }

 private:
  const Reference& reference_;
  const double tolerance_;
  std::string first_;
  int64_t count_ = 0;
};

nn::TokenBatch batch_of(const Reference& reference) {
  const auto ids = reference.find(kIds, at::kLong);
  if (!ids || ids->dim() != 1 || ids->numel() < 2)
    throw reference.error("no ids of a text")
        .need("a tensor '" + std::string(kIds) + "', int64 [at least 2]");
  const int64_t count = ids->numel();
  nn::TokenBatch batch;
  batch.input_ids = *ids;
  batch.labels = at::full({count}, kIgnoreLabel, on_host(at::kLong));
  batch.labels.narrow(0, 0, count - 1).copy_(ids->narrow(0, 1, count - 1));
  batch.position_ids = at::arange(count, on_host(at::kLong));
  batch.document_starts = {0, count};
  return batch;
}

// Compares the hidden states before each block. The last one of Transformers is that of the logits' norm,
// which the logits tell of.
void compare_hidden(models::CausalLM& model, const nn::TokenBatch& batch, Table& table) {
  const at::NoGradGuard no_grad;
  at::Tensor hidden = model.embed(batch.input_ids, batch.position_ids);
  const auto count = static_cast<int64_t>(model.blocks().size());
  for (int64_t block = 0; block < count; ++block) {
    table.compare(kHidden + std::to_string(block), hidden.narrow(0, 0, batch.input_ids.numel()));
    // Blocks that read more than the one before gives do not run alone.
    const int64_t first = model.config().reads_far() ? 0 : block;
    if (block + 1 < count) hidden = model.run_blocks(batch, first, block + 1, hidden);
  }
}

void compare_gradients(models::CausalLM& model, const nn::TokenBatch& batch, Table& table) {
  (model.loss(batch) / static_cast<double>(batch.input_ids.numel() - 1)).backward();
  const checkpoint::StateDictAdapter files = models::state_dict_adapter(model);
  const auto parameters = model.named_parameters();
  for (const auto& stored : files.stored_tensors()) {
    const at::Tensor whole = at::zeros(stored.shape, on_host(at::kDouble));
    for (const std::string& name : stored.parameters) {
      const at::Tensor& gradient = parameters[name].grad();
      if (!gradient.defined()) continue;
      for (const auto& overlaps : files.overlaps(name, checkpoint::whole_box(gradient.sizes().vec()))) {
        for (const auto& overlap : overlaps) {
          if (overlap.part->name == stored.name)
            parallel::box_part(whole, overlap.stored).copy_(overlap.view(gradient));
        }
      }
    }
    table.compare(kGradient + stored.name, whole);
  }
}

int compare(const CompareOptions& options) {
  const Reference reference(options.reference);
  const models::BaseModel base = models::BaseModel::open(options.model);
  const auto model = models::build_model(base.config(), at::kDouble);
  models::load_weights(*model, base.tensors());
  model->eval();
  model->set_router_aux_loss_coef(0.0);
  std::optional<ops::PlainOps> plain;
  if (options.ops == "plain") plain.emplace();
  const nn::TokenBatch batch = batch_of(reference);
  Table table(reference, options.tolerance);
  if (!reference.names(kHidden).empty()) compare_hidden(*model, batch, table);
  {
    const at::NoGradGuard no_grad;
    table.compare("logits", model->logits(batch));
  }
  if (!reference.names(kGradient).empty()) compare_gradients(*model, batch, table);
  return table.finish();
}

}  // namespace

void add_debug_compare(CLI::App& debug, CommandLine& line) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* verb = debug.add_subcommand(
      "compare", "Compare a model in float64 with the values of another implementation, layer by layer");
  line.add_model(*verb, "--model", options->model, "A Hugging Face model folder, or a GGUF file")->required();
  verb->add_option("--reference", options->reference,
                   "safetensors file with input_ids and any of logits, hidden_states.N (before block N) and "
                   "gradients.NAME (of the mean loss); tests/reference/make_compare_reference.py writes one")
      ->required();
  verb->add_option("--tolerance", options->tolerance,
                   "Largest difference that agrees, as a share of a tensor's largest value")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--ops", options->ops,
                   "plain: LibTorch's operations, one by one as in Transformers; fused: Tessera's kernels")
      ->check(CLI::IsMember({"plain", "fused"}));
  line.set_action(*verb, [options] { return compare(*options); });
}

}  // namespace tessera::cli

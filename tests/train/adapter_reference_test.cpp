// Compares whole runs with the curves of PEFT's adapters (tests/reference/make_adapter_reference.py), and the
// folders that they leave with the logits of PEFT's.
#include <gtest/gtest.h>

#include "tessera/generation/load_for_inference.h"
#include "tessera/peft/adapter_files.h"
#include "tessera/peft/merge.h"
#include "tessera/train/run/trainer.h"

#include "tests/models/reference_models.h"
#include "tests/testing/extent.h"
#include "tests/testing/mpi_world.h"
#include "tests/testing/shared_random.h"
#include "tests/train/reference_curve.h"

namespace tessera::train {
namespace {

// The keys of a layout, and by how many ranks its sequences are shared.
struct Axes {
  std::string keys;
  int64_t readers = 1;
};

std::vector<Axes> layouts_of(int64_t ranks, const Curve& curve) {
  if (ranks == 1) return {{"", 1}};
  if (ranks == 2) return {{"", 2}, {"zero_stage: 2\n", 2}, {"tensor_parallel_size: 2\n", 1}};
  const std::string model = curve.options.at("model");
  const bool has_two_layers = model == "llama2" || model == "mixtral";
  if (ranks == 2 && curve.options.contains("rows")) return {{"expert_parallel_size: 2\n", 2}};
  if (ranks == 3 && has_two_layers) return {{"context_parallel_size: 3\n", 1}};
  if (ranks == 3) return {{"context_parallel_size: 3\n", 1}, {"pipeline_parallel_size: 3\n", 1}};
  return {{"tensor_parallel_size: 2\n", 2}, {"pipeline_parallel_size: 2\n", 2}};
}

class AdapterReferenceTest : public ::testing::TestWithParam<const char*> {
 protected:
  bool is_relora() const { return curve_.options.contains("relora_prune_ratio"); }
  bool makes_its_start() const { return curve_.options.contains("peft_init_lora_weights"); }

  std::string adapter_keys() const {
    const std::string kind = GetParam();
    const std::string adapter = kind == "ia3" || kind == "ln_tuning" ? kind
                                : kind.starts_with("vera")           ? "vera"
                                : kind == "prompt"                   ? "prompt_tuning"
                                                                     : "lora";
    if (is_relora()) {
      std::string keys = "adapter: lora\nrelora: true\nlora_model_dir: " + data_ + "_initial\n";
      for (const char* key : {"relora_prune_ratio", "jagged_restart_steps", "jagged_restart_warmup_steps",
                              "jagged_restart_anneal_steps", "seed"})
        keys += key + (": " + curve_.options.at(key).dump()) + "\n";
      return keys;
    }
    if (!makes_its_start()) return "adapter: " + adapter + "\nlora_model_dir: " + data_ + "_initial\n";
    return "adapter: lora\nlora_target_linear: true\nlora_r: 4\nlora_alpha: 8\npeft_init_lora_weights: " +
           curve_.options.at("peft_init_lora_weights").get<std::string>() +
           "\npeft_use_dora: " + curve_.options.at("use_dora").dump() + "\n";
  }

  // Trains with the axes and compares the curve; leaves the result in output_.
  void follow(const Axes& axes, const std::string& dtype) {
    SCOPED_TRACE(axes.keys + dtype);
    const bool is_wide = dtype == "float64";
    const std::string text =
        recipe_text(curve_.options, dtype, axes.readers, output_) + adapter_keys() + axes.keys;
    train(testing::recipe_of(folder_, text + "overwrite_output_dir: true\n", world_), world_);
    if (world_->rank() == 0) {
      expect_curve(output_ + "/metrics.jsonl", curve_, is_wide ? "_f64" : "",
                   is_wide ? Tolerance{1e-10, 1e-9} : Tolerance{1e-5, 1e-4});
    }
    world_->barrier();
  }

  std::string base() const {
    return reference_data("models/" + curve_.options.at("model").get<std::string>());
  }
  // The greatest difference of logits, with an adapter or without one (empty).
  double difference(const std::string& model, const std::string& adapter, const char* want) const {
    const at::NoGradGuard no_grad;
    const models::TensorFile logits(data_ + ".safetensors");
    const auto loaded = generation::load_for_inference(model, adapter, at::kFloat);
    loaded->eval();
    const int64_t own = loaded->num_virtual_tokens(), first = loaded->config().vocab_size;
    const at::Tensor ids = at::cat({at::arange(first, first + own), logits.get("ids")});
    return models::max_difference(loaded->logits(models::pack_ids(ids)), logits.get(want));
  }

  // A prompt is put before the first tokens of a sequence, and before those alone.
  void expect_same_next_logits() const {
    const models::TensorFile logits(data_ + ".safetensors");
    const auto model = generation::load_for_inference(base(), data_ + "_initial", at::kFloat);
    const at::Tensor ids = logits.get("ids").to(at::kLong), want = logits.get("logits_initial");
    nn::KvCache cache(model->cache_options());
    const int64_t sequence = cache.add(), half = ids.size(0) / 2;
    int64_t fed = 0;
    for (const int64_t end : {half, ids.size(0)}) {
      std::vector<int64_t> next;
      for (; fed < end; ++fed) next.push_back(ids[fed].item<int64_t>());
      const at::Tensor got = model->next_logits(cache, {{sequence, next}});
      EXPECT_LE(models::max_difference(got[0], want[model->num_virtual_tokens() + end - 1]), 1e-4);
    }
  }

  const std::shared_ptr<comm::Communicator> world_ = testing::world();
  const std::string data_ = reference_data(std::string("adapters/") + GetParam());
  const Curve curve_ = read_curve(std::string("adapters/") + GetParam());
  testing::SharedFolder folder_{world_};
  const std::string output_ = folder_ / "out";
};

TEST_P(AdapterReferenceTest, FollowsPeft) {
  testing::Random random = testing::shared_random();
  for (const Axes& axes : testing::some_of(layouts_of(world_->size(), curve_), 1, random))
    follow(axes, "float32");
  if (world_->rank() != 0) return;
  EXPECT_LE(difference(base(), output_, "logits_final"), 2e-3);
  if (std::string(GetParam()) == "prompt") return expect_same_next_logits();
  const auto experts = generation::expert_base(base(), output_);
  peft::merge_adapter(models::folder_tensors(base()), output_, folder_ / "merged", false, {},
                      experts ? &*experts : nullptr);
  EXPECT_LE(difference(folder_ / "merged", "", "logits_merged"), 2e-3);
  if (makes_its_start()) return;
  EXPECT_LE(difference(base(), data_ + "_initial", "logits_initial"), 1e-4);
}

// PEFT makes its starts from the base's weights in float32 alone.
class AdapterInFloat64Test : public AdapterReferenceTest {};

TEST_P(AdapterInFloat64Test, FollowsPeft) {
  testing::Random random = testing::shared_random();
  for (const Axes& axes : testing::some_of(layouts_of(world_->size(), curve_), 1, random))
    follow(axes, "float64");
  // Restarts leave a whole model.
  if (is_relora() && world_->rank() == 0) {
    EXPECT_LE(difference(output_, "", "logits_final"), 2e-3);
  }
}

std::string name_of_kind(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

INSTANTIATE_TEST_SUITE_P(Kinds, AdapterReferenceTest,
                         ::testing::Values("selection", "dora", "lora_bias", "ia3", "ln_tuning", "vera",
                                           "vera_generated", "tokens", "tokens_tied", "experts",
                                           "experts_down", "experts_gpt_oss", "prompt", "pissa", "olora",
                                           "pissa_dora"),
                         name_of_kind);
INSTANTIATE_TEST_SUITE_P(Kinds, AdapterInFloat64Test,
                         ::testing::Values("selection", "dora", "lora_bias", "ia3", "ln_tuning", "vera",
                                           "tokens", "tokens_tied", "experts", "experts_down",
                                           "experts_gpt_oss", "prompt", "relora"),
                         name_of_kind);

}  // namespace
}  // namespace tessera::train

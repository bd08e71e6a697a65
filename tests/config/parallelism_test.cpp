#include "tessera/config/parallelism.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/config/config_testing.h"

namespace tessera::config {
namespace {

Recipe recipe_with(const std::string& lines) { return parse_recipe(kMinimal + lines, "r.yaml"); }

std::string message_of_world(const Recipe& recipe, int64_t world_size) {
  try {
    validate_parallelism(recipe, world_size);
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), 2);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(ParallelismTest, TakesTheRemainingRanks) {
  for (int64_t world : {1, 2, 3, 4, 6, 8}) {
    const ParallelDims sizes = validate_parallelism(recipe_with(""), world);
    EXPECT_EQ(sizes.dp_replicate, 1);
    EXPECT_EQ(sizes.dp_shard, world);
  }
  const ParallelDims sizes = validate_parallelism(recipe_with("dp_replicate_size: 3\n"), 6);
  EXPECT_EQ(sizes.dp_replicate, 3);
  EXPECT_EQ(sizes.dp_shard, 2);
}

TEST(ParallelismTest, ADeviceByItsNumberIsForOneProcess) {
  const Recipe recipe = recipe_with("device: cuda:1\n");
  EXPECT_EQ(validate_parallelism(recipe, 1).dp_shard, 1);
  EXPECT_EQ(message_of_world(recipe, 2),
            "error[E-CONFIG-DEVICE]: r.yaml:4:1: a device with a number is for a single process; got device "
            "cuda:1 and "
            "2 ranks, need cuda, which gives each rank of a machine one device in turn. hint: "
            "CUDA_VISIBLE_DEVICES selects the devices");
  EXPECT_EQ(validate_parallelism(recipe_with("device: cuda\n"), 2).dp_shard, 2);
}

TEST(ParallelismTest, NamesTheFactorsThatDoNotFit) {
  EXPECT_EQ(message_of_world(recipe_with("dp_replicate_size: 2\ndp_shard_size: 3\n"), 4),
            "error[E-CONFIG-PARALLELISM]: r.yaml:5:1: dp_shard_size does not fit the number of ranks; got "
            "dp_shard_size 3 x dp_replicate_size 2 and 4 ranks, need sizes of at least 1 whose product is "
            "the number of ranks. hint: dp_shard_size: 2, or -1 for all remaining ranks");
  EXPECT_THAT(message_of_world(recipe_with("dp_replicate_size: 2\n"), 3),
              ::testing::HasSubstr("r.yaml:4:1: dp_replicate_size does not fit the number of ranks; got "
                                   "dp_shard_size -1 x dp_replicate_size 2 and 3 ranks"));
  EXPECT_THAT(message_of_world(recipe_with("dp_replicate_size: 1000000\ndp_shard_size: 1000000\n"), 1),
              ::testing::HasSubstr("dp_replicate_size 1000000 and 1 rank"));
}

TEST(ParallelismTest, ContextParallelRanksShareTheirData) {
  const Recipe recipe = recipe_with("context_parallel_size: 2\ncontext_parallel_method: ring\n");
  EXPECT_EQ(recipe.context_parallel_method, ContextParallelMethod::Ring);
  const ParallelDims sizes = validate_parallelism(recipe, 6);
  EXPECT_EQ(sizes.cp, 2);
  EXPECT_EQ(sizes.dp_shard, 3);
  EXPECT_EQ(validate_parallelism(recipe_with("parallelism_config: {cp_size: 2}\n"), 2).cp, 2);
  EXPECT_EQ(validate_parallelism(recipe_with("sequence_parallel_degree: 2\n"), 2).cp, 2);
  // Accelerate writes both keys, of which only one asks for something.
  const Recipe ulysses = recipe_with("parallelism_config: {cp_size: 1, sp_size: 2}\n");
  EXPECT_EQ(validate_parallelism(ulysses, 2).cp, 2);
  EXPECT_EQ(ulysses.context_parallel_method, ContextParallelMethod::Ulysses);
  const Recipe ring = recipe_with("parallelism_config: {cp_size: 3, sp_size: 1}\n");
  EXPECT_EQ(validate_parallelism(ring, 3).cp, 3);
  EXPECT_EQ(ring.context_parallel_method, ContextParallelMethod::Auto);
  EXPECT_THAT(message_of(kMinimal + "parallelism_config: {cp_size: 2, sp_size: 3}\n"),
              ::testing::HasSubstr("E-CONFIG-CONFLICT"));
  EXPECT_THAT(message_of_world(recipe, 3),
              ::testing::HasSubstr("r.yaml:4:1: context_parallel_size does not fit the number of ranks"));
  // The ranks of cp read the same data.
  EXPECT_EQ(validate_parallelism(recipe_with("context_parallel_size: 2\ntrain_batch_size: 3\n"), 6).cp, 2);
}

TEST(ParallelismTest, TensorParallelRanksAreTakenOutFirst) {
  const ParallelDims sizes = validate_parallelism(recipe_with("tensor_parallel_size: 3\n"), 6);
  EXPECT_EQ(sizes.tp, 3);
  EXPECT_EQ(sizes.dp_shard, 2);
  EXPECT_EQ(validate_parallelism(recipe_with("deepspeed: {tensor_parallel: {autotp_size: 2}}\n"), 4).tp, 2);
  EXPECT_EQ(validate_parallelism(recipe_with("parallelism_config: {tp_size: 2}\n"), 2).dp_shard, 1);
  EXPECT_THAT(message_of_world(recipe_with("tensor_parallel_size: 2\n"), 3),
              ::testing::HasSubstr("r.yaml:4:1: tensor_parallel_size does not fit the number of ranks; got "
                                   "dp_shard_size -1 x tensor_parallel_size 2 and 3 ranks"));
  EXPECT_THAT(message_of_world(recipe_with("tensor_parallel_size: 2\ndp_replicate_size: 4\n"), 4),
              ::testing::HasSubstr("dp_replicate_size 4 x tensor_parallel_size 2 and 4 ranks"));
  // Ranks of one tensor parallel group read the same data.
  const Recipe total = recipe_with(
      "tensor_parallel_size: 2\ndeepspeed: {train_batch_size: 6, train_micro_batch_size_per_gpu: 1, "
      "gradient_accumulation_steps: 3}\n");
  EXPECT_EQ(validate_parallelism(total, 4).dp_shard, 2);
}

TEST(ParallelismTest, PipelinesAreTakenOutToo) {
  const ParallelDims sizes = validate_parallelism(recipe_with("pipeline_parallel_size: 2\n"), 6);
  EXPECT_EQ(sizes.pp, 2);
  EXPECT_EQ(sizes.dp_shard, 3);
  EXPECT_EQ(validate_parallelism(recipe_with("parallelism_config: {pp_size: 3}\n"), 6).pp, 3);
  const Recipe pipeline = recipe_with("deepspeed: {pipeline: {stages: 4, partition: best}}\n");
  EXPECT_EQ(validate_parallelism(pipeline, 4).pp, 4);
  EXPECT_EQ(validate_parallelism(recipe_with("deepspeed: {pipeline: {stages: auto}}\n"), 4).pp, 1);
  EXPECT_THAT(message_of_world(recipe_with("pipeline_parallel_size: 4\n"), 6),
              ::testing::HasSubstr("r.yaml:4:1: pipeline_parallel_size does not fit the number of ranks; got "
                                   "dp_shard_size -1 x pipeline_parallel_size 4 and 6 ranks"));
}

TEST(ParallelismTest, PipelineKeys) {
  EXPECT_EQ(recipe_with("").pipeline_schedule, PipelineKind::OneFOneB);
  EXPECT_EQ(recipe_with("pipeline_schedule: zero_bubble\n").pipeline_schedule, PipelineKind::ZeroBubble);
  EXPECT_EQ(
      recipe_with("pipeline_schedule: interleaved\npipeline_stages_per_rank: 3\n").pipeline_stages_per_rank,
      3);
  EXPECT_THAT(message_of(kMinimal + "pipeline_schedule: zigzag\n"),
              ::testing::HasSubstr("need 1f1b, gpipe, interleaved, zero_bubble"));
  EXPECT_THAT(
      message_of(kMinimal + "pipeline_stages_per_rank: 2\n"),
      ::testing::HasSubstr("r.yaml:4:1: key 'pipeline_stages_per_rank': 1f1b has one stage per rank; got 2. "
                           "hint: pipeline_schedule: interleaved"));
  EXPECT_EQ(recipe_with("micro_batch_size: 3\ngradient_accumulation_steps: 4\npipeline_microbatches: 6\n")
                .pipeline_microbatches,
            6);
  EXPECT_THAT(message_of(kMinimal +
                         "micro_batch_size: 3\ngradient_accumulation_steps: 4\npipeline_microbatches: 5\n"),
              ::testing::HasSubstr(
                  "r.yaml:6:1: key 'pipeline_microbatches': the sequences of a step cannot be divided into "
                  "this many; got 5 "
                  "and micro_batch_size 3 x gradient_accumulation_steps 4 = 12, need a divisor of 12. hint: "
                  "pipeline_microbatches: 4"));
  EXPECT_THAT(message_of(kMinimal + "pipeline_microbatches: 9\n"),
              ::testing::HasSubstr("hint: pipeline_microbatches: 1"));
}

TEST(ParallelismTest, PipelineSplit) {
  EXPECT_TRUE(recipe_with("").pipeline_split.empty());
  const Recipe recipe = recipe_with("pipeline_parallel_size: 3\npipeline_split: [9, 8, 7]\n");
  EXPECT_EQ(recipe.pipeline_split, (std::vector<int64_t>{9, 8, 7}));
  EXPECT_EQ(parse_recipe(dump_recipe(recipe), "again.yaml").pipeline_split, recipe.pipeline_split);
  EXPECT_EQ(
      parse_recipe(kMinimal, "r.yaml", {"pipeline_parallel_size=2", "pipeline_split=[1,4]"}).pipeline_split,
      (std::vector<int64_t>{1, 4}));
  EXPECT_THAT(message_of(kMinimal + "pipeline_split: [2, 2]\n"),
              ::testing::HasSubstr("r.yaml:4:1: key 'pipeline_split': a single rank holds all layers; got "
                                   "pipeline_parallel_size 1. hint: pipeline_parallel_size: 2"));
  EXPECT_THAT(message_of(kMinimal + "pipeline_parallel_size: 2\npipeline_split: [2, 0]\n"),
              ::testing::HasSubstr("key 'pipeline_split.1': out of range; got 0"));
  EXPECT_THAT(message_of(kMinimal + "pipeline_parallel_size: 2\npipeline_split: {a: 1}\n"),
              ::testing::HasSubstr("need a list of whole numbers"));
  EXPECT_EQ(recipe_with("pipeline_split_by: time\n").pipeline_split_by, SplitBasis::Time);
  EXPECT_THAT(
      message_of(kMinimal + "pipeline_parallel_size: 2\npipeline_split: [2, 1]\npipeline_split_by: time\n"),
      ::testing::HasSubstr("r.yaml:6:1: keys 'pipeline_split' and 'pipeline_split_by': time exclude"));
}

TEST(ParallelismTest, SecondaryShardsArePartsOfTheShards) {
  EXPECT_EQ(validate_parallelism(recipe_with(""), 4).hpz, 1);
  const Recipe recipe = recipe_with(
      "context_parallel_size: 2\ndeepspeed: {zero_optimization: {stage: 3, zero_hpz_partition_size: 4}}\n");
  EXPECT_EQ(recipe.zero_hpz_partition_size, 4);
  EXPECT_EQ(validate_parallelism(recipe, 8).hpz, 4);
  EXPECT_THAT(message_of_world(recipe, 6),
              ::testing::HasSubstr(
                  "zero_hpz_partition_size is not a divisor of the number of ranks that shard parameters; "
                  "got zero_hpz_partition_size 4 and dp_shard_size 3 x context_parallel_size 2 = "
                  "6, need a divisor of 6. hint: the nearest valid sizes are 3 and 6"));
  EXPECT_THAT(
      message_of_world(recipe_with("zero_hpz_partition_size: 2\nzero_stage: 2\n"), 4),
      ::testing::HasSubstr("r.yaml:4:1: zero_hpz_partition_size decides from which ranks the backward "
                           "gathers parameters; got zero_hpz_partition_size 2 and zero_stage 2, with which "
                           "they are gathered once per step, need zero_stage 3"));
  // DeepSpeed's default asks for nothing.
  EXPECT_EQ(validate_parallelism(
                recipe_with("deepspeed: {zero_optimization: {stage: 2, zero_hpz_partition_size: 1}}\n"), 4)
                .hpz,
            1);
}

TEST(ParallelismTest, CodesNeedMessagesBetweenRanksThatShardParameters) {
  const Recipe recipe = recipe_with(
      "deepspeed: {zero_optimization: {stage: 3, zero_quantized_weights: true, zero_quantized_gradients: "
      "true}}\n");
  EXPECT_TRUE(recipe.zero_quantized_weights);
  EXPECT_TRUE(recipe.zero_quantized_gradients);
  for (const int64_t ranks : {1, 2, 3}) EXPECT_EQ(validate_parallelism(recipe, ranks).dp_shard, ranks);
  for (const char* stage : {"1", "2"}) {
    (void)validate_parallelism(
        recipe_with(std::string("zero_quantized_gradients: true\nzero_stage: ") + stage + "\n"), 2);
  }
  EXPECT_THAT(message_of_world(recipe_with("zero_quantized_weights: true\nzero_stage: 0\n"), 2),
              ::testing::HasSubstr("zero_quantized_weights compresses parameters as they are gathered; got "
                                   "zero_stage 0"));
  EXPECT_THAT(message_of_world(recipe_with("zero_quantized_gradients: true\ndp_replicate_size: 2\n"), 2),
              ::testing::HasSubstr("zero_quantized_gradients compresses gradients as they are summed"));
}

TEST(ParallelismTest, TheGlobalBatchDecidesTheAccumulation) {
  const Recipe recipe = recipe_with("global_batch_size: 24\nmicro_batch_size: 2\n");
  for (const auto& [readers, steps] : {std::pair{1, 12}, {3, 4}, {12, 1}})
    EXPECT_EQ(with_accumulation(recipe, readers).gradient_accumulation_steps, steps) << readers;
  EXPECT_EQ(with_accumulation(recipe_with("gradient_accumulation_steps: 5\n"), 3).gradient_accumulation_steps,
            5);
  EXPECT_EQ(recipe_with("deepspeed: {train_batch_size: 24}\n").global_batch_size, 24);
  EXPECT_EQ(recipe_with("train_batch_size: 24\n").global_batch_size, 24);
  EXPECT_THAT(
      message_of_world(recipe, 5),
      ::testing::HasSubstr("r.yaml:4:1: global_batch_size is not a multiple of the sequences that the ranks "
                           "process at once; got micro_batch_size 2 x 5 ranks = 10, need a divisor of 24"));
  EXPECT_THAT(
      message_of_world(recipe_with("global_batch_size: 24\ngradient_accumulation_steps: 5\n"), 2),
      ::testing::HasSubstr("got micro_batch_size 1 x gradient_accumulation_steps 5 x 2 ranks = 10, need 24"));
  EXPECT_THAT(message_of_world(recipe_with("global_batch_size: 24\npipeline_microbatches: 5\n"), 2),
              ::testing::HasSubstr("got 5, need a divisor of 12"));
}

TEST(ParallelismTest, TheNoiseOfAGradientNeedsMicroBatches) {
  EXPECT_NO_THROW(validate_parallelism(
      recipe_with("gradient_noise_steps: 5\nglobal_batch_size: 8\nmicro_batch_size: 2\n"), 2));
  EXPECT_THAT(message_of_world(
                  recipe_with("gradient_noise_steps: 5\nglobal_batch_size: 4\nmicro_batch_size: 2\n"), 2),
              ::testing::HasSubstr("got one micro-batch on each rank"));
}

TEST(ParallelismTest, HoldsDeepSpeedsTotalAgainstTheProduct) {
  const Recipe recipe = recipe_with(
      "deepspeed: {train_batch_size: 32, train_micro_batch_size_per_gpu: 4, gradient_accumulation_steps: "
      "2}\n");
  EXPECT_EQ(validate_parallelism(recipe, 4).dp_shard, 4);
  EXPECT_THAT(
      message_of_world(recipe, 2),
      ::testing::HasSubstr("got micro_batch_size 4 x gradient_accumulation_steps 2 x 2 ranks = 16, need 32"));
}

}  // namespace
}  // namespace tessera::config

#include "tessera/config/schema_tables.h"

namespace tessera::config {
namespace {

constexpr Choice kContextParallelMethods[] = {
    {"auto", as_int(ContextParallelMethod::Auto)},
    {"ring", as_int(ContextParallelMethod::Ring)},
    {"ulysses", as_int(ContextParallelMethod::Ulysses)},
    {"usp", as_int(ContextParallelMethod::Usp)},
};
constexpr Choice kZeroStages[] = {
    {"3", as_int(ZeroStage::Zero3)},
    {"2", as_int(ZeroStage::Zero2)},
    {"1", as_int(ZeroStage::Zero1)},
    {"0", as_int(ZeroStage::Ddp)},
};
constexpr Choice kOptimizerOffloadDevices[] = {
    {"none", as_int(OffloadDevice::None)},
    {"cpu", as_int(OffloadDevice::Cpu)},
    {"nvme", as_int(OffloadDevice::Nvme)},
};
constexpr Choice kParamOffloadDevices[] = {
    {"none", as_int(OffloadDevice::None)},
    {"cpu", as_int(OffloadDevice::Cpu)},
    {"nvme", kNotBuilt, "offloading to a drive is not supported yet; write cpu"},
};
constexpr Choice kDevices[] = {
    {"auto"},
    {"cpu"},
    {"cuda"},
    {"cuda:*"},
    {"mps", kNotBuilt, "not supported"},
    {"xpu*", kNotBuilt, "not supported"},
    {"npu*", kNotBuilt, "not supported"},
};
constexpr Choice kSplitBases[] = {
    {"work", as_int(SplitBasis::Work)},
    {"time", as_int(SplitBasis::Time)},
};
constexpr Choice kPipelineSchedules[] = {
    {"1f1b", as_int(PipelineKind::OneFOneB)},
    {"gpipe", as_int(PipelineKind::GPipe)},
    {"interleaved", as_int(PipelineKind::Interleaved)},
    {"zero_bubble", as_int(PipelineKind::ZeroBubble)},
};

const Key<Recipe> kKeys[] = {
    {"device", &Recipe::device, 0, 0, kDevices},
    {"dp_replicate_size", &Recipe::dp_replicate_size, 1, kMaxRanks},
    {"dp_shard_size", &Recipe::dp_shard_size, -1, kMaxRanks},
    {"tensor_parallel_size", &Recipe::tensor_parallel_size, 1, kMaxRanks},
    {"async_tensor_parallel", &Recipe::async_tensor_parallel},
    {"context_parallel_size", &Recipe::context_parallel_size, 1, kMaxRanks},
    {"context_parallel_method", enum_field<&Recipe::context_parallel_method>, 0, 0, kContextParallelMethods},
    {"pipeline_parallel_size", &Recipe::pipeline_parallel_size, 1, kMaxPipeline},
    {"pipeline_schedule", enum_field<&Recipe::pipeline_schedule>, 0, 0, kPipelineSchedules},
    {"pipeline_stages_per_rank", &Recipe::pipeline_stages_per_rank, 0, kMaxPipeline},
    {"pipeline_split", &Recipe::pipeline_split, 1, kMaxPipeline},
    {"pipeline_split_by", enum_field<&Recipe::pipeline_split_by>, 0, 0, kSplitBases},
    {"pipeline_microbatches", &Recipe::pipeline_microbatches, 0, 1e6},
    {"expert_parallel_size", &Recipe::expert_parallel_size, 1, kMaxRanks},
    {"zero_stage", enum_field<&Recipe::zero_stage>, 0, 0, kZeroStages},
    {"offload_optimizer_device", enum_field<&Recipe::offload_optimizer_device>, 0, 0,
     kOptimizerOffloadDevices},
    {"offload_optimizer_nvme_path", &Recipe::offload_optimizer_nvme_path},
    {"offload_optimizer_buffer_count", &Recipe::offload_optimizer_buffer_count, 1, 4096},
    {"aio_block_size", &Recipe::aio_block_size, 1, 1 << 30},
    {"aio_queue_depth", &Recipe::aio_queue_depth, 1, 1024},
    {"offload_param_device", enum_field<&Recipe::offload_param_device>, 0, 0, kParamOffloadDevices},
    {"host_memory_limit", &Recipe::host_memory_limit},
    {"zero_hpz_partition_size", &Recipe::zero_hpz_partition_size, 1, kMaxRanks},
    {"zero_quantized_weights", &Recipe::zero_quantized_weights},
    {"zero_quantized_gradients", &Recipe::zero_quantized_gradients},
    {"ddp_timeout", &Recipe::collective_timeout_s, kTiny, 1e9},
};

}  // namespace

std::span<const Key<Recipe>> parallelism_keys() { return kKeys; }

}  // namespace tessera::config

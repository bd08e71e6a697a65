// Checks that cuDNN compiles the same kernels, to the byte, from our graphs of attention and from those that
// NVIDIA's frontend writes. check_cudnn_graphs.sh runs this program.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <cudnn_frontend.h>

#include "tessera/core/shared_library.h"
#include "tessera/ops/cuda/attention_graph.h"

#include "tests/ops/cuda/described_device.h"

namespace {

namespace fe = cudnn_frontend;
using namespace tessera::ops::cuda;
namespace testing = tessera::testing;

struct Case {
  const char* name;
  AttentionShape shape;
};
constexpr AttentionShape kShape = {dnn::kBF16, 2, 4096, 4096, 32, 8, 128, -1, 0, false, 0.088f};
AttentionShape with(int64_t left, int64_t right, bool is_from_end) {
  AttentionShape shape = kShape;
  shape.left = left, shape.right = right, shape.is_from_end = is_from_end;
  return shape;
}
AttentionShape with_heads(int64_t heads, int64_t kv_heads, int64_t head_dim) {
  AttentionShape shape = kShape;
  shape.heads = heads, shape.kv_heads = kv_heads, shape.head_dim = head_dim;
  return shape;
}

// Builds the graph of the same attention with the frontend.
bool build_theirs(const AttentionShape& shape, bool is_backward) {
  using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
  const std::string text = testing::description(testing::kH100);
  const auto device = std::make_shared<fe::DeviceProperties>();
  if (device->deserialize({text.begin(), text.end()}).is_bad()) return false;
  fe::graph::Graph graph;
  graph.set_device_properties(device)
      .set_sm_version(90)
      .set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto numbers = [&](const char* name, int64_t count, fe::DataType_t type) {
    return graph.tensor(fe::graph::Tensor_attributes()
                            .set_name(name)
                            .set_dim({count, 1, 1, 1})
                            .set_stride({1, 1, 1, 1})
                            .set_data_type(type));
  };
  const auto offsets = [&](const char* name) {
    return numbers(name, shape.documents + 1, fe::DataType_t::INT64);
  };
  const auto lengths = [&](const char* name) {
    return numbers(name, shape.documents, fe::DataType_t::INT32);
  };
  const Tensor query_offsets = offsets("query offsets"), key_offsets = offsets("key offsets"),
               sum_offsets = offsets("sum offsets"), query_lengths = lengths("query lengths"),
               key_lengths = lengths("key lengths");
  const auto place = [&](auto& tensor, int64_t heads, int64_t longest, int64_t width, const Tensor& begins) {
    tensor.set_dim({shape.documents, heads, longest, width})
        .set_stride({longest * heads * width, width, heads * width, 1})
        .set_ragged_offset(begins);
  };
  const auto queries = [&](const char* name) {
    fe::graph::Tensor_attributes tensor;
    place(tensor.set_name(name), shape.heads, shape.longest_query, shape.head_dim, query_offsets);
    return graph.tensor(tensor);
  };
  const auto keys = [&](const char* name) {
    fe::graph::Tensor_attributes tensor;
    place(tensor.set_name(name), shape.kv_heads, shape.longest_key, shape.head_dim, key_offsets);
    return graph.tensor(tensor);
  };
  const auto configure = [&](auto options) {
    options.set_attn_scale(shape.scale).set_padding_mask(true);
    options.set_seq_len_q(query_lengths).set_seq_len_kv(key_lengths);
    options.set_diagonal_alignment(shape.is_from_end ? fe::DiagonalAlignment_t::BOTTOM_RIGHT
                                                     : fe::DiagonalAlignment_t::TOP_LEFT);
    if (shape.right >= 0) options.set_diagonal_band_right_bound(shape.right);
    if (shape.left >= 0) options.set_diagonal_band_left_bound(shape.left + 1);
    return options;
  };
  const Tensor q = queries("q"), k = keys("k"), v = keys("v");
  if (is_backward) {
    fe::graph::Tensor_attributes sums;
    place(sums.set_name("sums").set_data_type(fe::DataType_t::FLOAT), shape.heads, shape.longest_query, 1,
          sum_offsets);
    const int64_t tokens = shape.documents * shape.longest_query;
    const auto options = configure(
        fe::graph::SDPA_backward_attributes().set_max_total_seq_len_q(tokens).set_max_total_seq_len_kv(
            tokens));
    const auto [grad_q, grad_k, grad_v] =
        graph.sdpa_backward(q, k, v, queries("out"), queries("grad out"), graph.tensor(sums), options);
    place(grad_q->set_output(true), shape.heads, shape.longest_query, shape.head_dim, query_offsets);
    place(grad_k->set_output(true), shape.kv_heads, shape.longest_key, shape.head_dim, key_offsets);
    place(grad_v->set_output(true), shape.kv_heads, shape.longest_key, shape.head_dim, key_offsets);
  } else {
    const auto [out, sums] =
        graph.sdpa(q, k, v, configure(fe::graph::SDPA_attributes().set_generate_stats(true)));
    place(out->set_output(true), shape.heads, shape.longest_query, shape.head_dim, query_offsets);
    place(sums->set_output(true).set_data_type(fe::DataType_t::FLOAT), shape.heads, shape.longest_query, 1,
          sum_offsets);
  }
  const auto is_done = [](fe::error_t error) {
    if (error.is_bad()) std::printf("%s\n", error.get_message().c_str());
    return error.is_good();
  };
  return is_done(graph.validate()) && is_done(graph.build_operation_graph()) &&
         is_done(graph.create_execution_plans({fe::HeurMode_t::A})) && is_done(graph.check_support()) &&
         is_done(graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE));
}

void build_ours(const CudnnLibrary& library, const AttentionShape& shape, bool is_backward) {
  const std::string text = testing::description(testing::kH100);
  dnn::Desc device = nullptr;
  library.desc_create(dnn::kDeviceProperties, &device);
  library.desc_set(device, dnn::kDeviceJson, dnn::kCharValue, static_cast<int64_t>(text.size()), text.data());
  library.desc_finalize(device);
  {
    CudnnGraph graph(library);
    is_backward ? add_attention_backward(graph, shape) : add_attention_forward(graph, shape);
    graph.build({.device = device});
  }
  library.desc_destroy(device);
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  tessera::SharedLibrary driver({words[1]}, tessera::SharedLibrary::Symbols::OfAll);
  uint64_t (*image)() = nullptr;
  driver.find(image, "fake_driver_image");
  std::string why_not;
  const auto library = CudnnLibrary::open(why_not, words[2]);
  if (!driver.is_usable() || !library) {
    std::printf("%s\n", driver.is_usable() ? why_not.c_str() : driver.why_not().c_str());
    return 2;
  }
  int differing = 0;
  for (const Case& each : std::vector<Case>{{"causal", kShape},
                                            {"causal, window", with(511, 0, false)},
                                            {"window on both sides", with(511, 511, false)},
                                            {"causal, more keys", with(-1, 0, true)},
                                            {"causal, window, more keys", with(511, 0, true)},
                                            {"causal, 14 heads of 64", with_heads(14, 2, 64)},
                                            {"causal, a key head each", with_heads(32, 32, 128)}}) {
    for (const bool is_backward : {false, true}) {
      build_ours(*library, each.shape, is_backward);
      const uint64_t ours = image();
      const bool is_same = build_theirs(each.shape, is_backward) && image() == ours;
      std::printf("%s, %s: %s\n", each.name, is_backward ? "backward" : "forward",
                  is_same ? "same" : "OTHER");
      differing += is_same ? 0 : 1;
    }
  }
  return differing == 0 ? 0 : 1;
}

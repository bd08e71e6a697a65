// Tests of attention by cuDNN: that the graphs compute attention and its gradient, with a stub of cuDNN that
// computes graphs on the host, and in which cases cuDNN is asked.
#include "tessera/ops/cuda/cudnn_attention.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/environment.h"
#include "tessera/ops/cuda/attention_kernel.h"
#include "tessera/ops/plain.h"

#include "tests/ops/cuda/stub_cudnn.h"
#include "tests/testing/gradcheck.h"
#include "tests/testing/random.h"
#include "tests/testing/stub_library.h"

namespace tessera::ops::cuda {
namespace {

using checks::random_tensor;
using tessera::testing::Random;
using ::testing::HasSubstr;

CudnnLibrary stub_library() {
  std::string why_not;
  return CudnnLibrary::open(why_not, TESSERA_STUB_CUDNN).value();
}

// The object that forward() and its like call: attend_by() takes plain functions.
CudnnAttention* called = nullptr;
AttentionResult forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const VarlenCall& call,
                        double scale) {
  return called->attend(q, k, v, call, scale).value();
}
AttentionGradients backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const AttentionResult& result, const VarlenCall& call,
                            double scale) {
  return called->differentiate(grad_out, q, k, v, result, call, scale).value();
}
constexpr VarlenKernel kByCudnn{forward, backward};

at::Tensor wide(const at::Tensor& x) { return x.to(at::kDouble); }

// Expects that `got` is `exact` rounded to its type once; or, if is_sum, the rounded sum of the rounded
// shares of several heads.
void expect_rounded(const at::Tensor& got, const at::Tensor& exact, const std::string& what,
                    bool is_sum = false) {
  ASSERT_EQ(got.sizes(), exact.sizes()) << what;
  const double unit = got.scalar_type() == at::kHalf ? 1.0 / 1024 : 1.0 / 128;
  const double more = is_sum ? unit * exact.abs().max().item<double>() : 0.0;
  EXPECT_TRUE(at::allclose(wide(got), exact, unit, 1e-6 + more))
      << what << ": " << (wide(got) - exact).abs().max().item<double>();
}

class CudnnAttentions : public ::testing::Test {
 protected:
  void SetUp() override {
    stub_->handles = stub_->plans = stub_->runs = 0;
    stub_->create_status = stub_->plan_status = stub_->run_status = 0;
    attention_ = std::make_unique<CudnnAttention>(stub_library());
    called = attention_.get();
  }
  void TearDown() override {
    attention_.reset();
    EXPECT_EQ(stub_->live, 0);
    EXPECT_EQ(stub_->faults, 0);
  }

  struct Inputs {
    at::Tensor q, k, v, grad;
  };
  static Inputs inputs(int64_t queries, int64_t keys, int64_t heads, int64_t kv_heads, at::ScalarType type,
                       int64_t head_dim = 16) {
    const auto random = [&](int64_t rows, int64_t of_heads, uint64_t seed) {
      return random_tensor({rows, of_heads, head_dim}, seed).to(type);
    };
    return {random(queries, heads, 1), random(keys, kv_heads, 2), random(keys, kv_heads, 3),
            random(queries, heads, 4)};
  }
  // Expects the output and gradients of the plain formula in float64.
  static void expect_attention(const Inputs& in, const std::vector<AttentionSpan>& spans,
                               const AttentionFormula& formula) {
    const at::Tensor q = wide(in.q), k = wide(in.k), v = wide(in.v);
    const AttentionResult want = plain::attend_spans(q, k, v, spans, formula),
                          got = attend_by(kByCudnn, in.q, in.k, in.v, spans, formula);
    expect_rounded(got.out, want.out, "out");
    ASSERT_EQ(got.log_sum.sizes(), want.log_sum.sizes());
    EXPECT_EQ(got.log_sum.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::allclose(wide(got.log_sum), want.log_sum, 1e-6, 1e-6));
    // If `more` is not 0, the spans are one part of a larger softmax, as in ring attention.
    for (const double more : {0.0, 0.7}) {
      const AttentionResult whole{got.out, got.log_sum + more};
      const AttentionGradients made =
          differentiate_by(kByCudnn, in.grad, in.q, in.k, in.v, whole, spans, formula);
      const AttentionGradients wanted = plain::attend_spans_backward(
          wide(in.grad), q, k, v, {wide(whole.out), wide(whole.log_sum)}, spans, formula);
      expect_rounded(made.q, wanted.q, "gradient of q");
      const bool is_sum = q.size(1) != k.size(1);
      expect_rounded(made.k, wanted.k, "gradient of k", is_sum);
      expect_rounded(made.v, wanted.v, "gradient of v", is_sum);
    }
  }

  testing::StubCudnn* const stub_ = &testing::stub_of<testing::StubCudnn>(TESSERA_STUB_CUDNN, "stub_cudnn");
  std::unique_ptr<CudnnAttention> attention_;
};

VarlenCall call_of(const std::vector<int64_t>& starts, const AttentionFormula& formula = {1.0}) {
  return varlen_calls(spans_of_documents(starts), formula).at(0);
}

TEST_F(CudnnAttentions, DocumentsAreThePlainFormulas) {
  const std::vector<int64_t> starts = {0, 1, 3, 35, 95, 101};
  for (const auto& [heads, kv_heads] : {std::pair{2, 2}, {3, 1}}) {
    const Inputs in = inputs(101, 101, heads, kv_heads, at::kBFloat16);
    for (const AttentionFormula& formula :
         {AttentionFormula{0.25}, {0.25, false}, {0.25, true, 9}, {0.25, false, 9}, {0.25, true, 1}}) {
      SCOPED_TRACE(::testing::Message() << heads << ' ' << formula.is_causal << ' ' << formula.window);
      expect_attention(in, spans_of_documents(starts), formula);
      if (HasFailure()) return;
    }
  }
}

TEST_F(CudnnAttentions, RandomSpansAreThePlainFormulas) {
  Random random;
  for (int round = 0; round < 6; ++round) {
    std::vector<AttentionSpan> spans;
    int64_t queries = random.in(0, 3), keys = random.in(0, 3);
    for (int64_t i = random.in(1, 5); i > 0; --i) {
      const int64_t longest = 30;
      AttentionSpan span{queries, random.in(1, longest), keys, random.in(1, longest),
                         random.in(-longest, 2 * longest)};
      if (round % 3 == 1) span.ahead = 3 * longest;  // keys before all queries, as in a ring's earlier half
      queries += span.queries + random.in(0, 2);
      keys += span.keys + random.in(0, 2);
      spans.push_back(span);
    }
    const int64_t kv_heads = random.in(1, 2), heads = kv_heads * random.in(1, 3);
    const Inputs in = inputs(queries, keys, heads, kv_heads, round % 2 == 0 ? at::kHalf : at::kBFloat16);
    for (const bool is_causal : {true, false}) {
      for (const int64_t window : {int64_t{0}, random.in(1, 40)}) {
        SCOPED_TRACE(::testing::Message() << round << ' ' << is_causal << ' ' << window);
        expect_attention(in, spans, {.scale = 0.3, .is_causal = is_causal, .window = window});
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(CudnnAttentions, TakesTensorsInAnyPlace) {
  const Inputs dense = inputs(20, 20, 2, 1, at::kBFloat16);
  // One tensor begins 2 bytes behind an aligned address, another has the strides of a wider row.
  const auto moved = [](const at::Tensor& x) {
    const at::Tensor all = at::empty({x.numel() + 1}, x.options());
    const at::Tensor view = all.narrow(0, 1, x.numel()).view(x.sizes());
    view.copy_(x);
    return view;
  };
  const auto strided = [](const at::Tensor& x) { return at::cat({x, x}, 1).narrow(1, x.size(1), x.size(1)); };
  expect_attention({moved(dense.q), strided(dense.k), moved(dense.v), strided(dense.grad)},
                   spans_of_documents({0, 7, 20}), {0.25});
}

TEST_F(CudnnAttentions, OneKernelServesManyBatches) {
  const auto run = [&](const std::vector<int64_t>& starts, int64_t heads = 2) {
    const Inputs in = inputs(starts.back(), starts.back(), heads, 1, at::kBFloat16);
    expect_attention(in, spans_of_documents(starts), {0.25});
  };
  run({0, 40, 90, 100});
  EXPECT_EQ(stub_->plans, 2);  // one for the forward, one for the backward
  run({0, 10, 11, 12, 75});    // four documents of at most 64 tokens
  run({0, 1, 2, 5});
  EXPECT_EQ(stub_->plans, 2);
  run({0, 65});
  EXPECT_EQ(stub_->plans, 4);
  run({0, 65}, 3);
  EXPECT_EQ(stub_->plans, 6);
  EXPECT_EQ(stub_->handles, 1);
  EXPECT_EQ(stub_->runs, 5 * 3);
}

TEST_F(CudnnAttentions, ARefusalIsWarnedOfOnce) {
  const Inputs in = inputs(20, 20, 2, 1, at::kBFloat16);
  const VarlenCall call = call_of({0, 20});
  const auto warned = [&](const VarlenCall& of) {
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(attention_->attend(in.q, in.k, in.v, of, 0.25).has_value());
    return ::testing::internal::GetCapturedStderr();
  };
  stub_->plan_status = dnn::kNotSupported;
  EXPECT_THAT(warned(call), HasSubstr("cuDNN cannot compute attention over long documents"));
  stub_->plan_status = 0;
  EXPECT_EQ(warned(call), "");  // cuDNN is not asked again for this shape
  stub_->run_status = dnn::kNotSupported;
  EXPECT_EQ(warned(call_of({0, 10, 20})), "");
  stub_->run_status = 0;
  EXPECT_EQ(stub_->runs, 0);
  EXPECT_TRUE(attention_->attend(in.q, in.k, in.v, call_of({0, 5, 10, 20}), 0.25).has_value());

  stub_->create_status = dnn::kBadParameter;
  CudnnAttention without_handle(stub_library());
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(without_handle.attend(in.q, in.k, in.v, call, 0.25).has_value());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("cudnnCreate failed"));
}

// The kernel that computes if cuDNN does not. Here its empty result tells that it was called.
AttentionResult other_forward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const VarlenCall&,
                              double) {
  return {};
}
AttentionGradients other_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                  const AttentionResult&, const VarlenCall&, double) {
  return {};
}

TEST_F(CudnnAttentions, IsAskedFirst) {
  constexpr VarlenKernel kOther{other_forward, other_backward};
  const Inputs in = inputs(20, 20, 2, 1, at::kBFloat16);
  VarlenCall call = call_of({0, 20});
  const auto is_attended = [&](CudnnAttention* cudnn) {
    return attend_by_cudnn_or(kOther, cudnn, in.q, in.k, in.v, call, 0.25).out.defined();
  };
  const AttentionResult result = attention_->attend(in.q, in.k, in.v, call, 0.25).value();
  const auto is_differentiated = [&](CudnnAttention* cudnn) {
    return differentiate_by_cudnn_or(kOther, cudnn, in.grad, in.q, in.k, in.v, result, call, 0.25)
        .q.defined();
  };
  EXPECT_TRUE(is_attended(attention_.get()));
  EXPECT_TRUE(is_differentiated(attention_.get()));
  EXPECT_FALSE(is_attended(nullptr));
  EXPECT_FALSE(is_differentiated(nullptr));
  // The bits of cuDNN's gradients differ from run to run, so it is not asked for them in deterministic mode.
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  EXPECT_TRUE(is_attended(attention_.get()));
  EXPECT_FALSE(is_differentiated(attention_.get()));
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
  // Its gradients without a causal mask are not always right, so it is not asked for them.
  call = call_of({0, 20}, {1.0, false});
  EXPECT_TRUE(is_attended(attention_.get()));
  EXPECT_FALSE(is_differentiated(attention_.get()));
  call = call_of({0, 20});
  stub_->run_status = dnn::kNotSupported;
  EXPECT_FALSE(is_attended(attention_.get()));
  EXPECT_FALSE(is_differentiated(attention_.get()));
}

TEST_F(CudnnAttentions, ServesSeveralThreads) {
  const Inputs in = inputs(40, 40, 2, 1, at::kBFloat16);
  const VarlenCall call = call_of({0, 25, 40});
  const at::Tensor want = attention_->attend(in.q, in.k, in.v, call, 0.25)->out;
  std::vector<at::Tensor> outs(4);
  std::vector<std::thread> threads;
  for (at::Tensor& out : outs)
    threads.emplace_back([&] { out = attention_->attend(in.q, in.k, in.v, call, 0.25)->out; });
  for (std::thread& thread : threads) thread.join();
  for (const at::Tensor& out : outs) EXPECT_TRUE(at::equal(out, want));
  EXPECT_EQ(stub_->plans, 1);
}

TEST(AttentionShape, IsRoundedUp) {
  const at::Tensor q = at::empty({9000, 6, 128}, at::kHalf), k = at::empty({9000, 2, 128}, at::kHalf);
  const AttentionShape shape = attention_shape(q, k, call_of({0, 5000, 5001, 9000}, {1.0, true, 100}), 0.5);
  EXPECT_EQ(shape, (AttentionShape{dnn::kF16, 4, 8192, 8192, 6, 2, 128, 99, 0, false, 0.5f}));
  // A window that is longer than any document counts as none.
  EXPECT_EQ(attention_shape(q, k, call_of({0, 9000}, {1.0, true, int64_t{1} << 40}), 1).left, -1);
  // The numbers of queries and keys differ, with a diagonal at the end of the document and elsewhere.
  EXPECT_TRUE(attention_shape(q, k, varlen_calls({{0, 100, 0, 300, 200}}, {1.0}).at(0), 1).is_from_end);
  EXPECT_FALSE(attention_shape(q, k, varlen_calls({{0, 100, 0, 300, 900}}, {1.0}).at(0), 1).is_from_end);
}

TEST(CallNumbers, AreOffsetsAndLengthsOfDocuments) {
  AttentionShape shape{dnn::kBF16, 4, 64, 64, 6, 2, 16, -1, 0, false, 1.0f};
  const CallNumbers numbers = call_numbers(call_of({0, 7, 8, 20}), shape);
  const auto words = [&](AttentionMemory what, size_t count) {
    const auto found = std::find_if(numbers.places.begin(), numbers.places.end(),
                                    [&](const auto& place) { return place.first == what; });
    EXPECT_EQ(found->second % 2, 0U);
    const auto first = numbers.words.begin() + static_cast<int64_t>(found->second);
    return std::vector<int64_t>(first, first + static_cast<int64_t>(count));
  };
  // The fourth document has no tokens.
  EXPECT_THAT(words(AttentionMemory::QueryOffsets, 5), ::testing::ElementsAre(0, 672, 768, 1920, 1920));
  EXPECT_THAT(words(AttentionMemory::KeyOffsets, 5), ::testing::ElementsAre(0, 224, 256, 640, 640));
  EXPECT_THAT(words(AttentionMemory::LogSumOffsets, 5), ::testing::ElementsAre(0, 42, 48, 120, 120));
  for (const AttentionMemory lengths : {AttentionMemory::QueryLengths, AttentionMemory::KeyLengths}) {
    const std::vector<int64_t> packed = words(lengths, 2);
    std::vector<int32_t> read(4);
    std::memcpy(read.data(), packed.data(), 16);
    EXPECT_THAT(read, ::testing::ElementsAre(7, 1, 12, 0));
  }
}

TEST(AttentionScratch, IsInWholeTilesOfTokens) {
  AttentionShape shape{dnn::kBF16, 1, 4096, 8192, 6, 2, 64, -1, 0, false, 1.0f};
  int64_t bytes = 0;
  for (const AttentionScratch& piece : backward_scratch(shape, 4097, 8000)) bytes += piece.bytes;
  EXPECT_EQ(bytes, 4224 * 6 * 4 * (64 + 1) + 2 * 8064 * 6 * 64 * 4);
  shape.kv_heads = 6;
  EXPECT_EQ(backward_scratch(shape, 4097, 8000).size(), 2U);
}

TEST(AttentionKernel, AsksCudnnForLongDocuments) {
  const auto is_asked = [](const std::vector<int64_t>& starts, int64_t head_dim = 128,
                           at::ScalarType type = at::kBFloat16) {
    return is_for_cudnn(at::empty({starts.back(), 2, head_dim}, type), call_of(starts));
  };
  EXPECT_TRUE(is_asked({0, 4096}));
  EXPECT_FALSE(is_asked({0, 4095}));
  EXPECT_TRUE(is_asked({0, 100, 4196, 5000}));
  EXPECT_TRUE(is_asked({0, 4096}, 64));
  EXPECT_TRUE(is_asked({0, 4096}, 96, at::kHalf));
  EXPECT_FALSE(is_asked({0, 4096}, 72));
  EXPECT_FALSE(is_asked({0, 4096}, 32));
  EXPECT_FALSE(is_asked({0, 4096}, 256));
  EXPECT_FALSE(is_asked({0, 4096}, 128, at::kFloat));
  // cuDNN is not asked for one long document among many short ones.
  std::vector<int64_t> starts = {0, 4096};
  for (int i = 0; i < 20; ++i) starts.push_back(starts.back() + 10);
  EXPECT_FALSE(is_asked(starts));
  // It is not asked for a few new tokens over a long cache.
  const VarlenCall cached = varlen_calls({{0, 4, 0, 9000, 8996}}, {1.0}).at(0);
  EXPECT_FALSE(is_for_cudnn(at::empty({4, 2, 128}, at::kBFloat16), cached));
  EXPECT_FALSE(has_cudnn_attention(at::kCPU));
  environment::set("TESSERA_CUDNN", "0");
  EXPECT_FALSE(is_asked({0, 4096}));
  environment::unset("TESSERA_CUDNN");
}

TEST(AttentionKernel, DoesNotTrustGradientsOfHalfATile) {
  const auto is_sound = [](size_t version, int64_t keys, const AttentionFormula& formula) {
    return has_sound_gradients(version, call_of({0, 256, 256 + keys}, formula));
  };
  const AttentionFormula causal, whole = {1.0, false}, window = {1.0, false, 100};
  for (const int64_t keys : {4097, 4128, 4160}) {
    EXPECT_FALSE(is_sound(91900, keys, whole)) << keys;
    EXPECT_FALSE(is_sound(92599, keys, window)) << keys;
    EXPECT_TRUE(is_sound(92600, keys, whole)) << keys;
    EXPECT_TRUE(is_sound(91900, keys, causal)) << keys;
  }
  EXPECT_TRUE(is_sound(91900, 4096, whole));
  EXPECT_TRUE(is_sound(91900, 4161, whole));
}

TEST(CudnnLibrary, IsNotTakenWhereItDoesNotFit) {
  testing::expect_others_refused<CudnnLibrary>("cudnnGetVersion", TESSERA_STUB_CUDNN_OLDER,
                                               "9.10.2, not of 9.19.0 or a later 9");
}

}  // namespace
}  // namespace tessera::ops::cuda

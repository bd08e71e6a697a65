#include "tessera/checkpoint/vocabulary_rows.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/random_boxes.h"

namespace tessera::checkpoint {
namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

std::shared_ptr<const StoredTensors> resized(const testing::Tensors& tensors, const VocabularyRows& rows,
                                             const char* head_stream = kHead) {
  return with_vocabulary_rows(std::make_shared<const testing::TensorsInMemory>(tensors),
                              {{kEmbedding, kEmbedding}, {kHead, head_stream}, {"missing", "missing"}}, rows,
                              0.5);
}

at::Tensor read(const StoredTensors& files, const std::string& name, const parallel::Box& box,
                at::ScalarType type = at::kDouble) {
  const at::Tensor values = at::empty(box.size, type);
  files.read(name, box, values);
  return values;
}

at::Tensor read(const StoredTensors& files, const std::string& name) {
  return read(files, name, whole_box(files.find(name)->shape));
}

TEST(VocabularyRows, EveryBoxHasTheNumbersOfTheWhole) {
  testing::RandomBoxes random;
  for (int round = 0; round < 100; ++round) {
    const int64_t rows = random.in(2, 30), columns = random.in(1, 7), count = random.in(1, 40);
    SCOPED_TRACE(std::to_string(rows) + " to " + std::to_string(count));
    const at::Tensor old = at::randn({rows, columns}, at::kDouble);
    const auto files = resized({{kEmbedding, old}, {kHead, old + 1}, {"norm", old}},
                               {.count = count, .are_near_mean = random.flip(), .seed = 3});
    EXPECT_EQ(files->find("norm")->shape, (std::vector<int64_t>{rows, columns}));
    const at::Tensor whole = read(*files, kEmbedding);
    ASSERT_EQ(whole.sizes().vec(), (std::vector<int64_t>{count, columns}));
    const int64_t kept = std::min(rows, count);
    EXPECT_TRUE(at::equal(whole.narrow(0, 0, kept), old.narrow(0, 0, kept)));
    const parallel::Box box = random.box({count, columns});
    EXPECT_TRUE(at::equal(read(*files, kEmbedding, box), parallel::box_part(whole, box)));
    EXPECT_TRUE(at::allclose(read(*files, kEmbedding, box, at::kFloat).to(at::kDouble),
                             parallel::box_part(whole, box), 1e-6, 1e-6));
    EXPECT_TRUE(at::equal(read(*files, "norm"), old));
  }
}

TEST(VocabularyRows, NewRowsAreDrawnAroundZeroWithTheModelsDeviation) {
  const at::Tensor old = at::randn({4, 50}, at::kDouble) + 7;
  const auto files = resized({{kEmbedding, old}, {kHead, old}}, {.count = 404, .seed = 1});
  const at::Tensor fresh = read(*files, kEmbedding).narrow(0, 4, 400);
  EXPECT_NEAR(fresh.mean().item<double>(), 0.0, 0.02);
  EXPECT_NEAR(fresh.std().item<double>(), 0.5, 0.01);
  EXPECT_FALSE(at::equal(fresh, read(*files, kHead).narrow(0, 4, 400))) << "each table has its own numbers";
  const auto tied = resized({{kEmbedding, old}, {kHead, old}}, {.count = 404, .seed = 1}, kEmbedding);
  EXPECT_TRUE(at::equal(read(*tied, kEmbedding), read(*tied, kHead)));
  const auto other = resized({{kEmbedding, old}, {kHead, old}}, {.count = 404, .seed = 2});
  EXPECT_FALSE(at::equal(fresh, read(*other, kEmbedding).narrow(0, 4, 400)));
}

// The covariance of the new rows is that of the old ones times 1e-9, with all its correlations.
TEST(VocabularyRows, NewRowsNearTheMeanHaveTheCovarianceOfTheOthers) {
  const at::Tensor mixing =
      at::tensor({1.0, 0.8, -0.5, 0.0, 0.6, 0.3, 0.0, 0.0, 0.2}, at::kDouble).view({3, 3});
  const at::Tensor old = at::randn({500, 3}, at::kDouble).matmul(mixing) + 2;
  const auto files =
      resized({{kEmbedding, old}, {kHead, old}}, {.count = 500 + 20000, .are_near_mean = true, .seed = 5});
  const at::Tensor fresh = read(*files, kEmbedding).narrow(0, 500, 20000);
  const auto covariance = [](const at::Tensor& rows) {
    const at::Tensor centred = rows - rows.mean(0);
    return centred.t().matmul(centred) / static_cast<double>(rows.size(0));
  };
  EXPECT_TRUE(at::allclose(fresh.mean(0), old.mean(0), 0, 1e-6));
  const at::Tensor want = covariance(old), got = covariance(fresh) * 1e9;
  EXPECT_LT((got - want).abs().max().item<double>(), 0.05 * want.abs().max().item<double>()) << got << want;
}

TEST(VocabularyRows, AConfigurationNamesTheNewSize) {
  EXPECT_THAT(with_vocab_size(R"({"a": 1, "vocab_size": 5})", 9), ::testing::HasSubstr("\"vocab_size\": 9"));
  const std::string nested = with_vocab_size(R"({"text_config": {"vocab_size": 5}, "b": 2})", 9);
  EXPECT_EQ(nested, "{\n  \"text_config\": {\n    \"vocab_size\": 9\n  },\n  \"b\": 2\n}\n");
}

}  // namespace
}  // namespace tessera::checkpoint

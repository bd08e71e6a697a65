// Log-likelihoods and generated texts against those of lm-evaluation-harness' model `hf`, for one process and
// for ranks that share the model.
#include "tessera/generation/answer_requests.h"

#include <gtest/gtest.h>

#include "tessera/generation/inference_ranks.h"
#include "tessera/generation/load_for_inference.h"
#include "tessera/generation/score_tokens.h"

#include "tests/scoring/task_reference.h"
#include "tests/testing/mpi_world.h"

namespace tessera::generation {
namespace {

using namespace scoring;

struct Layout {
  int64_t tp, pp;
};

// Holds the answers of a model in some layout against the reference.
void expect_reference(const Layout& layout, at::ScalarType type, int64_t max_tokens) {
  SCOPED_TRACE("tp " + std::to_string(layout.tp) + ", pp " + std::to_string(layout.pp) + ", at most " +
               std::to_string(max_tokens) + " tokens");
  const auto world = testing::world();
  const InferenceSizes sizes{layout.tp, layout.pp, 1, true};
  const parallel::DeviceMesh mesh(world, inference_dims(sizes, world->size()));
  const ModelSource source(task_folder() + "model", "");
  const auto model = source.load(at::TensorOptions(at::kCPU).dtype(type), mesh);
  const RequestEncoder encoder(source.tokenizer(), scored_length(*model));
  const Json reference = read_reference("reference.json");
  const ReferenceTasks ours;
  for (const auto& task : ours.tasks) {
    const std::string& name = task->config().name;
    const auto responses = answer_requests(
        *task, *model, source.tokenizer(), encoder, mesh,
        {.batch_size = 2, .max_tokens = max_tokens, .stop_ids = source.stop_ids(*model), .seed = 0});
    const bool is_generated = task->config().output_type == OutputType::GenerateUntil;
    size_t next = 0;
    for (const Json& document : documents_of(reference, name)) {
      for (const Json& logged : document["resps"]) {
        const Response want = response_of(logged[0]), &got = responses[next++][0];
        EXPECT_NEAR(got.log_likelihood, want.log_likelihood, 1e-4) << name << " " << next;
        EXPECT_EQ(got.is_greedy && logged[0].is_array(), want.is_greedy) << name << " " << next;
        EXPECT_EQ(got.text, is_generated && world->rank() == 0 ? want.text : "") << name << " " << next;
      }
    }
  }
}

TEST(AnswerRequests, AreThoseOfTheHarness) {
  const int64_t ranks = testing::world()->size();
  // 7 tokens at a time cut the requests in several places.
  for (const int64_t max_tokens : {7, 1024}) expect_reference({1, 1}, at::kFloat, max_tokens);
  if (ranks == 2) {
    expect_reference({2, 1}, at::kDouble, 100);
    expect_reference({1, 2}, at::kFloat, 100);
  }
}

// Questions behind the same examples, each with choices of one token and of several, and requests apart.
std::vector<TokenRequest> requests_that_begin_alike() {
  std::vector<TokenRequest> requests;
  const auto ids = [](size_t count, int64_t seed) {
    std::vector<int64_t> made;
    for (size_t i = 0; i < count; ++i) made.push_back((static_cast<int64_t>(i) * 37 + seed * 11) % 420);
    return made;
  };
  for (const int64_t question : {1, 2, 3, 4}) {
    for (const int64_t choice : {5, 6, 7, 8}) {
      std::vector<int64_t> all = ids(70, 0);
      for (const auto& more : {ids(30, question), ids(choice < 7 ? 1 : 8, choice)})
        all.insert(all.end(), more.begin(), more.end());
      requests.push_back({all, choice < 7 ? 1 : 8});
    }
  }
  for (const size_t length : {2UL, 33UL, 64UL, 65UL, 101UL}) requests.push_back({ids(length, 0), 1});
  requests.push_back({ids(90, 0), 89});  // no page of it is without scored tokens
  return requests;
}

TEST(ScoreTokens, EqualBeginningsAreComputedOnceAndChangeNothing) {
  if (testing::world()->size() > 1) return;
  const auto requests = requests_that_begin_alike();
  const ModelSource source(task_folder() + "model", "");
  for (const auto& [type, tolerance] : {std::pair{at::kFloat, 1e-5}, {at::kDouble, 1e-10}}) {
    const auto model =
        source.load(at::TensorOptions(at::kCPU).dtype(type), {comm::Communicator::single(), {}});
    for (const int64_t max_tokens : {5, 48, 1024}) {
      int64_t passes = 0, shared_passes = 0;
      const auto plain =
                     score_tokens(*model, requests, {max_tokens, [&](int64_t, int64_t) { ++passes; }, false}),
                 shared = score_tokens(*model, requests,
                                       {max_tokens, [&](int64_t, int64_t) { ++shared_passes; }, true});
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_NEAR(shared[i].log_prob, plain[i].log_prob, tolerance * std::abs(plain[i].log_prob)) << i;
        EXPECT_EQ(shared[i].is_greedy, plain[i].is_greedy) << i;
      }
      EXPECT_TRUE(max_tokens == 1024 || 2 * shared_passes < passes) << shared_passes << " " << passes;
    }
  }
}

}  // namespace
}  // namespace tessera::generation

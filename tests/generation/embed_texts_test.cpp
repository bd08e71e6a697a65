#include "tessera/generation/embed_texts.h"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/generation/load_for_inference.h"

#include "tests/models/reference_models.h"
#include "tests/models/small_model.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_folder.h"

namespace tessera::generation {
namespace {

using nlohmann::json;

constexpr std::pair<const char*, Pooling> kPoolings[] = {
    {"cls", Pooling::Cls}, {"last", Pooling::Last}, {"mean", Pooling::Mean}};

std::string data_folder(const std::string& name) {
  return testing::source_folder() + "/tests/reference/data/" + name;
}

json expected() {
  std::ifstream file(data_folder("embeddings/expected.json"));
  return json::parse(file);
}

std::shared_ptr<models::CausalLM> load(const std::string& folder) {
  return load_for_inference(folder, "", at::TensorOptions(kHost).dtype(at::kDouble),
                            {comm::Communicator::single(), {}}, {.embeddings = true});
}

// Holds the embeddings of the texts, all at once and one by one, against Transformers'.
void expect_reference(models::CausalLM& model, const json& texts) {
  std::vector<std::vector<int64_t>> ids;
  for (const json& text : texts) ids.push_back(text.at("ids"));
  for (const auto& [name, pooling] : kPoolings) {
    SCOPED_TRACE(name);
    const at::Tensor together = embed_texts(model, ids, pooling);
    for (size_t i = 0; i < ids.size(); ++i) {
      const at::Tensor want = at::tensor(texts.at(i).at(name).get<std::vector<double>>(), at::kDouble);
      EXPECT_LT(models::max_difference(together[static_cast<int64_t>(i)], want), 1e-10) << "text " << i;
      EXPECT_LT(models::max_difference(embed_texts(model, {ids[i]}, pooling)[0], want), 1e-10)
          << "text " << i;
    }
  }
}

TEST(EmbedTexts, AreTransformersHiddenStates) {
  const json all = expected();
  for (const auto& [folder, texts] : all.items()) {
    SCOPED_TRACE(folder);
    expect_reference(*load(data_folder(folder)), texts);
  }
}

TEST(EmbedTexts, AnEncoderWithoutAHeadIsReadForThemAlone) {
  const std::string folder = data_folder("embeddings/bert_mean");
  const auto model = load(folder);
  expect_reference(*model, expected().at("classifiers/bert"));
  EXPECT_EQ(embedding_options(*model, folder, {}).pooling, Pooling::Mean);
  EXPECT_EQ(embedding_options(*model, folder, Pooling::Cls).pooling, Pooling::Cls);
  EXPECT_THROW(load_for_inference(folder, "", at::TensorOptions(kHost).dtype(at::kDouble)), Error);
}

TEST(EmbedTexts, ThePoolingIsThatOfTheFiles) {
  const auto decoder = models::small_model();
  const testing::TempFolder folder;
  const auto options = [&](std::optional<Pooling> chosen = {}) {
    return embedding_options(*decoder, folder.path(), chosen);
  };
  EXPECT_EQ(options().pooling, Pooling::Last) << "a decoder without such files";
  EXPECT_EQ(embedding_options(*load(data_folder("classifiers/roberta")), folder.path(), {}).pooling,
            Pooling::Cls);
  const auto module = [](const char* type, const char* path) {
    return json{{"type", std::string("sentence_transformers.models.") + type}, {"path", path}};
  };
  json modules = {module("Transformer", ""), module("Pooling", "1_Pooling"),
                  module("Normalize", "2_Normalize")};
  folder.write("modules.json", modules.dump());
  const std::pair<const char*, std::optional<Pooling>> cases[] = {
      {R"({"pooling_mode_cls_token": true})", Pooling::Cls},
      {R"({"pooling_mode_cls_token": false, "pooling_mode_lasttoken": true})", Pooling::Last},
      {R"({"pooling_mode_mean_tokens": true, "include_prompt": true})", Pooling::Mean},
      {R"({"pooling_mode": "mean"})", Pooling::Mean},
      {R"({"pooling_mode": "lasttoken"})", Pooling::Last},
      {R"({"pooling_mode_max_tokens": true})", std::nullopt},
      {R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true})", std::nullopt},
  };
  for (const auto& [text, want] : cases) {
    folder.write("1_Pooling/config.json", text);
    EXPECT_EQ(options().refusal.empty(), want.has_value()) << text;
    EXPECT_EQ(options().pooling, want.value_or(Pooling::Last)) << text;
    EXPECT_EQ(options(Pooling::Mean).refusal, "");
  }
  modules.push_back(module("Dense", "2_Dense"));
  folder.write("modules.json", modules.dump());
  EXPECT_NE(options(Pooling::Mean).refusal.find("'Dense'"), std::string::npos);
  folder.write("modules.json", "{}");
  EXPECT_THROW(options(), Error);
  folder.write("modules.json", R"([{"type": 1}])");
  EXPECT_THROW(options(), Error);
  EXPECT_THROW(read_pooling("max"), Error);
}

}  // namespace
}  // namespace tessera::generation

// Tests of the text part of a multimodal model's folder.
#include "tessera/checkpoint/whole_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/random_boxes.h"

namespace tessera::checkpoint {
namespace {

std::vector<std::string> names_of(const std::vector<io::TensorSpec>& tensors) {
  std::vector<std::string> names;
  for (const io::TensorSpec& tensor : tensors) names.push_back(tensor.name);
  return names;
}

TEST(WholeModel, TheTextPartIsReadAndWrittenUnderTheNamesOfItsFolder) {
  const std::string body = "model.language_model.norm.weight", head = "lm_head.weight";
  const StateDictAdapter table(
      {{body, {2}, {stored_as_is(body, {2})}}, {head, {3, 2}, {stored_as_is(head, {3, 2})}}});
  using Names = std::pair<std::string, std::string>;
  for (const auto& [stored_body, stored_head] :
       {Names("language_model.model.norm.weight", "language_model.lm_head.weight"), Names(body, head)}) {
    SCOPED_TRACE(stored_body);
    const at::Tensor norm = at::rand({2});
    const WholeModel whole(std::make_shared<const testing::TensorsInMemory>(
        testing::Tensors{{"vision_tower.layers.0.weight", at::rand({4, 2})},
                         {stored_head, at::rand({3, 2})},
                         {stored_body, norm},
                         {"multi_modal_projector.language_model.weight", at::rand({1})}}));
    const auto part = whole.text_part();
    EXPECT_THAT(names_of(part->tensors()), ::testing::UnorderedElementsAre(body, head));
    const at::Tensor read = at::empty({2});
    part->read(body, whole_box({2}), read);
    EXPECT_TRUE(at::equal(read, norm));
    EXPECT_THAT(names_of(whole.others()),
                ::testing::UnorderedElementsAre("multi_modal_projector.language_model.weight",
                                                "vision_tower.layers.0.weight"));
    EXPECT_EQ(whole.other_bytes(), 4 * (8 + 1));

    const StateDictAdapter renamed = whole.with_stored_names(table);
    ASSERT_EQ(renamed.stored_tensors().size(), 2U);
    EXPECT_EQ(renamed.stored_tensors()[0].name, stored_body);
    EXPECT_EQ(renamed.stored_tensors()[1].name, stored_head);
    EXPECT_NE(renamed.find(body), nullptr) << "parameters keep their names";
  }
}

TEST(WholeModel, NamesMapBothWays) {
  for (const char* name : {"model.language_model.layers.0.mlp.up_proj.weight", "lm_head.weight"}) {
    EXPECT_NE(older_text_name(name), name);
    EXPECT_EQ(text_name(older_text_name(name)), name);
    EXPECT_EQ(text_name(name), name);
  }
  EXPECT_EQ(text_name("vision_tower.norm.weight"), "vision_tower.norm.weight");
}

}  // namespace
}  // namespace tessera::checkpoint

// Compares reading and writing through made-up tables of every kind with operations on whole tensors.
#include "tessera/checkpoint/state_dict_adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/checkpoint/parameter_source.h"
#include "tessera/core/error.h"

#include "tests/checkpoint/random_boxes.h"

namespace tessera::checkpoint {
namespace {

using parallel::Box;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A model, its files, and the table between them.
struct Case {
  testing::Tensors parameters, stored;
  std::vector<StoredParameter> table;

  void add(const std::string& name, const at::Tensor& value, std::vector<StoredPart> parts) {
    parameters[name] = value;
    table.push_back({name, value.sizes().vec(), std::move(parts)});
  }
};

void add_renamed(Case& made, testing::RandomBoxes& random, const std::string& id) {
  const at::Tensor value = at::randn(random.shape(4, 6), at::kDouble);
  made.stored["stored." + id] = value;
  made.add("renamed." + id, value, {stored_as_is("stored." + id, value.sizes().vec())});
}

void add_transposed(Case& made, testing::RandomBoxes& random, const std::string& id) {
  const at::Tensor value = at::randn({random.in(1, 9), random.in(1, 9)}, at::kDouble);
  made.stored["conv." + id] = value.t().contiguous();
  made.add("linear." + id, value, {stored_transposed("conv." + id, value.sizes().vec())});
}

void add_number(Case& made, testing::RandomBoxes&, const std::string& id) {
  const at::Tensor value = at::randn({1}, at::kDouble);
  made.stored["number." + id] = value.view(at::IntArrayRef{});
  made.add("one." + id, value, {stored_number("number." + id)});
}

// Adds several parameters that the files hold as one tensor: end to end along rows, or transposed along
// columns.
void add_fused(Case& made, testing::RandomBoxes& random, const std::string& id) {
  const int64_t columns = random.in(1, 7), count = random.in(2, 4);
  const bool is_transposed = random.flip();
  std::vector<at::Tensor> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(at::randn({random.in(1, 6), columns}, at::kDouble));
  at::Tensor fused = at::cat(values);
  if (is_transposed) fused = fused.t().contiguous();
  const std::string name = "fused." + id;
  made.stored[name] = fused;
  int64_t row = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t rows = values[i].size(0);
    StoredPart part{name, fused.sizes().vec(), {{row, 0}, {rows, columns}}, {0, 0}, false, {}};
    if (is_transposed) part.box = {{0, row}, {columns, rows}};
    part.is_transposed = is_transposed;
    made.add("split." + id + "." + std::to_string(i), values[i], {part});
    row += rows;
  }
}

// Adds a parameter that the files hold in pieces along a dim.
void add_concatenated(Case& made, testing::RandomBoxes& random, const std::string& id) {
  std::vector<int64_t> shape = random.shape(3, 5);
  shape.push_back(random.in(1, 5));
  const int64_t dim = random.in(0, static_cast<int64_t>(shape.size()) - 1);
  std::vector<at::Tensor> pieces;
  std::vector<StoredPart> parts;
  int64_t begin = 0;
  for (int i = 0; i < 3; ++i) {
    shape[static_cast<size_t>(dim)] = random.in(1, 5);
    const std::string name = "piece." + id + "." + std::to_string(i);
    pieces.push_back(at::randn(shape, at::kDouble));
    made.stored[name] = pieces.back();
    parts.push_back(stored_as_is(name, shape));
    parts.back().offset[static_cast<size_t>(dim)] = begin;
    begin += shape[static_cast<size_t>(dim)];
  }
  made.add("whole." + id, at::cat(pieces, dim), parts);
}

// Adds a parameter whose blocks of rows the files hold in another order.
void add_permuted(Case& made, testing::RandomBoxes& random, const std::string& id) {
  const int64_t blocks = random.in(1, 6), rows = random.in(1, 3), columns = random.in(1, 5);
  const at::Tensor stored = at::randn({blocks * rows, columns}, at::kDouble);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < blocks; ++i) order.push_back(i);
  std::shuffle(order.begin(), order.end(), random.engine());
  std::vector<StoredPart> parts;
  std::vector<at::Tensor> pieces;
  for (int64_t i = 0; i < blocks; ++i) {
    const Box from{{order[static_cast<size_t>(i)] * rows, 0}, {rows, columns}};
    parts.push_back({"blocks." + id, stored.sizes().vec(), from, {i * rows, 0}, false, {}});
    pieces.push_back(parallel::box_part(stored, from));
  }
  made.stored["blocks." + id] = stored;
  made.add("permuted." + id, at::cat(pieces), parts);
}

Case make_case(testing::RandomBoxes& random) {
  Case made;
  for (int64_t i = 0; i < random.in(1, 8); ++i) {
    const std::string id = std::to_string(i);
    switch (random.in(0, 5)) {
      case 0: add_renamed(made, random, id); break;
      case 1: add_transposed(made, random, id); break;
      case 2: add_fused(made, random, id); break;
      case 3: add_concatenated(made, random, id); break;
      case 4: add_number(made, random, id); break;
      default: add_permuted(made, random, id); break;
    }
  }
  std::shuffle(made.table.begin(), made.table.end(), random.engine());
  return made;
}

// Cuts the tensor into boxes that tile it.
void cut(const Box& box, testing::RandomBoxes& random, std::vector<Box>& pieces) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < box.size.size(); ++d) {
    if (box.size[d] > 1) dims.push_back(d);
  }
  if (dims.empty() || random.in(0, 3) == 0) return pieces.push_back(box);
  const size_t d = dims[static_cast<size_t>(random.in(0, static_cast<int64_t>(dims.size()) - 1))];
  const int64_t at = random.in(1, box.size[d] - 1);
  Box low = box, high = box;
  low.size[d] = at;
  high.offset[d] += at;
  high.size[d] -= at;
  cut(low, random, pieces);
  cut(high, random, pieces);
}

TEST(StateDictAdapter, ReadsAnyBoxThroughAnyTable) {
  testing::RandomBoxes random;
  for (int round = 0; round < 80; ++round) {
    const Case made = make_case(random);
    const auto source =
        stored_source(std::make_shared<testing::TensorsInMemory>(made.stored), StateDictAdapter(made.table));
    for (const auto& [name, whole] : made.parameters) {
      ASSERT_TRUE(source->holds(name));
      EXPECT_EQ(source->stored_dtype(name), DType::F64);
      for (int i = 0; i < 4; ++i) {
        const Box box = i == 0 ? whole_box(whole.sizes().vec()) : random.box(whole.sizes().vec());
        const at::Tensor got = at::full(box.size, 7.0, at::kFloat);
        source->read(name, box, got);
        ASSERT_TRUE(at::equal(got, parallel::box_part(whole, box).to(at::kFloat))) << name;
      }
    }
  }
}

TEST(StateDictAdapter, WritesEveryStoredTensorFromAnyCut) {
  testing::RandomBoxes random;
  for (int round = 0; round < 80; ++round) {
    const Case made = make_case(random);
    const StateDictAdapter adapter(made.table);
    testing::Tensors written;
    for (const auto& stored : adapter.stored_tensors()) {
      written[stored.name] = at::full(stored.shape, std::nan(""), at::kDouble);
    }
    EXPECT_EQ(written.size(), made.stored.size());
    for (const auto& [name, whole] : made.parameters) {
      std::vector<Box> tiles;
      cut(whole_box(whole.sizes().vec()), random, tiles);
      for (const Box& box : tiles) {
        const at::Tensor tile = parallel::box_part(whole, box).clone();
        for (const auto& overlaps : adapter.overlaps(name, box)) {
          for (const auto& overlap : overlaps) {
            ASSERT_EQ(overlap.part->name, overlaps.front().part->name);
            at::Tensor to = parallel::box_part(written.at(overlap.part->name), overlap.stored);
            ASSERT_TRUE(to.isnan().all().item<bool>()) << "written twice: " << overlap.part->name;
            to.copy_(overlap.view(tile));
          }
        }
      }
    }
    for (const auto& [name, want] : made.stored) ASSERT_TRUE(at::equal(written.at(name), want)) << name;
  }
}

TEST(StateDictAdapter, SaysWhatMakesAStoredTensor) {
  const StoredPart q{"qkv", {5, 2}, {{0, 0}, {3, 2}}, {0, 0}, false, {}};
  const StoredPart v{"qkv", {5, 2}, {{3, 0}, {2, 2}}, {0, 0}, false, {}};
  const StateDictAdapter adapter(
      {{"q", {3, 2}, {q}}, {"n", {4}, {stored_as_is("n", {4}, {"m"})}}, {"v", {2, 2}, {v}}});
  ASSERT_THAT(adapter.stored_tensors(), SizeIs(2));
  EXPECT_EQ(adapter.stored_tensors()[0].name, "qkv");
  EXPECT_THAT(adapter.stored_tensors()[0].parameters, ElementsAre("q", "v"));
  EXPECT_THAT(adapter.stored_tensors()[1].aliases, ElementsAre("m"));
  EXPECT_EQ(adapter.find("x"), nullptr);
}

TEST(StateDictAdapter, TablesThatDoNotTileAreDefects) {
  const auto refused = [](std::vector<StoredParameter> table) {
    try {
      StateDictAdapter adapter(std::move(table));
      return false;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::Internal;
    }
  };
  const auto rows = [](int64_t from, int64_t count, int64_t to) {
    return StoredPart{"s", {4, 2}, {{from, 0}, {count, 2}}, {to, 0}, false, {}};
  };
  EXPECT_FALSE(refused({{"p", {4, 2}, {rows(0, 2, 2), rows(2, 2, 0)}}}));
  EXPECT_TRUE(refused({{"p", {4, 2}, {rows(0, 2, 0)}}})) << "a hole";
  EXPECT_TRUE(refused({{"p", {4, 2}, {rows(0, 2, 0), rows(1, 2, 2)}}})) << "stored twice";
  EXPECT_TRUE(refused({{"p", {4, 2}, {rows(0, 2, 0), rows(2, 2, 1)}}})) << "written twice";
  EXPECT_TRUE(refused({{"p", {3, 2}, {rows(0, 3, 0)}}})) << "a stored row of nobody";
  EXPECT_TRUE(
      refused({{"p", {4, 2}, {stored_as_is("s", {4, 2})}}, {"q", {4, 2}, {stored_as_is("s", {4, 2})}}}));
  EXPECT_TRUE(refused({{"p", {2, 4}, {stored_as_is("s", {4, 2})}}}));
}

TEST(CompareTensors, TellsNamesOfTheFiles) {
  const StateDictAdapter adapter({{"a", {2, 3}, {stored_transposed("conv", {2, 3})}},
                                  {"b", {4}, {stored_as_is("bias", {4})}},
                                  {"c", {1}, {stored_as_is("gone", {1})}},
                                  {"d", {2}, {stored_as_is("tied", {2}, {"alias"})}}});
  const testing::TensorsInMemory files({{"conv", at::zeros({2, 3})},
                                        {"bias", at::zeros({4}, at::kInt)},
                                        {"alias", at::zeros({2})},
                                        {"buffer", at::zeros({1})},
                                        {"stranger", at::zeros({1})}});
  const auto found =
      compare_tensors(adapter, files, [](const std::string& name) { return name == "buffer"; });
  EXPECT_THAT(found.missing, ElementsAre("gone"));
  EXPECT_THAT(found.wrong_shape, ElementsAre("conv (got [2, 3], need [3, 2])"));
  EXPECT_THAT(found.wrong_type, ElementsAre("bias (I32)"));
  EXPECT_THAT(found.unknown, ElementsAre("stranger"));
  EXPECT_THAT(found.text(), HasSubstr("1 missing: gone; 1 of another shape: conv"));
}

TEST(ParameterSource, AnAliasIsReadWhereTheNameIsNotThere) {
  const StateDictAdapter adapter({{"d", {2}, {stored_as_is("tied", {2}, {"other", "alias"})}}});
  const auto values = [&](const testing::Tensors& files) {
    const at::Tensor got = at::zeros({2});
    const auto source = stored_source(std::make_shared<testing::TensorsInMemory>(files), adapter);
    if (!source->holds("d")) return -1.0F;
    source->read("d", whole_box({2}), got);
    return got[0].item<float>();
  };
  EXPECT_EQ(values({{"tied", at::full({2}, 1.0)}, {"alias", at::full({2}, 2.0)}}), 1.0F);
  EXPECT_EQ(values({{"alias", at::full({2}, 2.0)}}), 2.0F);
  EXPECT_EQ(values({{"stranger", at::full({2}, 2.0)}}), -1.0F);
}

TEST(ParameterSource, ATableOfACutModelIsRefusedOnEveryRank) {
  // The table was made by one of two ranks, which holds half of the rows.
  const auto source =
      stored_source(std::make_shared<testing::TensorsInMemory>(testing::Tensors{{"w", at::ones({4, 3})}}),
                    StateDictAdapter({{"half", {2, 3}, {stored_as_is("w", {2, 3})}}}));
  const auto refused = [&](const Box& box) -> std::string {
    try {
      source->read("half", box, at::zeros(box.size));
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("'half'"));
      return error.code();
    }
    return "";
  };
  EXPECT_EQ(refused({{0, 0}, {2, 3}}), "E-MODEL-TENSORS");
  EXPECT_EQ(refused({{2, 0}, {2, 3}}), "E-CONFIG-STATE-DICT-TABLE");
  EXPECT_EQ(refused({{1, 0}, {2, 3}}), "E-CONFIG-STATE-DICT-TABLE") << "a part of it";
  EXPECT_EQ(refused({{0}, {2}}), "E-CONFIG-STATE-DICT-TABLE") << "of other dims";
}

TEST(SourceList, TheFirstThatHoldsAParameterGivesIt) {
  const auto of = [](const std::string& name, double value) {
    return stored_source(
        std::make_shared<testing::TensorsInMemory>(testing::Tensors{{name, at::full({2}, value)}}),
        StateDictAdapter({{name, {2}, {stored_as_is(name, {2})}}}));
  };
  const SourceList list({of("a", 1.0), of("a", 2.0), of("b", 3.0)});
  const at::Tensor a = at::zeros({2}), b = at::zeros({1});
  list.read("a", whole_box({2}), a);
  list.read("b", {{1}, {1}}, b);
  EXPECT_EQ(a[1].item<float>(), 1.0F);
  EXPECT_EQ(b[0].item<float>(), 3.0F);
  EXPECT_FALSE(list.holds("c"));
  try {
    list.read("c", whole_box({2}), a);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-CONFIG-NO-VALUES");
  }
}

}  // namespace
}  // namespace tessera::checkpoint

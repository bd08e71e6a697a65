// Finds entities in the tags of tokens, and counts how many of them are right.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The labels of a classifier of tokens that are tags of entities: "O" for a token of none, and else a letter
// and the kind of the entity, such as "B-PER". B begins an entity and I goes on with it (IOB2); E ends one
// and S is one by itself (IOBES).
class EntityTags {
 public:
  // Tells whether all labels have this form, with at least one that begins with B or S.
  static bool are_tags(std::span<const std::string> labels);

  // `labels` must be tags; they are copied.
  explicit EntityTags(std::span<const std::string> labels);

  // How many sums add_row() adds to: tokens, tokens whose tag is right; then the entities that there are,
  // that were found and that are both, once for each of two ways to find them.
  static constexpr int64_t kStatistics = 8;
  // Adds one text: the numbers of the tags of its tokens as they are and as they were predicted, of the same
  // size. The first way to find entities is that of the library seqeval by default, and of the script
  // conlleval of CoNLL-2000: an I or E that follows no tag of its kind begins an entity. The second is
  // seqeval's mode "strict" with the scheme IOB2: such a tag belongs to no entity. An entity is right if its
  // kind and both of its ends are.
  void add_row(std::span<const int64_t> tags, std::span<const int64_t> predicted,
               std::span<double> statistics) const;

  // Tells whether no tag begins with E or S, which IOB2 has not.
  bool is_iob2() const { return is_iob2_; }

 private:
  struct Tag {
    char letter = 'O';
    std::string kind;
  };
  struct Entity {
    std::string_view kind;
    size_t begin = 0, end = 0;
    auto operator<=>(const Entity&) const = default;
  };

  // Returns the entities in their order.
  std::vector<Entity> find(std::span<const int64_t> tags) const;
  std::vector<Entity> find_strictly(std::span<const int64_t> tags) const;

  std::vector<Tag> tags_;
  bool is_iob2_ = true;
};

}  // namespace tessera

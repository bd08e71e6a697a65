// The class behind translate(). translate.cpp holds its walk over a file's maps, special_keys.cpp the keys
// that need more than a table line.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/config/foreign_keys.h"
#include "tessera/config/node.h"
#include "tessera/config/problems.h"
#include "tessera/config/translate.h"

namespace tessera::config {

class Translator {
 public:
  Translator(const std::string& folder, Problems& problems) : folder_(folder), problems_(problems) {}

  Node run(const std::vector<SourceFile>& files);

 private:
  // The key that is being translated: where it was written, and the map that takes its translation.
  struct Origin {
    const Entry& entry;
    const std::string& path;  // key path as the user wrote it
    Node& out;
  };

  void translate_map(const Node& map, const Section& section, const std::string& prefix, Node& out);
  Node translate_entries(const Node& list, const Section& entries, const Origin& origin);
  void warn_blank(Node& dataset);
  void apply(const ForeignKey& key, const Origin& origin);
  void map_value(const ForeignKey& key, const Origin& origin);

  // Adds a native key to origin.out. Another spelling may have set it already: then the values must agree, or
  // one of them is from the command line and wins.
  void set_native(std::string_view key, const Node& value, const Origin& origin);
  void set_blank(std::string_view key, const Node& value, const Origin& origin);
  // Sets type user_defined for `type: {format: ...}` and adds the map's keys beside it.
  void set_own_format(const Node& map, const Origin& origin);

  // The functions of Rule::Special, by the names that the tables use for them.
  void apply_special(const ForeignKey& key, const Origin& origin);
  void set_deepspeed(const ForeignKey& key, const Origin& origin);
  void read_deepspeed_file(const Origin& origin);
  void set_deepspeed_scheduler(const ForeignKey& key, const Origin& origin);
  void set_deepspeed_wandb(const ForeignKey& key, const Origin& origin);
  void set_schedule_steps(const ForeignKey& key, const Origin& origin);
  void set_betas(const ForeignKey& key, const Origin& origin);
  void set_optim_args(const ForeignKey& key, const Origin& origin);
  void set_trackers(const ForeignKey& key, const Origin& origin);
  void set_run_name(const ForeignKey& key, const Origin& origin);
  void set_pushed_model(const ForeignKey& key, const Origin& origin);
  void check_model_type(const ForeignKey& key, const Origin& origin);
  void set_reward_model(const ForeignKey& key, const Origin& origin);
  void check_plugins(const ForeignKey& key, const Origin& origin);
  void set_named_datasets(const ForeignKey& key, const Origin& origin);
  void check_named_datasets(const ForeignKey& key, const Origin& origin);
  void set_pretraining(const ForeignKey& key, const Origin& origin);
  void set_named_template(const ForeignKey& key, const Origin& origin);
  void set_lora_target(const ForeignKey& key, const Origin& origin);
  void set_list(const ForeignKey& key, const Origin& origin);
  void set_max_steps(const ForeignKey& key, const Origin& origin);
  void set_ring_ranks(const ForeignKey& key, const Origin& origin);
  void set_ulysses_ranks(const ForeignKey& key, const Origin& origin);
  void set_resume(const ForeignKey& key, const Origin& origin);
  void check_dequantized(const ForeignKey& key, const Origin& origin);
  void set_batch_size(const ForeignKey& key, const Origin& origin);
  // Turns message_field_role: from into message_property_mappings: {role: from}, and its like.
  void set_property(const ForeignKey& key, const Origin& origin);
  void set_entry(const std::string& name, const std::string& property, const Node& given,
                 const Origin& origin);

  void note_ignored(const Origin& origin);
  void warn_ignored();

  static Error type_error(const Origin& origin, std::string_view need);
  static Error conflict(const Entry& other, const Origin& origin, const Node& value);

  const std::string& folder_;
  Problems& problems_;
  const Node* file_ = nullptr;                                             // root of the translated file
  std::vector<std::pair<std::string, std::vector<std::string>>> ignored_;  // file -> keys without effect
};

// Makes an unquoted boolean the quoted text "true" or "false", for maps of texts.
void quote_boolean(Node& value);
// Makes the value a scalar whose text is its JSON. A scalar whose text is JSON already stays as it is.
void make_json(Node& value);

// Returns whether two values of one native key mean the same, in any spelling.
bool same_value(const std::string& key, const Node& a, const Node& b);

}  // namespace tessera::config

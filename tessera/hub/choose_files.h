// Says which files of a repository are needed.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace tessera::hub {

constexpr int64_t kMaxReadBytes = int64_t{64} << 20;

using Names = std::set<std::string>;
// Returns the contents of a small file of the repository, of kMaxReadBytes at most, which choosing needs.
using ReadFile = std::function<std::string(const std::string& name)>;

struct Choice {
  std::vector<std::string> files;
  // False where the repository may have more files to choose than `names`, if these are what a snapshot
  // holds: a model without a tokenizer may have one, and a pattern may match more.
  bool is_sure = true;
};

// Chooses among the files of a repository, or of its snapshot in the cache. What it names need not be among
// `names`: an index may name shards that are not there. Throws E-CONFIG-HUB-FILES if they hold nothing to
// choose.
using ChooseFiles = std::function<Choice(const Names& names, const ReadFile& read)>;

// Chooses a model's files: config, generation config, tokenizer, chat templates, and weights in safetensors,
// by their index if there is one; of an adapter's repository what choose_adapter() does.
Choice choose_model(const Names& names, const ReadFile& read);
// Chooses an adapter's config and weights, and its tokenizer.
Choice choose_adapter(const Names& names, const ReadFile& read);
// Chooses the tokenizer's files and the chat templates alone.
Choice choose_tokenizer(const Names& names, const ReadFile& read);
// Chooses one file; of a GGUF model that stands in several ("x-00001-of-00003.gguf"), all of them.
ChooseFiles choose_one(const std::string& file);

}  // namespace tessera::hub

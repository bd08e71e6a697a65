// The folder in which Hugging Face's tools keep what they have downloaded, and in which Tessera keeps it too:
//
//   <cache>/models--org--name/blobs/<etag>                   the contents of files, named by their checksums
//                             snapshots/<commit>/<file>      a link to a blob for each file of a commit
//                             refs/<branch or tag>           the commit that it stood for
//                             names/<commit>                 the names of all its files, noted by Tessera
//   <cache>/.locks/models--org--name/<etag>.lock             locked by whoever downloads the blob
#pragma once

#include <optional>
#include <string>

namespace tessera::hub {

enum class Kind { Model, Dataset };

// A repository of the hub at a revision.
struct Repository {
  Kind kind = Kind::Model;
  std::string id;
  std::string revision;  // branch, tag or commit; "" = main

  // The revision, "main" if none is given.
  std::string wanted() const { return revision.empty() ? "main" : revision; }
  // The text "model org/name", with " at revision v1" if one is given.
  std::string shown() const;
  // The repository's folder in the cache, and that of its locks.
  std::string folder() const;
  std::string lock_folder() const;
  std::string snapshot_folder(const std::string& commit) const;
  std::string names_file(const std::string& commit) const;
  std::string blob(const std::string& etag) const;
};

// Returns whether `path` can be a name on the hub: "org/name" or "name", of letters, digits, '-', '_' and
// '.'.
bool is_hub_id(const std::string& path);
// Returns whether `text` is one such part of a name: letters, digits, '-', '_' and '.', but not "." or "..".
bool is_plain_name(std::string_view text);
// Returns whether a file of this name stays in the folder that it is put into: parts without "." and "..",
// separated by single '/', of no control characters.
bool is_inner_path(std::string_view path);

// Returns the folder of Hugging Face's tools: HF_HOME, else huggingface in XDG_CACHE_HOME or ~/.cache.
std::string hub_home();
// Returns the folder of the cache: HF_HUB_CACHE, else hub/ in hub_home().
std::string cache_folder();

// Returns the folder in the cache with the files of the repository at its revision, or nullopt when the cache
// does not hold it. Where no revision is asked for and the cache does not know which commit main is, the only
// snapshot is taken if `takes_only`. The folder may lack files.
std::optional<std::string> find_snapshot(const Repository& repository, bool takes_only = true);

// Returns the name on the hub of a model whose folder is a snapshot in a cache,
// ".../models--org--name/snapshots/<commit>"; "" for any other path.
std::string model_of_snapshot(const std::string& folder);

// Returns the shell command that downloads the repository into the cache.
std::string download_command(const Repository& repository);

}  // namespace tessera::hub

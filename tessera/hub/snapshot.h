// The folder of a repository's files at one commit, whose files are links to blobs.
#pragma once

#include <string>
#include <vector>

#include "tessera/hub/cache.h"
#include "tessera/hub/choose_files.h"
#include "tessera/hub/listing.h"

namespace tessera::hub {

enum class SnapshotState {
  Whole,    // it has all that is wanted
  Unsure,   // it can be used; its commit may have more
  Partial,  // it lacks some, all of which its commit has
  Lacking,  // it lacks some
};

// Compares the files of a snapshot with those that `choose` takes of its commit, where make_snapshot() has
// noted the names of these. Else with those that it would take of the snapshot: those that an index names,
// and all parts of a file whose name counts them (data-00000-of-00004.parquet).
SnapshotState state_of(const Repository& repository, const std::string& snapshot, const ChooseFiles& choose);

// Links the files, whose blobs are there, into the snapshot of the listing's commit, and notes the names of
// all its files, and the commit under the repository's revision. Returns the snapshot's folder. Throws
// Storage.
std::string make_snapshot(const Repository& repository, const Listing& listing,
                          const std::vector<RemoteFile>& files);

// Returns whether a branch, tag or commit can have this name, which becomes a path in the cache.
bool is_revision(const std::string& text);

}  // namespace tessera::hub

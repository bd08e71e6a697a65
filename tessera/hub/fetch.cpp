#include "tessera/hub/fetch.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <mutex>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/run_on_threads.h"
#include "tessera/core/strings.h"
#include "tessera/hub/blob.h"
#include "tessera/hub/file_lock.h"
#include "tessera/hub/listing.h"
#include "tessera/hub/snapshot.h"
#include "tessera/io/broken_pipes.h"
#include "tessera/io/file.h"
#include "tessera/io/http_client.h"

namespace tessera::hub {
namespace {

// One download of a repository.
class Download {
 public:
  Download(const Repository& repository, const Limits& limits)
      : repository_(repository), limits_(limits), client_(limits, token_, stop_) {
    Retries retries(limits, repository.shown(), stop_);
    listing_ = list_files(client_, repository, retries);
  }

  // Fetches what `choose` takes and makes the snapshot. Returns its folder.
  std::string run(const ChooseFiles& choose) {
    const std::vector<std::string> names = choose_names(choose);
    std::vector<RemoteFile> files, missing;
    for (const std::string& name : names) {
      files.push_back(file(name));
      if (!has_blob(repository_, files.back())) missing.push_back(files.back());
    }
    if (!missing.empty()) fetch_blobs(missing);
    return make_snapshot(repository_, listing_, files);
  }

 private:
  const RemoteFile& file(const std::string& name) const {
    const auto found = listing_.files.find(name);
    if (found == listing_.files.end()) {
      throw Error(ErrorKind::Config, "HUB-FILES", repository_.shown() + " lacks a file that it names")
          .got(name);
    }
    if (is_inner_path(name)) return found->second;
    throw Error(ErrorKind::Config, "HUB-FILES",
                repository_.shown() + ": the name of a file leads out of the repository's folder")
        .got("'" + name + "'");
  }

  std::vector<std::string> choose_names(const ChooseFiles& choose) {
    Names names;
    for (const auto& [name, ignored] : listing_.files) names.insert(name);
    const auto read = [&](const std::string& name) {
      const RemoteFile& small = file(name);
      if (small.size > kMaxReadBytes) {
        throw Error(ErrorKind::Config, "HUB-FILES", repository_.shown() + ": " + name + " is too large")
            .got(format_bytes(small.size))
            .need("at most " + format_bytes(kMaxReadBytes));
      }
      download_blob(client_, repository_, listing_.commit, small, limits_, stop_, nullptr);
      return io::read_file(repository_.blob(small.etag), kMaxReadBytes);
    };
    return choose(names, read).files;
  }

  void fetch_blobs(std::vector<RemoteFile>& files) {
    // The largest come first, so that none of them is left for one connection alone at the end.
    std::sort(files.begin(), files.end(),
              [](const RemoteFile& a, const RemoteFile& b) { return a.size > b.size; });
    int64_t total = 0, before = 0;
    for (const RemoteFile& each : files) {
      if (__builtin_add_overflow(total, each.size, &total)) total = INT64_MAX;
      before += bytes_left_before(repository_, each);
    }
    require_space(total - before);
    log::tell("downloading " + repository_.shown() + ": " + std::to_string(files.size()) +
              (files.size() == 1 ? " file, " : " files, ") + format_bytes(total) +
              (before > 0 ? ", of which " + format_bytes(before) + " are already there," : "") + " to " +
              repository_.folder());
    Progress progress(repository_.id, total, before);
    run_on_threads(files.size(), limits_.connections, [&](size_t i) {
      if (stop_) return;
      try {
        io::HttpClient client = idle_client();
        download_blob(client, repository_, listing_.commit, files[i], limits_, stop_, &progress);
        const std::lock_guard lock(mutex_);
        idle_clients_.push_back(std::move(client));
      } catch (...) {
        // The first error is told; those of the others only follow from it.
        if (!stop_.exchange(true)) throw;
      }
    });
  }

  // Gives a client that has its connection already, if there is one.
  io::HttpClient idle_client() {
    const std::lock_guard lock(mutex_);
    if (idle_clients_.empty()) return io::HttpClient(limits_, token_, stop_);
    io::HttpClient client = std::move(idle_clients_.back());
    idle_clients_.pop_back();
    return client;
  }

  void require_space(int64_t num_bytes) const {
    const int64_t free = io::free_space(repository_.folder());
    if (free >= num_bytes) return;
    throw io::storage_error(ENOSPC, "the disk has no space for " + repository_.shown(), repository_.folder())
        .got(format_bytes(free) + " free")
        .need(format_bytes(num_bytes))
        .hint("set HF_HUB_CACHE to a folder on another disk");
  }

  const Repository& repository_;
  const Limits& limits_;
  std::atomic<bool> stop_ = false;
  const std::string token_ = token();
  io::HttpClient client_;
  Listing listing_;
  std::mutex mutex_;
  std::vector<io::HttpClient> idle_clients_;
};

// Returns the snapshot to use where the hub cannot be reached, if there is one.
std::optional<std::string> usable_snapshot(const Repository& repository, const ChooseFiles& choose) {
  const auto found = find_snapshot(repository);
  const auto state = found ? state_of(repository, *found, choose) : SnapshotState::Lacking;
  return state == SnapshotState::Whole || state == SnapshotState::Unsure ? found : std::nullopt;
}

Error offline_error(const Repository& repository) {
  return Error(ErrorKind::Config, "HUB-OFFLINE",
               repository.shown() +
                   " would have to be downloaded, but HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids it")
      .need("its files in " + repository.folder())
      .hint("unset the variable, or run on a machine with a network: " + download_command(repository));
}

}  // namespace

std::string fetch(const Repository& repository, const ChooseFiles& choose, const Limits& limits) {
  const auto cached = [&] { return find_snapshot(repository, is_offline()); };
  if (const auto found = cached()) {
    if (is_offline() || state_of(repository, *found, choose) == SnapshotState::Whole) return *found;
  } else if (is_offline()) {
    throw offline_error(repository);
  }
  if (!is_revision(repository.wanted())) {
    throw Error(ErrorKind::Config, "HUB-NOT-FOUND", "no revision has this name")
        .got("'" + repository.wanted() + "'");
  }
  const io::IgnoreBrokenPipes ignored;
  const FileLock lock(repository.lock_folder() + "/tessera.lock", "fetches " + repository.shown());
  // Another process may have fetched it by now.
  const auto found = cached();
  const auto state = found ? state_of(repository, *found, choose) : SnapshotState::Lacking;
  if (state == SnapshotState::Whole) return *found;
  // A branch stays at the commit that the cache has of it, unless this lacks what is wanted.
  Repository at = repository;
  if (state != SnapshotState::Lacking) at.revision = std::filesystem::path(*found).filename();
  std::optional<Download> download;
  try {
    download.emplace(at, limits);
  } catch (const Error& error) {
    const auto usable = usable_snapshot(repository, choose);
    if (!usable || error.code() != "E-STORAGE-HUB-UNREACHABLE") throw;
    log::warn(std::string(error.message()) + "; the cached files are used: " + *usable);
    return *usable;
  }
  return download->run(choose);
}

std::optional<Name> parse_name(const std::string& path) {
  const size_t colon = path.find(':');
  Name name{path.substr(0, colon), colon == std::string::npos ? "" : path.substr(colon + 1)};
  for (const char* ending : {".gguf", ".safetensors", ".bin", ".pt", ".pth"}) {
    if (name.id.ends_with(ending)) return std::nullopt;
  }
  if (!is_hub_id(name.id) || (colon != std::string::npos && !is_inner_path(name.file))) return std::nullopt;
  return name;
}

bool is_fetchable(const std::string& path) {
  const auto name = parse_name(path);
  return name && name->id.find('/') != std::string::npos;
}

std::optional<std::string> fetch_model(const std::string& path, const std::string& revision, Want want) {
  const auto name = parse_name(path);
  if (!name) return std::nullopt;
  const Repository repository{Kind::Model, name->id, revision};
  if (!is_fetchable(path)) return name->file.empty() ? find_snapshot(repository) : std::nullopt;
  if (!name->file.empty()) return fetch(repository, choose_one(name->file)) + '/' + name->file;
  const auto& choose = want == Want::Model     ? choose_model
                       : want == Want::Adapter ? choose_adapter
                                               : choose_tokenizer;
  return fetch(repository, choose);
}

}  // namespace tessera::hub

#include "tessera/hub/upload.h"

#include <algorithm>
#include <map>
#include <regex>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/base64.h"
#include "tessera/core/log.h"
#include "tessera/core/run_on_threads.h"
#include "tessera/core/strings.h"
#include "tessera/hub/choose_files.h"
#include "tessera/hub/listing.h"
#include "tessera/hub/progress.h"
#include "tessera/hub/upload_client.h"
#include "tessera/hub/upload_files.h"
#include "tessera/hub/upload_lfs.h"
#include "tessera/io/broken_pipes.h"
#include "tessera/io/file.h"
#include "tessera/io/json_values.h"

namespace tessera::hub {
namespace {

using nlohmann::json;

constexpr int64_t kSampleBytes = 512;  // by which the hub tells text from bytes
constexpr size_t kFilesOfQuestion = 256;

std::string api_url(const UploadTarget& target, const std::string& what) {
  return endpoint() + "/api/models/" + target.id + '/' + what + '/' + io::url_quoted(target.wanted(), false);
}

json question_of(const std::string& name, int64_t size, const std::string& sample) {
  return {{"path", name}, {"size", size}, {"sample", base64(sample)}};
}

UploadClient::Reply ask_modes(UploadClient& client, const json& files) {
  return client.post("asking how its files are stored", api_url(client.target(), "preupload"),
                     json{{"files", files}}.dump());
}

bool is_there_already(const io::HttpAnswer& answer) { return answer.status == 409; }

// Says what the hub does with a file.
enum class Mode { Large, Inline, Ignored };

Mode mode_of(const json& item) {
  const auto ignored = item.find("shouldIgnore");
  if (ignored != item.end() && ignored->is_boolean() && ignored->get<bool>()) return Mode::Ignored;
  const std::string mode = io::text_at(item, "uploadMode");
  if (mode != "lfs" && mode != "regular") throw upload_answer_error("the kind '" + mode + "' of a file");
  return mode == "lfs" ? Mode::Large : Mode::Inline;
}

// Returns whether a model's weights, or the index of their files, have this name.
bool is_model_weights(const std::string& name) {
  static const std::regex pattern(R"(model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json)");
  return std::regex_match(name, pattern);
}

// One upload of a folder.
class FolderUpload {
 public:
  FolderUpload(std::vector<LocalFile> files, const UploadTarget& target, const Limits& limits,
               std::atomic<bool>& stop)
      : target_(target),
        limits_(limits),
        stop_(stop),
        client_(target, limits, stop),
        files_(std::move(files)) {}

  void run() {
    for (size_t begin = 0; begin < files_.size(); begin += kFilesOfQuestion)
      learn_modes(begin, std::min(begin + kFilesOfQuestion, files_.size()));
    send_large();
    find_outdated();
    commit();
  }

 private:
  void learn_modes(size_t begin, size_t end) {
    json questions = json::array();
    for (size_t i = begin; i < end; ++i)
      questions.push_back(question_of(files_[i].name, files_[i].size, first_bytes(files_[i], kSampleBytes)));
    const UploadClient::Reply reply = ask_modes(client_, questions);
    if (!reply.head.is_good()) throw upload_refusal(target_, reply.head);
    const json answer = reply.json();
    const auto items = answer.is_object() ? answer.find("files") : answer.end();
    std::map<std::string, Mode> modes;
    if (items != answer.end() && items->is_array()) {
      for (const json& item : *items) modes[io::text_at(item, "path")] = mode_of(item);
    }
    for (size_t i = begin; i < end; ++i) {
      const LocalFile& file = files_[i];
      const auto found = modes.find(file.name);
      if (found == modes.end()) throw upload_answer_error("no kind of " + file.name);
      if (found->second == Mode::Ignored) continue;
      // The storage takes no file without bytes.
      if (found->second == Mode::Large && file.size > 0 && !file.text) {
        large_.push_back({file, ""});
      } else {
        inline_.push_back(file);
      }
    }
  }

  void send_large() {
    // The largest come first, so that none of them is left for one connection alone at the end.
    std::sort(large_.begin(), large_.end(),
              [](const Large& a, const Large& b) { return a.file.size > b.file.size; });
    int64_t total = 0, all = 0;
    for (const Large& each : large_) total += each.file.size;
    for (const LocalFile& each : inline_) all += each.size;
    const size_t count = large_.size() + inline_.size();
    log::tell("uploading " + target_.shown() + ": " + std::to_string(count) +
              (count == 1 ? " file, " : " files, ") + format_bytes(total + all));
    Progress progress(target_.id, total, 0);
    run_on_threads(large_.size(), limits_.connections, [&](size_t i) {
      if (stop_) return;
      try {
        UploadClient client(target_, limits_, stop_);
        large_[i].sha256 = upload_large_file(client, large_[i].file, progress);
      } catch (...) {
        // The first error is told; those of the others only follow from it.
        if (!stop_.exchange(true)) throw;
      }
    });
    client_.check_stop();
  }

  // Finds the weights of an earlier result that was cut into other files. Programs that load the model could
  // take them for the new ones.
  void find_outdated() {
    const auto is_sent = [&](const std::string& name) {
      return std::any_of(files_.begin(), files_.end(),
                         [&](const LocalFile& file) { return file.name == name; });
    };
    if (std::none_of(files_.begin(), files_.end(),
                     [](const LocalFile& file) { return is_model_weights(file.name); }))
      return;
    io::HttpClient client(limits_, token(), stop_);
    Retries retries(limits_, target_.shown() + ": listing its files", stop_, Way::Up);
    const Listing listing = list_files(client, target_.repository(), retries);
    for (const auto& [name, file] : listing.files) {
      if (is_model_weights(name) && !is_sent(name)) outdated_.push_back(name);
    }
    if (!outdated_.empty())
      log::tell("the commit removes the weights of an earlier result: " + join(outdated_, ", "));
  }

  void commit() {
    std::string lines =
        json{{"key", "header"},
             {"value", {{"summary", "Upload files trained with Tessera"}, {"description", ""}}}}
            .dump() +
        '\n';
    for (const LocalFile& file : inline_) {
      const json value = {
          {"path", file.name},
          {"encoding", "base64"},
          {"content", base64(file.text ? *file.text : io::read_file(file.path, kMaxReadBytes))}};
      lines += json{{"key", "file"}, {"value", value}}.dump() + '\n';
    }
    for (const Large& each : large_) {
      const json value = {
          {"path", each.file.name}, {"algo", "sha256"}, {"oid", each.sha256}, {"size", each.file.size}};
      lines += json{{"key", "lfsFile"}, {"value", value}}.dump() + '\n';
    }
    for (const std::string& name : outdated_)
      lines += json{{"key", "deletedFile"}, {"value", {{"path", name}}}}.dump() + '\n';
    const auto reply =
        client_.post("making the commit", api_url(target_, "commit"), lines, "application/x-ndjson");
    if (!reply.head.is_good()) throw upload_refusal(target_, reply.head);
  }

  struct Large {
    LocalFile file;
    std::string sha256;
  };

  const UploadTarget& target_;
  const Limits& limits_;
  std::atomic<bool>& stop_;
  UploadClient client_;
  const std::vector<LocalFile> files_;
  std::vector<Large> large_;
  std::vector<LocalFile> inline_;
  std::vector<std::string> outdated_;  // names of files that the commit removes
};

// Makes what is not there of the repository and its branch. Returns the answer of the hub that says whether
// the token may write to it.
io::HttpAnswer make_repository(UploadClient& client, const UploadTarget& target, bool& may_be_busy) {
  const size_t slash = target.id.find('/');
  json wanted = {
      {"organization", target.id.substr(0, slash)}, {"name", target.id.substr(slash + 1)}, {"type", "model"}};
  if (target.is_private) wanted["private"] = *target.is_private;
  const io::HttpAnswer made =
      client.post("making its repository", endpoint() + "/api/repos/create", wanted.dump()).head;
  may_be_busy = is_there_already(made);
  // A token may have leave to write to a repository that is there, and none to make one; and an account may
  // have to pay for a new one (402).
  const bool makes_none = made.status >= 401 && made.status <= 403;
  if (!made.is_good() && !is_there_already(made) && !makes_none) throw upload_refusal(target, made);
  if (!target.revision.empty() && target.revision != "main") {
    const io::HttpAnswer branch = client.post("making its branch", api_url(target, "branch"), "{}").head;
    if (!branch.is_good() && !is_there_already(branch) && branch.status != 403)
      return makes_none ? made : branch;
  }
  // Only one who may write is told how the files are stored.
  const io::HttpAnswer modes = ask_modes(client, json::array({question_of("config.json", 2, "{}")})).head;
  return makes_none && !modes.is_good() ? made : modes;
}

}  // namespace

Limits upload_limits() {
  Limits limits;
  limits.stall_s = 300;
  return limits;
}

void prepare_upload(const UploadTarget& target, const Limits& limits) {
  check_upload(target);
  const io::IgnoreBrokenPipes ignored;
  const std::atomic<bool> stop = false;
  UploadClient client(target, limits, stop);
  Retries retries(limits, target.shown() + ": making its repository", stop, Way::Up);
  for (;;) {
    bool may_be_busy = false;
    const io::HttpAnswer answer = make_repository(client, target, may_be_busy);
    if (answer.is_good()) return;
    // The hub says "409" of a repository that is there, and also where it makes another one for the same user
    // at this moment: then the repository is not found.
    if (!may_be_busy || answer.status != 404) throw upload_refusal(target, answer);
    retries.wait("the server answers 409");
  }
}

void upload(std::vector<LocalFile> files, const UploadTarget& target, std::atomic<bool>& stop,
            const Limits& limits) {
  check_upload(target);
  const io::IgnoreBrokenPipes ignored;
  FolderUpload(std::move(files), target, limits, stop).run();
  log::info("uploaded to " + target.page());
}

}  // namespace tessera::hub

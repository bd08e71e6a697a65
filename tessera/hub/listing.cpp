#include "tessera/hub/listing.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/hub/settings.h"
#include "tessera/io/json_file.h"
#include "tessera/io/json_values.h"

namespace tessera::hub {
namespace {

constexpr size_t kMaxListingBytes = size_t{256} << 20;

Error answer_error(const Repository& repository, const std::string& what) {
  return Error(ErrorKind::Storage, "HUB-ANSWER", endpoint() + " does not answer like a hub: " + what)
      .in(repository.shown())
      .hint("HF_ENDPOINT sets the address of the hub");
}

bool is_checksum(const std::string& text, size_t num_digits) {
  return text.size() == num_digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

RemoteFile file_of(const nlohmann::json& item, const Repository& repository) {
  RemoteFile file;
  file.name = io::text_at(item, "rfilename");
  const auto lfs = item.is_object() ? item.find("lfs") : item.end();
  file.has_sha256 = lfs != item.end() && lfs->is_object();
  file.etag = file.has_sha256 ? io::text_at(*lfs, "sha256") : io::text_at(item, "blobId");
  const nlohmann::json& sized = file.has_sha256 && lfs->contains("size") ? *lfs : item;
  const auto size = sized.is_object() ? sized.find("size") : sized.end();
  file.size = size != sized.end() ? io::integer_of(*size).value_or(-1) : -1;
  if (file.name.empty() || !is_checksum(file.etag, file.has_sha256 ? 64 : 40) || file.size < 0)
    throw answer_error(repository, "a file without name, checksum or size");
  return file;
}

}  // namespace

Listing parse_listing(std::string_view text, const Repository& repository) {
  const nlohmann::json answer = io::parse_json(text, endpoint(), ErrorKind::Storage);
  Listing listing;
  listing.commit = io::text_at(answer, "sha");
  if (!is_plain_name(listing.commit)) throw answer_error(repository, "no commit");
  const auto files = answer.find("siblings");
  if (files == answer.end() || !files->is_array()) throw answer_error(repository, "no list of files");
  for (const nlohmann::json& item : *files) {
    RemoteFile file = file_of(item, repository);
    listing.files[file.name] = file;
  }
  return listing;
}

Listing list_files(io::HttpClient& client, const Repository& repository, Retries& retries) {
  const std::string kind = repository.kind == Kind::Model ? "models/" : "datasets/";
  const std::string url = endpoint() + "/api/" + kind + io::url_quoted(repository.id, true) + "/revision/" +
                          io::url_quoted(repository.wanted(), false) + "?blobs=true";
  std::string text;
  const io::HttpAnswer answer = retries.ask([&] {
    text.clear();
    return client.get(url, 0, [&](const io::HttpAnswer&, std::string_view bytes) {
      if (text.size() + bytes.size() > kMaxListingBytes)
        throw answer_error(repository, "a list without an end");
      text += bytes;
    });
  });
  if (!answer.is_good()) throw refusal(repository, answer);
  return parse_listing(text, repository);
}

std::string file_url(const Repository& repository, const std::string& commit, const std::string& name) {
  return endpoint() + (repository.kind == Kind::Model ? "/" : "/datasets/") +
         io::url_quoted(repository.id, true) + "/resolve/" + io::url_quoted(commit, false) + '/' +
         io::url_quoted(name, true);
}

Error refusal(const Repository& repository, const io::HttpAnswer& answer) {
  const std::string code = answer.header("x-error-code"), got = answer.told();
  const std::string page = endpoint() + (repository.kind == Kind::Model ? "/" : "/datasets/") + repository.id;
  const std::string log_in = token().empty() ? "set HF_TOKEN to a token of " + endpoint() + "/settings/tokens"
                                             : "use the token of a user who has access to it";
  const bool is_missing = answer.status == 404 || code == "RepoNotFound" || code == "RevisionNotFound";
  if (is_missing && code != "GatedRepo") {
    const bool is_revision = code == "RevisionNotFound";
    return Error(ErrorKind::Config, "HUB-NOT-FOUND",
                 endpoint() + " has no " +
                     (is_revision
                          ? "revision " + repository.wanted() + " of " + repository.id
                          : repository.shown() + (repository.revision.empty() ? ", revision main" : "")))
        .got(got)
        .hint(is_revision ? page + "/tree/main lists the revisions"
                          : "if it exists and is private: " + log_in);
  }
  if (answer.status == 401 || answer.status == 403 || code == "GatedRepo") {
    const bool is_gated = code == "GatedRepo" || answer.status == 403;
    return Error(ErrorKind::Config, "HUB-ACCESS",
                 endpoint() + " gives " + repository.shown() + " only to users with access")
        .got(got)
        .hint((is_gated ? "accept its licence at " + page + ", and " : "if the name is correct: ") + log_in);
  }
  return Error(ErrorKind::Config, "HUB-REFUSED", endpoint() + " refuses " + repository.shown()).got(got);
}

}  // namespace tessera::hub

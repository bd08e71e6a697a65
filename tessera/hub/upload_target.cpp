#include "tessera/hub/upload_target.h"

#include <cctype>

#include "tessera/hub/cache.h"
#include "tessera/hub/settings.h"
#include "tessera/hub/snapshot.h"

namespace tessera::hub {
namespace {

constexpr size_t kLongestName = 96;

// Returns whether one part of a name is such as the hub makes new ones.
bool is_new_name(std::string_view name) {
  const auto is_word = [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; };
  return is_plain_name(name) && name.size() <= kLongestName && is_word(name.front()) &&
         is_word(name.back()) && name.find("--") == std::string_view::npos &&
         name.find("..") == std::string_view::npos;
}

std::string token_hint() {
  return "create a token with the role write at " + endpoint() +
         "/settings/tokens, and set HF_TOKEN to it or run hf auth login";
}

// Returns `text` as one word of a shell.
std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:@%+,";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + '\'';
}

}  // namespace

std::string UploadTarget::page() const {
  return endpoint() + '/' + id + (revision.empty() ? "" : "/tree/" + io::url_quoted(revision, false));
}

std::string UploadTarget::command(const std::string& folder) const {
  return "tessera upload " + shell_word(folder) + ' ' + id +
         (is_private.value_or(false) ? " --private" : "") +
         (revision.empty() ? "" : " --revision " + shell_word(revision));
}

bool is_upload_id(const std::string& id) {
  const size_t slash = id.find('/');
  return slash != std::string::npos && is_new_name(std::string_view(id).substr(0, slash)) &&
         is_new_name(std::string_view(id).substr(slash + 1)) && !id.ends_with(".git");
}

void check_upload(const UploadTarget& target) {
  if (!is_upload_id(target.id)) {
    throw Error(ErrorKind::Config, "HUB-NAME", "the hub does not accept this name for a repository")
        .got("'" + target.id + "'")
        .need(
            "org/name: the user or organisation that owns it, and a name of letters, digits, '-', '_' "
            "and '.'");
  }
  if (!target.revision.empty() && !is_revision(target.revision)) {
    throw Error(ErrorKind::Config, "HUB-NAME", "a branch cannot have this name")
        .got("'" + target.revision + "'");
  }
  if (is_offline()) {
    throw Error(ErrorKind::Config, "HUB-OFFLINE",
                "the result would be uploaded to " + target.shown() +
                    ", but HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set")
        .hint(
            "unset the variable; or train with push_to_hub=false and upload the folder later, on a machine "
            "with a network: " +
            target.command("OUTPUT_DIR"));
  }
  if (token().empty()) {
    throw Error(ErrorKind::Config, "HUB-ACCESS", "uploading to " + target.shown() + " needs a token")
        .hint(token_hint());
  }
}

Error upload_refusal(const UploadTarget& target, const io::HttpAnswer& answer) {
  const std::string code = answer.header("x-error-code"), got = answer.told();
  if (answer.status == 401 && code.empty()) {
    return Error(ErrorKind::Config, "HUB-ACCESS", endpoint() + " does not accept the token")
        .got(got)
        .hint(token_hint());
  }
  if (answer.status == 401 || answer.status == 403) {
    return Error(ErrorKind::Config, "HUB-ACCESS", "the token has no write access to " + target.shown())
        .got(got)
        .hint(
            "it needs the role write, or fine-grained write access to the repository, and its user must be a "
            "member of " +
            target.id.substr(0, target.id.find('/')) + ": " + endpoint() + "/settings/tokens");
  }
  if (answer.status == 404) {
    return Error(ErrorKind::Config, "HUB-NOT-FOUND", endpoint() + " has no " + target.shown())
        .got(got)
        .hint("if it exists, the token must belong to a user with write access");
  }
  return Error(ErrorKind::Config, "HUB-REFUSED", endpoint() + " refused the upload to " + target.shown())
      .got(got);
}

}  // namespace tessera::hub

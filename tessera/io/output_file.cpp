#include "tessera/io/output_file.h"

#include <algorithm>
#include <sys/stat.h>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/io/file.h"

namespace tessera::io {
namespace {

bool is_earlier(const OutputFile& file) {
  if (!file.is_earlier_output) return false;
  const File found = File::open(file.path);
  std::string begin(std::min(kKnownBytes, static_cast<size_t>(found.size())), '\0');
  found.read_at(0, begin.data(), static_cast<int64_t>(begin.size()));
  return file.is_earlier_output(begin);
}

Error refusal(const OutputFile& file, const char* code, const std::string& what) {
  Error error(ErrorKind::Config, code, "the file of " + file.named_by + " " + what);
  error.in(file.path);
  return error;
}

}  // namespace

void check_output_file(const OutputFile& file) {
  struct stat status {};
  if (::stat(file.path.c_str(), &status) != 0) return;
  if (!S_ISREG(status.st_mode)) {
    throw refusal(file, "OUTPUT-USED", "is not a regular file")
        .got(S_ISDIR(status.st_mode) ? "a folder" : "a device, a pipe or a socket")
        .hint("name another file");
  }
  const std::string path = resolved_path(file.path);
  const bool may_replace = status.st_size == 0 || is_earlier(file);
  for (const ResultInput& input : file.inputs) {
    if (input.path.empty() || !exists(input.path)) continue;
    const std::string read = resolved_path(input.path);
    if (!is_or_lies_in(path, read) || (may_replace && !is_or_lies_in(read, path))) continue;
    throw refusal(file, "OUTPUT-INPUT",
                  (is_or_lies_in(read, path) ? "is " : "is inside ") + input.what + ", which would be lost")
        .got(input.path)
        .hint("name another file");
  }
  if (may_replace || file.overwrites) return;
  throw refusal(
      file, "OUTPUT-USED",
      file.is_earlier_output ? "already exists and is not an earlier output of this kind" : "already exists")
      .hint("name another file, " +
            (file.how_to_overwrite.empty() ? "or remove it" : "or replace it by " + file.how_to_overwrite));
}

std::function<bool(std::string_view begin)> begins_with(std::string text) {
  return [text = std::move(text)](std::string_view begin) { return begin.starts_with(text); };
}

}  // namespace tessera::io

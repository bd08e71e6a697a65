#include "tessera/hub/settings.h"

#include <algorithm>

#include "tessera/core/environment.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/hub/cache.h"
#include "tessera/io/file.h"

namespace tessera::hub {
namespace {

constexpr int64_t kMaxTokenBytes = 4096;

std::string without_space(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

bool is_true(const char* name) {
  const std::string value = lower(environment::get(name).value_or(""));
  return value == "1" || value == "true" || value == "yes" || value == "on";
}

}  // namespace

std::string endpoint() {
  std::string address = environment::get("HF_ENDPOINT").value_or("https://huggingface.co");
  if (!address.starts_with("https://") && !address.starts_with("http://")) {
    throw Error(ErrorKind::Config, "ENVIRONMENT", "the environment variable HF_ENDPOINT")
        .got("'" + address + "'")
        .need("the address of a hub, such as https://huggingface.co");
  }
  while (address.ends_with('/')) address.pop_back();
  return address;
}

std::string token() {
  std::string place = "the environment variable HF_TOKEN", text;
  if (const auto given = environment::get("HF_TOKEN")) {
    text = without_space(*given);
  } else if (const std::string file = io::join_path(hub_home(), "token"); io::exists(file)) {
    place = file;
    text = without_space(io::read_file(file, kMaxTokenBytes));
  }
  // Anything else would be a header of its own, or none.
  if (std::any_of(text.begin(), text.end(), [](char c) { return c <= ' ' || c >= 0x7f; })) {
    throw Error(ErrorKind::Config, "ENVIRONMENT", place + " contains no token")
        .need("a single word, as hf auth login writes it");
  }
  return text;
}

bool is_offline() { return is_true("HF_HUB_OFFLINE") || is_true("TRANSFORMERS_OFFLINE"); }

}  // namespace tessera::hub

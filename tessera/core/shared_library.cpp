#include "tessera/core/shared_library.h"

#include <filesystem>

#include <dlfcn.h>

namespace tessera {

SharedLibrary::SharedLibrary(const std::vector<std::string>& candidates, Symbols symbols) {
  const int mode = RTLD_NOW | (symbols == Symbols::OfAll ? RTLD_GLOBAL : RTLD_LOCAL);
  for (const std::string& candidate : candidates) {
    handle_ = dlopen(candidate.c_str(), mode);
    if (handle_ != nullptr) {
      path_ = candidate;
      why_not_.clear();
      is_missing_ = false;
      return;
    }
    const std::string said = dlerror();
    const bool is_there =
        !said.starts_with(candidate + ": ") || said.find("No such file") == std::string::npos;
    // A candidate that is there and does not open says more than one that is not there.
    if (why_not_.empty() || (is_there && is_missing_)) why_not_ = said;
    if (is_there) is_missing_ = false;
  }
}

SharedLibrary SharedLibrary::own(const std::string& file_name) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<std::string> candidates;
  for (const char* place : {".", "..", "../lib", "../lib/tessera", "../lib/x86_64-linux-gnu"})
    if (!error) candidates.push_back((folder / place / file_name).lexically_normal().string());
  candidates.push_back(file_name);
  SharedLibrary library(candidates);
  if (library.is_missing()) library.why_not_ = "this build has no " + file_name;
  return library;
}

SharedLibrary SharedLibrary::of_process() {
  SharedLibrary library;
  library.handle_ = dlopen(nullptr, RTLD_NOW);
  library.is_missing_ = false;
  library.path_ = "this process";
  return library;
}

SharedLibrary SharedLibrary::none(const std::string& why_not) {
  SharedLibrary library;
  library.why_not_ = why_not;
  return library;
}

void* SharedLibrary::symbol(const char* name) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, name);
}

void SharedLibrary::lack(const std::string& what) {
  if (is_usable()) why_not_ = path_ + ' ' + what;
}

void SharedLibrary::expect_version(size_t version, size_t oldest) {
  const auto major = [](size_t of) { return of / 10000; };
  if (version >= oldest && major(version) == major(oldest)) return;
  lack("is of version " + version_text(version) + ", not of " + version_text(oldest) + " or a later " +
       std::to_string(major(oldest)));
}

std::string version_text(size_t version) {
  return std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) + '.' +
         std::to_string(version % 100);
}

}  // namespace tessera

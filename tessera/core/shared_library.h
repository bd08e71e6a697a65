// Libraries that are opened while the program runs, which is linked with nothing of them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tessera {

// A library that is open, or why it cannot be used. What has been opened stays so for the life of the
// process: it may have threads, and code on devices.
class SharedLibrary {
 public:
  // Who finds its symbols: those who have it, or all that is opened later too.
  enum class Symbols { Own, OfAll };

  // The first of `candidates` that opens, with all that it needs: paths, or names that the loader looks for.
  explicit SharedLibrary(const std::vector<std::string>& candidates, Symbols symbols = Symbols::Own);
  // One of Tessera's own: beside the program, where an installed or packaged program has its libraries, or
  // where the loader looks.
  static SharedLibrary own(const std::string& file_name);
  // All that this process has open whose symbols are of all.
  static SharedLibrary of_process();
  // None, for this reason.
  static SharedLibrary none(const std::string& why_not);

  bool is_usable() const { return why_not_.empty(); }
  // In one line: the loader's words, or the first thing that it was found to lack. Empty where it can be
  // used.
  const std::string& why_not() const { return why_not_; }
  // Whether no candidate is there at all, as opposed to one that does not open.
  bool is_missing() const { return is_missing_; }
  // The candidate that was opened.
  const std::string& path() const { return path_; }

  // Whether it has this function, which is null where it does not.
  template <class F>
  bool has(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(symbol(name));
    return function != nullptr;
  }
  // The same, of a function without which it cannot be used.
  template <class F>
  void find(F*& function, const char* name) {
    if (!has(function, name)) lack("has no " + std::string(name));
  }
  // It cannot be used below `oldest` or with another major version, both as NVIDIA's libraries count: 91900
  // is 9.19.0.
  void expect_version(size_t version, size_t oldest);

 private:
  SharedLibrary() = default;
  void* symbol(const char* name) const;
  void lack(const std::string& what);

  void* handle_ = nullptr;
  bool is_missing_ = true;
  std::string path_, why_not_;
};

// "9.19.0" for 91900
std::string version_text(size_t version);

}  // namespace tessera

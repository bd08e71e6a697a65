// Libraries that are opened while the program runs, which is linked with nothing of them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tessera {

// An open library, or the reason why it cannot be used. A library that has been opened stays open for the
// life of the process: it may have threads, and code on devices.
class SharedLibrary {
 public:
  // Who finds the library's symbols: only those who look them up in it, or all libraries that are opened
  // later too.
  enum class Symbols { Own, OfAll };

  // Opens the first of `candidates` that opens with all that it needs. They are paths, or names that the
  // loader looks for.
  explicit SharedLibrary(const std::vector<std::string>& candidates, Symbols symbols = Symbols::Own);
  // Opens one of Tessera's own libraries: beside the program, where an installed or packaged program has its
  // libraries, or where the loader looks.
  static SharedLibrary own(const std::string& file_name);
  // Gives all that this process has open with Symbols::OfAll as one library.
  static SharedLibrary of_process();
  // Gives an unusable library, for this reason.
  static SharedLibrary none(const std::string& why_not);

  bool is_usable() const { return why_not_.empty(); }
  // Says in one line why the library cannot be used: the loader's words, or the first thing that it was found
  // to lack. Empty if it can be used.
  const std::string& why_not() const { return why_not_; }
  // Tells whether no candidate exists, in contrast to one that exists but cannot be opened.
  bool is_missing() const { return is_missing_; }
  // The candidate that was opened.
  const std::string& path() const { return path_; }

  // Looks a function up, which is null if the library does not have it; tells whether it does.
  template <class F>
  bool has(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(symbol(name));
    return function != nullptr;
  }
  // Looks a function up without which the library cannot be used.
  template <class F>
  void find(F*& function, const char* name) {
    if (!has(function, name)) lack("has no " + std::string(name));
  }
  // Makes the library unusable if `version` is below `oldest` or has another major version. Both count as
  // NVIDIA's libraries do: 91900 is 9.19.0.
  void expect_version(size_t version, size_t oldest);

 private:
  SharedLibrary() = default;
  void* symbol(const char* name) const;
  void lack(const std::string& what);

  void* handle_ = nullptr;
  bool is_missing_ = true;
  std::string path_, why_not_;
};

// Writes such a number as a text: "9.19.0" for 91900.
std::string version_text(size_t version);

}  // namespace tessera

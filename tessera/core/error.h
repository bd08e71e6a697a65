// The one exception type of Tessera, and what it prints.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

namespace tessera {

// The kind of an error, from the user's point of view. It decides the exit code of the program.
enum class ErrorKind {
  Config,      // recipe, command line, environment: exit 2
  Data,        // dataset files: exit 3
  Model,       // model, tokenizer, chat template or adapter files: exit 4
  Checkpoint,  // checkpoint invalid or missing: exit 5
  Storage,     // no space, no permission, I/O error: exit 6
  Numerics,    // non-finite loss, gradient or weight: exit 7
  Hang,        // a collective did not finish in time: exit 8
  Peer,        // another rank was lost or stopped: exit 9
  Memory,      // out of memory: exit 10
  Internal,    // a broken invariant, which is a defect of Tessera: exit 1
};

// Gives the exit code of the process for a kind.
int exit_code(ErrorKind kind);

// A place in a file; line and column are 1-based, and 0 where they are not known.
struct SourcePlace {
  std::string file;
  int64_t line = 0, column = 0;
};

// An error that names its place. It is built in one expression:
//   throw Error(ErrorKind::Config, "UNKNOWN-KEY", "unknown key 'sead'")
//       .at("r.yaml", 3, 1).hint("did you mean 'seed'?");
// what() is the text after "tessera: ":
//   error[E-CONFIG-UNKNOWN-KEY]: r.yaml:3:1: unknown key 'sead'; got X, need Y. hint: ...
class Error : public std::exception {
 public:
  // `name` completes the code E-<KIND>-<NAME>: upper case, words joined by '-'.
  Error(ErrorKind kind, std::string_view name, std::string what);

  // Sets the place: a file, and the line and column in it (1-based; 0 = not known).
  Error& at(std::string_view file, int64_t line = 0, int64_t column = 0);
  Error& at(const SourcePlace& place) { return at(place.file, place.line, place.column); }
  // Sets a place that has no lines: "file: byte 120", "file: tensor 'x'".
  Error& in(std::string_view place);
  // Says within which operation it happened: puts "<text>: " before the message.
  Error& within(std::string_view text);
  // Say what was found, what is needed in its place, and what the user can do.
  Error& got(std::string_view value);
  Error& need(std::string_view value);
  Error& hint(std::string_view text);
  // Notes the key of a recipe that the error speaks of, for a caller that knows where the recipe gives it.
  // The text stays as it is.
  Error& about(std::string_view key) {
    key_ = key;
    return *this;
  }

  ErrorKind kind() const { return kind_; }
  const std::string& key() const { return key_; }  // set by about(); else ""
  // The error's code, such as "E-CONFIG-UNKNOWN-KEY".
  const std::string& code() const { return code_; }
  const char* what() const noexcept override { return text_.c_str(); }
  // Returns the part of what() behind the code, for messages that name another place.
  std::string_view message() const { return std::string_view(what()).substr(code_.size() + 9); }

 private:
  void compose();

  ErrorKind kind_;
  std::string code_, key_, place_, what_, got_, need_, hint_, text_;
};

// Throws an Internal error unless `condition` holds: for invariants, never for input.
#define TESSERA_ASSERT(condition, message)                                                \
  do {                                                                                    \
    if (!(condition)) ::tessera::throw_internal(__FILE__, __LINE__, #condition, message); \
  } while (false)

[[noreturn]] void throw_internal(const char* file, int line, const char* condition,
                                 const std::string& message);

}  // namespace tessera

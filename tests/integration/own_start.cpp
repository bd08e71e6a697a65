// Lets these tests run the program in forks of their own process (tests/testing/run_program.h).
#include "tessera/cli/program.h"

#include "tests/testing/run_program.h"

namespace tessera::testing {
namespace {

[[maybe_unused]] const bool is_set = [] {
  run_body = [](const std::string& path, const Words& arguments) {
    cli::end_process(cli::run_program(path, arguments));
  };
  return true;
}();

}  // namespace
}  // namespace tessera::testing

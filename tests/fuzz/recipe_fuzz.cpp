#include <string>

#include "tessera/config/load_recipe.h"

#include "tests/fuzz/fuzz_target.h"

// A recipe that is accepted is written as text and read again, which must give the same recipe.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  fuzz::take_or_refuse("recipe", [&] {
    const config::Recipe recipe = config::parse_recipe(fuzz::text_of(data, size), "fuzz.yaml");
    const std::string written = config::dump_recipe(recipe);
    std::string again;
    try {
      again = config::dump_recipe(config::parse_recipe(written, "written.yaml"));
    } catch (const Error& error) {
      again = error.what();
    }
    if (again != written) throw_internal(__FILE__, __LINE__, "again == written", again);
  });
  return 0;
}

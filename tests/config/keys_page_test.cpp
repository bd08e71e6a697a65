#include "tessera/config/keys_page.h"

#include <fstream>
#include <sstream>

#include "tests/config/config_testing.h"

namespace tessera::config {
namespace {

std::string page_in_docs() {
  std::ifstream file(testing::source_folder() + "/docs/recipe-keys.md");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(KeysPageTest, IsTheOneInTheDocs) {
  std::istringstream want(keys_page()), have(page_in_docs());
  std::string line, there;
  while (std::getline(want, line)) {
    std::getline(have, there);
    ASSERT_EQ(line, there) << "make it again: tessera recipe keys > docs/recipe-keys.md";
  }
  EXPECT_FALSE(std::getline(have, there)) << there;
}

TEST(KeysPageTest, TellsOfEveryKey) {
  const std::string page = keys_page();
  for (std::string key : known_keys()) {
    key = key.substr(key.rfind('.') + 1);
    EXPECT_THAT(page, ::testing::HasSubstr('`' + key)) << key;
  }
  EXPECT_THAT(page, ::testing::HasSubstr("| `gradient_clipping` | means `max_grad_norm` |"));
  EXPECT_THAT(page, ::testing::HasSubstr("| `qat` | refused: quantisation-aware"));
}

}  // namespace
}  // namespace tessera::config

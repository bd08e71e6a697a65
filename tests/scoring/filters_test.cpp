// Filters against those of lm-evaluation-harness (filters.json of tests/reference/make_task_reference.py).
#include "tessera/scoring/filters.h"

#include <gtest/gtest.h>

#include "tests/scoring/task_reference.h"

namespace tessera::scoring {
namespace {

std::string filtered(const Json& function, const Json& arguments, const Json& answer, const Json& document) {
  const Filters filters({"f", {{function.get<std::string>(), arguments}, {"take_first", Json::object()}}});
  filters.check(document);
  return filters.apply({answer.get<std::string>()}, document);
}

TEST(Filters, FindWhatThoseOfTheHarnessFind) {
  const Json reference = read_reference("filters.json");
  const Json& answers = reference["answers"];
  for (const Json& c : reference["cases"]) {
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(filtered(c["function"], c["arguments"], answers[i], {{"choices", reference["choices"]}}),
                c["filtered"][i])
          << c["function"] << c["arguments"] << ": " << answers[i];
    }
  }
  const Json equal = {{"choices", {"Red", "", "red"}}};
  EXPECT_EQ(filtered("multi_choice_regex", {{"ignore_case", true}}, "red", equal), reference["equal"][0]);
  EXPECT_EQ(filtered("multi_choice_regex", {{"ignore_case", true}}, "blue", equal), reference["equal"][1]);
}

}  // namespace
}  // namespace tessera::scoring

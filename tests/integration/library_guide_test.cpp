// Checks docs/library.md: each of its snippets is part of a program that runs on any number of ranks.
// own_model_test runs the program of the pipelines' snippets.
#include "tests/integration/fixture.h"
#include "tests/testing/paths.h"

namespace tessera::testing {
namespace {

// Returns the lines without their indentation, each ended by a newline; empty ones are left out.
std::string normalised(const std::string& text) {
  std::string out = "\n";
  for (const std::string& line : ProgramResult::lines(text)) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin != std::string::npos) out += line.substr(begin) + "\n";
  }
  return out;
}

// Returns the contents of the page's fenced blocks of this language.
std::vector<std::string> snippets(const std::string& page, const std::string& language) {
  std::vector<std::string> found;
  const std::string open = "```" + language + "\n";
  for (size_t at = page.find(open); at != std::string::npos; at = page.find(open, at)) {
    at += open.size();
    found.push_back(page.substr(at, page.find("```", at) - at));
  }
  return found;
}

std::string source(const std::string& path) { return read_text(source_folder() + "/" + path); }

TEST(LibraryGuideTest, EverySnippetIsPartOfAProgram) {
  const std::string page = source("docs/library.md");
  const std::string programs = source("examples/library_guide.cpp") + source("examples/pipeline.cpp");
  for (const auto& [language, text, count] :
       {std::tuple("cpp", programs, 17), std::tuple("cmake", source("examples/CMakeLists.txt"), 1)}) {
    const std::string program = normalised(text);
    const auto found = snippets(page, language);
    EXPECT_GE(found.size(), static_cast<size_t>(count)) << language;
    for (const std::string& snippet : found)
      EXPECT_NE(program.find(normalised(snippet)), std::string::npos) << language << " lacks\n" << snippet;
  }
}

TEST(LibraryGuideTest, TheProgramRuns) {
  const TempFolder here;
  const std::string program = std::string(TESSERA_BUILD_DIR) + "/library_guide";
  for (const char* ranks : {"1", "2", "3", "4"}) {
    const Words alone = {program, here.path()};
    const ProgramResult result =
        run_command(std::string(ranks) == "1" ? alone : mpirun({"-n", ranks, program, here.path()}));
    EXPECT_EQ(result.exit_code, 0) << ranks << " ranks\n" << result.told();
    EXPECT_NE(result.out.find("all snippets ran"), std::string::npos) << result.told();
  }
}

}  // namespace
}  // namespace tessera::testing

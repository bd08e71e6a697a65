#include "tessera/core/shared_library.h"

#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/temp_folder.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

constexpr char kThere[] = "libm.so.6", kNowhere[] = "/nowhere/liba.so";

TEST(SharedLibrary, GivesFunctionsByName) {
  SharedLibrary library({kNowhere, kThere});
  EXPECT_EQ(library.path(), kThere);
  double (*sine)(double) = nullptr;
  library.find(sine, "sin");
  ASSERT_TRUE(library.is_usable()) << library.why_not();
  EXPECT_DOUBLE_EQ(sine(1.0), std::sin(1.0));
  EXPECT_FALSE(library.has(sine, "no_such_function"));
  EXPECT_EQ(sine, nullptr);
  EXPECT_TRUE(library.is_usable());
}

TEST(SharedLibrary, NamesTheFirstThingThatItLacks) {
  SharedLibrary library({kThere});
  void (*function)() = nullptr;
  for (const char* name : {"sin", "no_such_function", "nor_this"}) library.find(function, name);
  library.expect_version(1, 20000);
  EXPECT_FALSE(library.is_usable());
  EXPECT_FALSE(library.is_missing());
  EXPECT_EQ(library.why_not(), "libm.so.6 has no no_such_function");
}

TEST(SharedLibrary, TakesLaterVersionsOfOneMajor) {
  const auto why_not = [](size_t version) {
    SharedLibrary library({kThere});
    library.expect_version(version, 91900);
    return library.why_not();
  };
  for (const size_t version : {91900, 91901, 92000, 99999}) EXPECT_EQ(why_not(version), "") << version;
  EXPECT_EQ(why_not(91899), "libm.so.6 is of version 9.18.99, not of 9.19.0 or a later 9");
  for (const size_t version : {0, 81900, 100000, 191900}) EXPECT_NE(why_not(version), "") << version;
}

TEST(SharedLibrary, OneThatIsNowhereIsMissing) {
  SharedLibrary library({kNowhere, "/nowhere/libb.so"});
  EXPECT_TRUE(library.is_missing());
  EXPECT_THAT(library.why_not(), ::testing::StartsWith("/nowhere/liba.so: "));
  void (*function)() = nullptr;
  EXPECT_FALSE(library.has(function, "malloc")) << "which this process has";
}

TEST(SharedLibrary, OneThatDoesNotOpenSaysWhyIfNoOtherDoes) {
  const testing::TempFolder here;
  const std::string broken = here.write("broken.so", "no library");
  const SharedLibrary library({kNowhere, broken});
  EXPECT_FALSE(library.is_usable());
  EXPECT_FALSE(library.is_missing());
  EXPECT_THAT(library.why_not(), HasSubstr("broken.so: "));
  EXPECT_TRUE(SharedLibrary({broken, kThere}).is_usable());
}

TEST(SharedLibrary, OurOwnIsSaidToBeNoneOfThisBuild) {
  const SharedLibrary library = SharedLibrary::own("tessera-none.so");
  EXPECT_TRUE(library.is_missing());
  EXPECT_EQ(library.why_not(), "this build has no tessera-none.so");
}

TEST(SharedLibrary, OfTheProcessHasWhatAllHave) {
  const SharedLibrary process = SharedLibrary::of_process();
  void* (*allocate)(size_t) = nullptr;
  EXPECT_TRUE(process.has(allocate, "malloc"));
  EXPECT_FALSE(process.has(allocate, "tessera_has_no_such_symbol"));
}

TEST(SharedLibrary, NoneSaysItsReason) {
  const SharedLibrary none = SharedLibrary::none("nobody asked");
  EXPECT_TRUE(none.is_missing());
  EXPECT_EQ(none.why_not(), "nobody asked");
}

}  // namespace
}  // namespace tessera

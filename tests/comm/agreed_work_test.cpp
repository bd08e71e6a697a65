#include "tessera/comm/agreed_work.h"

#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/error.h"

namespace tessera::comm {
namespace {

// Returns the code of the error that finish() throws; "" if it does not throw.
std::string code_of(AgreedWork& work, std::string* text = nullptr) {
  try {
    work.finish();
    return "";
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.code();
  }
}

TEST(AgreedWork, AnErrorOfOneRankEndsAll) {
  for (const int64_t ranks : {1, 3}) {
    for (int64_t failing = 0; failing < ranks; ++failing) {
      run_fake_ranks(ranks, [&](const std::shared_ptr<Communicator>& world) {
        AgreedWork work({world.get()}, "do it");
        int done = 0;
        work.run([&] { ++done; });
        work.run([&] {
          if (world->rank() == failing) throw Error(ErrorKind::Storage, "FULL", "the disk is full");
        });
        work.run([&] { ++done; });
        EXPECT_EQ(done, world->rank() == failing ? 1 : 2);
        std::string text;
        EXPECT_EQ(code_of(work, &text), world->rank() == failing ? "E-STORAGE-FULL" : "E-STORAGE-OTHER-RANK");
        EXPECT_NE(text.find("the disk is full"), std::string::npos) << text;
        if (world->rank() != failing) {
          EXPECT_NE(text.find("another rank could not do it"), std::string::npos) << text;
        }
      });
    }
  }
}

TEST(AgreedWork, AlongTwoGroupsAllHearOfIt) {
  for (int64_t failing = 0; failing < 6; ++failing) {
    run_fake_ranks(6, [&](const std::shared_ptr<Communicator>& world) {
      const auto rows = world->split(world->rank() / 3, world->rank(), "rows"),
                 columns = world->split(world->rank() % 3, world->rank(), "columns");
      AgreedWork work({rows.get(), columns.get()}, "do it");
      EXPECT_EQ(work.is_first(), world->rank() == 0);
      int done = 0;
      work.run_on_first([&] { ++done; });
      EXPECT_EQ(done, world->rank() == 0 ? 1 : 0);
      EXPECT_EQ(code_of(work), "");
      work.run([&] {
        if (world->rank() == failing) throw std::runtime_error("odd");
      });
      EXPECT_THROW(work.finish(), std::exception);
    });
  }
}

}  // namespace
}  // namespace tessera::comm

// Options::draft: which drafter it names, if any.
#include "engine/drafting.h"

#include <gmock/gmock.h>

#include "model_directory.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

void make_drafter(const fs::path& directory) {
  fs::create_directories(directory);
  std::ofstream(directory / "config.json") << "{}";
}

TEST(DrafterDirectory, IsTheOneBesideTheModel) {
  const TemporaryDirectory folder;
  const fs::path model = folder.path() / "model", dflash = folder.path() / "model-dflash",
                 dflash2 = folder.path() / "model-dflash2";
  fs::create_directories(dflash);  // holds nothing
  EXPECT_EQ(drafter_directory("auto", model), "");
  make_drafter(dflash);
  EXPECT_EQ(drafter_directory("auto", model), dflash);
  make_drafter(dflash2);
  EXPECT_EQ(drafter_directory("auto", model), dflash2);
  EXPECT_EQ(drafter_directory("auto", model.string() + "/"), dflash2);
  EXPECT_EQ(drafter_directory("auto", folder.path() / "other/../model/."), dflash2);
  for (const char* draft : {"none", "ngram", "mtp"}) EXPECT_EQ(drafter_directory(draft, model), "");
}

TEST(DrafterDirectory, IsTheOneThatIsNamed) {
  const TemporaryDirectory folder;
  make_drafter(folder.path() / "drafter");
  EXPECT_EQ(drafter_directory((folder.path() / "drafter").string(), "model"), folder.path() / "drafter");
  for (const char* draft : {"", "no/such/drafter", "n-gram"})
    EXPECT_EQ(
        error_of([&] { drafter_directory(draft, "model"); }),
        fmt::format("not_found: draft is {}, where there is no drafter: expected none, auto, ngram, mtp or "
                    "a directory with config.json",
                    draft));
}

}  // namespace
}  // namespace quire

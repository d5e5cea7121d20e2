// quire-mini without enlarging its pages: for tests that need what it reads, and not every small letter.
#pragma once

#include <filesystem>

#include "io/json.h"
#include "temporary_directory.h"

namespace quire {

// The directory of that model. A page takes a third of the time.
class SmallPages {
 public:
  SmallPages() {
    for (const auto& file : std::filesystem::directory_iterator(kModel))
      if (file.path().filename() != kPreprocessor)
        std::filesystem::create_symlink(std::filesystem::absolute(file.path()),
                                        path() / file.path().filename());
    Json config = read_json(std::filesystem::path(kModel) / kPreprocessor);
    config["size"]["shortest_edge"] = 65536;
    folder_.write(kPreprocessor, config.dump());
  }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  static constexpr const char* kModel = "models/quire-mini";
  static constexpr const char* kPreprocessor = "preprocessor_config.json";
  TemporaryDirectory folder_;
};

}  // namespace quire

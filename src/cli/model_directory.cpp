#include "cli/model_directory.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "core/error.h"
#include "doc/pages.h"
#include "io/file.h"

namespace quire {

namespace fs = std::filesystem;

fs::path find_model(const std::string& given) {
  const auto is_model = [](const fs::path& path) {
    std::error_code ignored;
    return fs::exists(path / "config.json", ignored);
  };
  const char* variable = std::getenv("QUIRE_MODEL");
  for (const auto& [path, origin] :
       {std::pair<std::string, std::string>(given, "--model"),
        std::pair<std::string, std::string>(variable ? variable : "", "QUIRE_MODEL")}) {
    if (path.empty()) continue;
    if (is_model(path)) return path;
    fail(ErrorCode::not_found, "{}: no model there ({} names it): expected a directory with config.json",
         path, origin);
  }

  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  std::vector<fs::path> places;
  if (!error) places.push_back((executable.parent_path() / "../../models/quire-mini").lexically_normal());
  places.emplace_back("models/quire-mini");
  for (const fs::path& place : places)
    if (is_model(place)) return place;
  std::string looked;
  for (const fs::path& place : places) looked += (looked.empty() ? "" : " and ") + place.string();
  fail(ErrorCode::not_found,
       "no model found: looked for config.json in {}; name a model with --model or QUIRE_MODEL", looked);
}

std::string model_hash(const fs::path& directory) {
  constexpr std::size_t kSample = std::size_t{64} << 10;
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const fs::path extension = entry.path().extension();
    if (entry.is_regular_file() && (extension == ".json" || extension == ".safetensors"))
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string all;
  for (const fs::path& file : files) {
    std::string hash;
    if (file.extension() == ".json") {
      hash = file_hash(file);
    } else {
      const MappedFile mapped(file);
      const std::string_view bytes(reinterpret_cast<const char*>(mapped.bytes().data()),
                                   mapped.bytes().size());
      const std::size_t n = std::min(kSample, bytes.size());
      hash = content_hash(bytes.substr(0, n)) + content_hash(bytes.substr(bytes.size() - n));
    }
    all += fmt::format("{} {} {}\n", file.filename().string(), fs::file_size(file), hash);
  }
  return content_hash(all);
}

}  // namespace quire

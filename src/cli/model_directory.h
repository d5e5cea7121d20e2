// Which model a command uses.
#pragma once

#include <filesystem>
#include <string>

namespace quire {

// `given` (--model) when it is not empty; else the environment variable QUIRE_MODEL; else models/quire-mini
// of the repository that holds this executable; else ./models/quire-mini. Throws Error{not_found} saying
// where it looked.
std::filesystem::path find_model(const std::string& given);

// XXH3-128 that changes when the model does, without reading all of it: every JSON file, and of each weight
// file its name, its size, its first and its last 64 KiB.
std::string model_hash(const std::filesystem::path& directory);

}  // namespace quire

// Where a model's drafts come from, as Options::draft says.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "engine/decoder.h"

namespace quire {

// The directory of the drafter that `draft` names: "none", "ngram" and "mtp" name none, "auto" the one beside
// the model, if there is one: MODEL-dflash2, else MODEL-dflash. Empty: there is none. Throws
// Error{not_found}.
std::filesystem::path drafter_directory(const std::string& draft, const std::filesystem::path& model);

class Drafting {
 public:
  // References must outlive it. Throws Error.
  Drafting(const std::string& draft, const std::filesystem::path& model, const TextConfig& target,
           const Backend& backend, Stream& stream);

  Decoder::DraftSource source() const;
  int window(const Switches& switches) const;        // most rows of a sequence in one step
  const std::string& name() const { return name_; }  // "none", "ngram", "mtp" or the drafter's directory

 private:
  // A drafter of the model.
  struct Loaded {
    Loaded(const std::filesystem::path& directory, const TextConfig& target, const Backend& backend,
           Stream& stream)
        : config(DrafterConfig::from_directory(directory, target)),
          checkpoint(directory, config, backend, stream) {}

    DrafterConfig config;
    DrafterCheckpoint checkpoint;
    Decoder::DraftModel model{config, checkpoint.weights};
  };

  std::string name_;
  std::unique_ptr<Loaded> drafter_;
  std::unique_ptr<MtpCheckpoint> mtp_;
};

}  // namespace quire

#include "engine/drafting.h"

#include <algorithm>

#include "core/error.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// Of n-grams: longer windows give next to nothing more.
constexpr int kLookupWindow = 8;
// Of the model's own head: each draft reads the output head once more, and is made of guesses.
constexpr int kMtpWindow = 4;

bool is_drafter(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / "config.json", ignored);
}

}  // namespace

fs::path drafter_directory(const std::string& draft, const fs::path& model) {
  if (draft == "none" || draft == "ngram" || draft == "mtp") return {};
  if (draft != "auto") {
    if (is_drafter(draft)) return draft;
    fail(ErrorCode::not_found,
         "draft is {}, where there is no drafter: expected none, auto, ngram, mtp or a directory with "
         "config.json",
         draft);
  }
  // The model may be "." or end in a slash: its name comes from the whole path.
  fs::path name = fs::absolute(model).lexically_normal();
  if (!name.has_filename()) name = name.parent_path();
  for (const char* suffix : {"-dflash2", "-dflash"}) {
    fs::path beside = name;
    beside += suffix;
    if (is_drafter(beside)) return beside;
  }
  return {};
}

Drafting::Drafting(const std::string& draft, const fs::path& model, const TextConfig& target,
                   const Backend& backend, Stream& stream)
    : name_(draft) {
  const fs::path directory = drafter_directory(draft, model);
  if (!directory.empty()) {
    name_ = directory.string();
    drafter_ = std::make_unique<Loaded>(directory, target, backend, stream);
  } else if (draft == "auto") {
    // On a GPU a row more is nearly free, and so is a wrong draft; a CPU pays for both, and for the output
    // head once more with each draft.
    name_ = !backend.host_memory && MtpCheckpoint::is_in(model) ? "mtp" : "ngram";
  }
  if (name_ == "mtp") mtp_ = std::make_unique<MtpCheckpoint>(model, target, backend, stream);
}

Decoder::DraftSource Drafting::source() const {
  return {.model = drafter_ ? &drafter_->model : nullptr,
          .lookup = name_ == "ngram",
          .mtp = mtp_ ? &mtp_->weights : nullptr};
}

int Drafting::window(const Switches& switches) const {
  if (name_ == "none") return 1;
  if (mtp_) return switches.window > 0 ? switches.window : kMtpWindow;
  const int most = drafter_ ? std::min(drafter_->config.block_size, kMostWindow) : kLookupWindow;
  return switches.window > 0 ? std::min(switches.window, most) : most;
}

}  // namespace quire

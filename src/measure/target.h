// A model that reads pages, and remembers what it computed on the way: with that any drafter can be run as if
// beside it, as often as one likes, while the model itself runs once.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "engine/decoder.h"
#include "model/vision_model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "vision/preprocess.h"

namespace quire {

struct PromptSetup {
  std::string instruction;
  bool enable_thinking = false;
  bool operator==(const PromptSetup&) const = default;
};

// A page read with one prompt, greedily.
struct Recording {
  PromptSetup prompt;
  std::vector<std::int32_t> tokens;  // of the prompt, then generated
  std::size_t prompt_tokens = 0;
  MropePositions positions;         // of the prompt
  std::vector<int> taps;            // layers, rising
  std::vector<std::byte> features;  // [tokens - 1, taps * D] bf16: their outputs

  std::size_t generated() const { return tokens.size() - prompt_tokens; }
};

class Target {
 public:
  // Throws as Engine does.
  Target(const std::filesystem::path& model, const Backend& backend, int threads);

  // The page that is read from now on, as far as its features go.
  void show(const ImageView& page);
  // Reads it: at most `most` tokens. Throws Error{limit_exceeded} when the model has no room for any.
  Recording read(const PromptSetup& prompt, const std::vector<int>& taps, int most);
  // The prompt of a page of so many image tokens.
  std::vector<TokenId> prompt_ids(const PromptSetup& prompt, int image_tokens) const;

  const Backend& backend;
  const ModelConfig config;
  const PreprocessConfig preprocess_config;
  const Tokenizer tokenizer;
  const ChatTemplate chat_template;
  ThreadPool threads;
  OpenStream stream;
  const ModelWeights weights;

 private:
  VisionModel vision_;
  ImageGrid grid_;
  Rows page_;  // [image tokens, D]
};

}  // namespace quire

#include "engine/prompt.h"

#include <algorithm>

#include "core/error.h"

namespace quire {

std::vector<TokenId> build_prompt(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                  const ModelConfig& config, const std::string& instruction,
                                  bool enable_thinking, int image_tokens) {
  Message user{.role = "user", .content = {{.kind = ContentPart::Kind::image, .text = {}}}};
  if (!instruction.empty()) user.content.push_back({.kind = ContentPart::Kind::text, .text = instruction});
  std::vector<TokenId> ids = tokenizer.encode(chat_template.render({user}, enable_thinking));
  for (const TokenId id : ids) {
    if (id >= config.text.vocab_size)
      fail(
          ErrorCode::invalid_input,
          "the prompt holds token {} (\"{}\"), and the model knows {} tokens: tokenizer.json and config.json "
          "do not belong together",
          id, tokenizer.token_bytes(id), config.text.vocab_size);
  }
  const auto places = std::count(ids.begin(), ids.end(), config.image_token_id);
  if (places != 1) {
    fail(ErrorCode::unsupported,
         "the prompt has {} image tokens (id {}) instead of one: the model's chat template does not place "
         "the image, or "
         "the instruction contains the image token",
         places, config.image_token_id);
  }
  const auto place = std::find(ids.begin(), ids.end(), config.image_token_id);
  ids.insert(place, static_cast<std::size_t>(image_tokens - 1), config.image_token_id);
  return ids;
}

}  // namespace quire

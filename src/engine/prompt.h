// From an instruction and an image's size to the prompt's token ids.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quire {

// One user message of [image, instruction] through the model's chat template, the template's one image token
// widened to `image_tokens` of them. An empty instruction leaves the image alone. Throws Error{unsupported}
// when the template does not place the image exactly once, Error{invalid_input} for a token that the model
// does not have.
std::vector<TokenId> build_prompt(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                  const ModelConfig& config, const std::string& instruction,
                                  bool enable_thinking, int image_tokens);

}  // namespace quire

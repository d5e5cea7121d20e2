#include "measure/target.h"

#include <algorithm>

#include "core/error.h"
#include "engine/prompt.h"

namespace quire {

Target::Target(const std::filesystem::path& model, const Backend& where, int thread_count)
    : backend(where),
      config(ModelConfig::from_directory(model)),
      preprocess_config(PreprocessConfig::from_directory(model)),
      tokenizer(Tokenizer::from_file(model / "tokenizer.json")),
      chat_template(ChatTemplate::from_directory(model)),
      threads(thread_count),
      stream(backend, &threads),
      weights(model, config, backend, stream),
      vision_(config.vision, weights.vision, backend, Format::bf16) {}

void Target::show(const ImageView& page) {
  const Patches patches = preprocess(page, preprocess_config);
  grid_ = {patches.grid_height, patches.grid_width};
  page_ = vision_.encode(stream, patches.rows, patches.grid_height, patches.grid_width);
}

std::vector<TokenId> Target::prompt_ids(const PromptSetup& prompt, int image_tokens) const {
  return build_prompt(chat_template, tokenizer, config, prompt.instruction, prompt.enable_thinking,
                      image_tokens);
}

Recording Target::read(const PromptSetup& prompt, const std::vector<int>& taps, int most) {
  Recording r;
  r.prompt = prompt, r.taps = taps;
  r.tokens = prompt_ids(prompt, static_cast<int>(page_.rows));
  r.prompt_tokens = r.tokens.size();
  r.positions =
      mrope_positions(r.tokens, config.image_token_id, {&grid_, 1}, config.vision.spatial_merge_size);
  const std::int64_t context = config.text.max_position_embeddings;
  const std::int64_t room = std::min(context, std::ssize(r.tokens) + most);
  if (room <= std::ssize(r.tokens))
    fail(ErrorCode::limit_exceeded, "the prompt takes {} tokens, {} of them for the page; the model holds {}",
         r.tokens.size(), page_.rows, context);
  Decoder decoder(config.text, weights.text, backend, stream, Format::bf16, {}, {.taps = taps});
  decoder.reserve(room, room);
  constexpr int kSlot = 0;
  decoder.open(kSlot, room, {});
  const auto remember = [&] {
    const Rows rows = decoder.features();
    const std::size_t before = r.features.size();
    const auto bytes = static_cast<std::size_t>(rows.rows * rows.cols * size_of(rows.format));
    r.features.resize(before + bytes);
    backend.download(stream, r.features.data() + before, rows.data, bytes);
  };
  const std::vector<TokenId> ids = r.tokens;
  const Decoder::Prompt asked{ids, r.positions, config.image_token_id, page_};
  for (std::size_t begin = 0; begin < ids.size();) {
    begin = decoder.prefill_chunk(kSlot, asked, begin);
    remember();
  }
  while (true) {
    r.tokens.push_back(decoder.take().rows.front().token);
    const bool stop =
        std::ranges::find(config.stop_token_ids, r.tokens.back()) != config.stop_token_ids.end();
    if (stop || std::ssize(r.tokens) == room) return r;
    decoder.step({&kSlot, 1});
    remember();
  }
}

}  // namespace quire

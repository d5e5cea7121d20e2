// tokenizer.json, a zero byte, and text for the tokenizer that it describes: loading, encoding, decoding.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "quire/quire.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/unicode/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t json_end = std::min(input.find('\0'), input.size());
  const std::string_view text = input.substr(std::min(json_end + 1, input.size()));
  try {
    const quire::Tokenizer tokenizer = quire::Tokenizer::from_json(input.substr(0, json_end), "fuzz");
    const std::vector<quire::TokenId> ids = tokenizer.encode(text);
    const std::string decoded = quire::replace_invalid_utf8(tokenizer.decode(ids, true));

    quire::Detokenizer detokenizer(tokenizer, true);
    std::string streamed;
    for (quire::TokenId id : ids) streamed += detokenizer.push(id);
    if (streamed + detokenizer.finish() != decoded) std::abort();
    if (tokenizer.encode(quire::replace_invalid_utf8(text)) != ids) std::abort();
  } catch (const quire::Error&) {
  }
  return 0;
}

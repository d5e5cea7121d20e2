// A chat template, a zero byte, and its variables as JSON (a conversation when there are none): parsing,
// rendering.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "quire/quire.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view kConversation =
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "image"},
          {"type": "text", "text": "é 🙂"}]}, {"role": "assistant", "content": "<think>\nx\n</think>\ny",
          "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, null, true]}}}]}],
          "add_generation_prompt": true, "n": 3, "a": [3, 1, 2]})";
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), input.size());
  try {
    const quire::ChatTemplate chat(input.substr(0, end));
    chat.render_json(end < input.size() ? input.substr(end + 1) : kConversation);
  } catch (const quire::Error&) {
  }
  return 0;
}

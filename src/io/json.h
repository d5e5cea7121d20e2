// Reading JSON from untrusted files. Include only where JSON is read or written: the library compiles slowly.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace quire {

using Json = nlohmann::ordered_json;

// Parses text. Depth is limited to 128, so that no input can exhaust the stack.
// Keys keep their order; a key that occurs twice in one object is refused.
// Throws Error{invalid_input} naming `what` (a file name, say), the byte offset and the reason.
Json parse_json(std::string_view text, std::string_view what);

// Reads and parses a file. Throws Error{not_found} or {io} as well; {limit_exceeded} above `max_bytes`.
Json read_json(const std::filesystem::path& path, std::size_t max_bytes = std::size_t{256} << 20);

}  // namespace quire

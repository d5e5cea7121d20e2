// Any bytes as a safetensors file: an Error, or tensors that lie inside the bytes.
#include <cstdint>
#include <cstdlib>

#include "core/error.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  try {
    for (const auto& [name, tensor] : quire::parse_safetensors(file, "input")) {
      const auto bytes = static_cast<std::size_t>(tensor.elements()) * quire::size_of(tensor.dtype);
      if (tensor.data < file.data() || tensor.data + bytes > file.data() + size) std::abort();
    }
  } catch (const quire::Error&) {
  }
  return 0;
}

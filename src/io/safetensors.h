// The safetensors format: u64 little-endian header length, a JSON header
// {name: {dtype, shape, data_offsets: [begin, end]}}, then the data.
// https://github.com/huggingface/safetensors
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "io/file.h"

namespace quire {

// The tensors of one header. Every rule of the format is checked: header length against the file and 100 MB,
// dtype known, offsets inside the data, end - begin equal to shape x dtype, ranges that do not overlap.
// Tensors of a dtype that Quire does not know are reported by name. Throws Error{invalid_input} naming
// `what`. `file` must outlive the result: the tensors point into it.
std::map<std::string, Tensor> parse_safetensors(std::span<const std::byte> file, std::string_view what);

// All tensors of a Hugging Face model directory, memory-mapped: the shards that model.safetensors.index.json
// names, else model.safetensors, else the one *.safetensors file there is. A missing shard, a tensor that the
// index promises and no shard has, or a name in two shards is an Error that says which.
class Checkpoint {
 public:
  explicit Checkpoint(const std::filesystem::path& directory);

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  std::size_t bytes() const;  // of all mapped files

 private:
  std::vector<MappedFile> files_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace quire

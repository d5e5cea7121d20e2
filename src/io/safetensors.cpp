#include "io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/error.h"
#include "io/json.h"

namespace quire {
namespace {

constexpr std::uint64_t kMaxHeader = 100'000'000;  // the format's own limit

std::optional<DType> dtype_of(std::string_view name) {
  for (DType t : {DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8})
    if (name == to_string(t)) return t;
  return std::nullopt;
}

struct Range {
  std::uint64_t begin = 0, end = 0;  // bytes, from the end of the header
};

DType read_dtype(const Json& entry, std::string_view name, std::string_view what) {
  const auto it = entry.find("dtype");
  if (it == entry.end() || !it->is_string())
    fail(ErrorCode::invalid_input, "{}: tensor {} has no dtype", what, name);
  const auto dtype = dtype_of(it->get_ref<const std::string&>());
  if (!dtype)
    fail(ErrorCode::invalid_input, "{}: tensor {} has dtype {}; Quire reads F32, BF16, F16, I64, I32 and U8",
         what, name, it->get_ref<const std::string&>());
  return *dtype;
}

std::vector<std::int64_t> read_shape(const Json& entry, std::string_view name, std::string_view what) {
  const auto it = entry.find("shape");
  if (it == entry.end() || !it->is_array())
    fail(ErrorCode::invalid_input, "{}: tensor {} has no shape", what, name);
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;  // in the order of Tensor::elements(), so that it cannot overflow later
  for (const Json& side : *it) {
    if (!side.is_number_unsigned() || side.get<std::uint64_t>() > INT64_MAX)
      fail(ErrorCode::invalid_input, "{}: tensor {} has a side that is not a count", what, name);
    shape.push_back(side.get<std::int64_t>());
    if (__builtin_mul_overflow(elements, shape.back(), &elements))
      fail(ErrorCode::invalid_input, "{}: tensor {} has more elements than any file can hold: {}", what, name,
           shape_string(shape));
  }
  return shape;
}

Range read_offsets(const Json& entry, std::string_view name, std::uint64_t data_size, std::string_view what) {
  const auto it = entry.find("data_offsets");
  if (it == entry.end() || !it->is_array() || it->size() != 2 || !(*it)[0].is_number_unsigned() ||
      !(*it)[1].is_number_unsigned())
    fail(ErrorCode::invalid_input, "{}: tensor {} has no data_offsets [begin, end]", what, name);
  const Range range{(*it)[0].get<std::uint64_t>(), (*it)[1].get<std::uint64_t>()};
  if (range.begin > range.end || range.end > data_size)
    fail(ErrorCode::invalid_input,
         "{}: tensor {} lies at bytes {} to {} of {} bytes of data; the file is cut short or damaged", what,
         name, range.begin, range.end, data_size);
  return range;
}

// The JSON header; `data` receives what follows it.
Json read_header(std::span<const std::byte> file, std::span<const std::byte>& data, std::string_view what) {
  std::uint64_t length = 0;
  if (file.size() < sizeof(length))
    fail(ErrorCode::invalid_input, "{}: {} bytes are too few for a safetensors file", what, file.size());
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > kMaxHeader || length > file.size() - sizeof(length))
    fail(ErrorCode::invalid_input,
         "{}: not a safetensors file, or cut short: its header should have {} bytes, the file has {}", what,
         length, file.size());
  const char* text = reinterpret_cast<const char*>(file.data()) + sizeof(length);
  data = file.subspan(sizeof(length) + length);
  Json header = parse_json({text, static_cast<std::size_t>(length)}, what);
  if (!header.is_object())
    fail(ErrorCode::invalid_input, "{}: the header is not a JSON object of tensors", what);
  return header;
}

void check_overlap(std::vector<std::pair<Range, std::string_view>>& ranges, std::string_view what) {
  std::erase_if(ranges, [](const auto& r) { return r.first.begin == r.first.end; });
  std::ranges::sort(ranges, {}, [](const auto& r) { return r.first.begin; });
  for (std::size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first.begin < ranges[i - 1].first.end)
      fail(ErrorCode::invalid_input, "{}: tensors {} and {} overlap", what, ranges[i - 1].second,
           ranges[i].second);
}

}  // namespace

std::map<std::string, Tensor> parse_safetensors(std::span<const std::byte> file, std::string_view what) {
  std::span<const std::byte> data;
  const Json header = read_header(file, data, what);
  std::map<std::string, Tensor> tensors;
  std::vector<std::pair<Range, std::string_view>> ranges;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    if (!entry.is_object())
      fail(ErrorCode::invalid_input, "{}: the header's entry {} is not an object", what, name);
    Tensor tensor;
    tensor.dtype = read_dtype(entry, name, what);
    tensor.shape = read_shape(entry, name, what);
    const Range range = read_offsets(entry, name, data.size(), what);
    tensor.data = data.data() + range.begin;
    const auto elements = static_cast<std::uint64_t>(tensor.elements());
    const auto item = static_cast<std::uint64_t>(size_of(tensor.dtype));
    if ((range.end - range.begin) / item != elements || (range.end - range.begin) % item != 0)
      fail(ErrorCode::invalid_input, "{}: tensor {} {} {} has {} bytes of data", what, name,
           to_string(tensor.dtype), shape_string(tensor.shape), range.end - range.begin);
    const auto place = tensors.emplace(name, std::move(tensor)).first;
    ranges.emplace_back(range, place->first);
  }
  check_overlap(ranges, what);
  return tensors;
}

namespace {

// The `weight_map` of an index, {tensor: file}. File names come from the outside: nothing but a plain name in
// this folder is followed.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  const Json index = read_json(path);
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object())
    fail(ErrorCode::invalid_input, "{}: no object \"weight_map\" of tensor and file names", path.string());
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    const std::filesystem::path name = file.is_string() ? file.get<std::string>() : std::string();
    if (name.empty() || name != name.filename() || name.extension() != ".safetensors" ||
        name.native().find('\0') != std::string::npos)
      fail(ErrorCode::invalid_input,
           "{}: tensor {} is said to be in {:.100}; expected the name of a .safetensors file", path.string(),
           tensor, file.dump());
    files[tensor] = name.string();
  }
  return files;
}

// The one *.safetensors file of a folder without an index.
std::filesystem::path single_file(const std::filesystem::path& directory) {
  if (const auto usual = directory / "model.safetensors"; std::filesystem::exists(usual)) return usual;
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error))
    if (entry.path().extension() == ".safetensors") found.push_back(entry.path());
  if (error) fail(ErrorCode::not_found, "{}: not a model directory: {}", directory.string(), error.message());
  if (found.empty())
    fail(ErrorCode::not_found, "{}: no *.safetensors file; expected a Hugging Face model directory",
         directory.string());
  if (found.size() > 1)
    fail(ErrorCode::not_found,
         "{}: {} *.safetensors files, but no model.safetensors.index.json that lists them",
         directory.string(), found.size());
  return found.front();
}

}  // namespace

Checkpoint::Checkpoint(const std::filesystem::path& directory) {
  const auto index_path = directory / "model.safetensors.index.json";
  std::map<std::string, std::string> index;
  std::vector<std::filesystem::path> shards;
  if (std::filesystem::exists(index_path)) {
    index = read_index(index_path);
    for (const auto& [tensor, file] : index) shards.push_back(directory / file);
    std::ranges::sort(shards);
    shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
    for (const auto& shard : shards)
      if (!std::filesystem::exists(shard))
        fail(ErrorCode::not_found, "{}: missing; {} lists it", shard.string(),
             index_path.filename().string());
  } else {
    shards.push_back(single_file(directory));
  }
  std::map<std::string, std::string> home;
  for (const auto& shard : shards) {
    files_.emplace_back(shard);
    for (auto& [name, tensor] : parse_safetensors(files_.back().bytes(), shard.string())) {
      const auto [place, fresh] = home.emplace(name, shard.filename().string());
      if (!fresh)
        fail(ErrorCode::invalid_input, "{}: tensor {} is in {} and in {}", directory.string(), name,
             place->second, shard.filename().string());
      tensors_.emplace(name, std::move(tensor));
    }
  }
  for (const auto& [name, file] : index)
    if (!tensors_.contains(name))
      fail(ErrorCode::invalid_input, "{}: tensor {} is listed in {}, but is not in it", index_path.string(),
           name, file);
}

std::size_t Checkpoint::bytes() const {
  std::size_t total = 0;
  for (const MappedFile& file : files_) total += file.bytes().size();
  return total;
}

}  // namespace quire

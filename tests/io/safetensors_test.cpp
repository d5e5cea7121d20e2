#include "io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model_directory.h"

namespace quire {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string parse_error(const std::string& file) {
  return error_of([&] { parse_safetensors(std::as_bytes(std::span(file)), "x.safetensors"); });
}

// The error for a file of this header and `data` bytes after it.
std::string header_error(std::string_view header, std::size_t data = 8) {
  return parse_error(safetensors_prefix(header) + std::string(data, '\0'));
}

TEST(Safetensors, ReadsEveryDtypeWhereItLies) {
  const std::string file = safetensors_prefix(
                               R"({"__metadata__":{"format":"pt"},
      "a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},
      "b":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]},
      "c":{"dtype":"F16","shape":[],"data_offsets":[12,14]},
      "d":{"dtype":"U8","shape":[3],"data_offsets":[14,17]},
      "e":{"dtype":"I64","shape":[1],"data_offsets":[17,25]},
      "f":{"dtype":"I32","shape":[0,5],"data_offsets":[25,25]}})") +
                           "0123456789abcdefghijklmno";
  const auto tensors = parse_safetensors(std::as_bytes(std::span(file)), "x");
  ASSERT_EQ(tensors.size(), 6u);
  const auto text = [&](const char* name, std::size_t bytes) {
    return std::string(reinterpret_cast<const char*>(tensors.at(name).data), bytes);
  };
  EXPECT_EQ(text("a", 8), "01234567");
  EXPECT_EQ(text("c", 2), "cd");
  EXPECT_EQ(text("e", 8), "hijklmno");
  EXPECT_EQ(tensors.at("a").dtype, DType::f32);
  EXPECT_EQ(tensors.at("b").dtype, DType::bf16);
  EXPECT_EQ(tensors.at("c").dtype, DType::f16);
  EXPECT_EQ(tensors.at("d").dtype, DType::u8);
  EXPECT_EQ(tensors.at("a").shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(tensors.at("c").elements(), 1);
  EXPECT_EQ(tensors.at("f").elements(), 0);
}

TEST(Safetensors, RefusesFilesThatAreNone) {
  EXPECT_THAT(parse_error(""), HasSubstr("0 bytes are too few"));
  EXPECT_THAT(parse_error("abc"), HasSubstr("x.safetensors: 3 bytes"));
  EXPECT_THAT(parse_error(std::string(8, '\xff')), HasSubstr("18446744073709551615 bytes"));
  EXPECT_THAT(parse_error(std::string("\x10\0\0\0\0\0\0\0{}", 10)), HasSubstr("should have 16 bytes"));
  EXPECT_THAT(header_error("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(header_error("{"), StartsWith("invalid_input: x.safetensors: not valid JSON"));
}

TEST(Safetensors, NamesTheTensorThatIsWrong) {
  const auto entry = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return header_error(
        fmt::format(R"({{"w":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape, offsets));
  };
  EXPECT_EQ(entry(R"("F32")", "[2]", "[0,8]"), "");
  EXPECT_THAT(entry(R"("F8_E4M3")", "[2]", "[0,2]"),
              HasSubstr("tensor w has dtype F8_E4M3; Quire reads F32"));
  EXPECT_THAT(entry("5", "[2]", "[0,8]"), HasSubstr("tensor w has no dtype"));
  EXPECT_THAT(entry(R"("F32")", "2", "[0,8]"), HasSubstr("tensor w has no shape"));
  EXPECT_THAT(entry(R"("F32")", "[-2]", "[0,8]"), HasSubstr("not a count"));
  EXPECT_THAT(entry(R"("F32")", "[2.0]", "[0,8]"), HasSubstr("not a count"));
  EXPECT_THAT(entry(R"("F32")", "[18446744073709551615]", "[0,8]"), HasSubstr("not a count"));
  EXPECT_THAT(entry(R"("F32")", "[4294967296,4294967296,0]", "[0,0]"), HasSubstr("more elements"));
  EXPECT_THAT(entry(R"("F32")", "[2]", "[0]"), HasSubstr("no data_offsets"));
  EXPECT_THAT(entry(R"("F32")", "[2]", "[0,-8]"), HasSubstr("no data_offsets"));
  EXPECT_THAT(entry(R"("F32")", "[2]", "[4,12]"), HasSubstr("bytes 4 to 12 of 8 bytes of data"));
  EXPECT_THAT(entry(R"("F32")", "[2]", "[8,0]"), HasSubstr("bytes 8 to 0"));
  EXPECT_THAT(entry(R"("F32")", "[3]", "[0,8]"), HasSubstr("tensor w F32 [3] has 8 bytes of data"));
  EXPECT_THAT(entry(R"("F32")", "[1]", "[0,7]"), HasSubstr("tensor w F32 [1] has 7 bytes of data"));
  EXPECT_THAT(header_error(R"({"w":3})"), HasSubstr("entry w is not an object"));
}

TEST(Safetensors, RefusesOverlap) {
  const auto error = header_error(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[2,6]},
      "b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"c":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})");
  EXPECT_THAT(error, HasSubstr("tensors b and a overlap"));
}

class CheckpointTest : public testing::Test {
 protected:
  std::string error() const {
    return error_of([&] { Checkpoint checkpoint(folder.path()); });
  }
  void write(const char* file, const std::vector<StoredTensor>& tensors) const {
    write_safetensors(folder.path() / file, tensors);
  }
  void write_index(std::string_view map) const {
    folder.write("model.safetensors.index.json", fmt::format(R"({{"weight_map":{}}})", map));
  }
  const StoredTensor a{"a", "F32", {2}, {}}, b{"b", "BF16", {3}, {}};
  TemporaryDirectory folder;
};

TEST_F(CheckpointTest, TakesTheOneFileThereIs) {
  write("weights.safetensors", {a, b});
  const Checkpoint checkpoint(folder.path());
  EXPECT_EQ(checkpoint.tensors().size(), 2u);
  EXPECT_EQ(checkpoint.bytes(), std::filesystem::file_size(folder.path() / "weights.safetensors"));
  write("other.safetensors", {a});
  EXPECT_THAT(error(), HasSubstr("2 *.safetensors files, but no model.safetensors.index.json"));
  write("model.safetensors", {a});  // the usual name is preferred
  EXPECT_EQ(Checkpoint(folder.path()).tensors().size(), 1u);
}

TEST_F(CheckpointTest, FollowsTheIndex) {
  write("s1.safetensors", {a});
  write("s2.safetensors", {b});
  write("unrelated.safetensors", {a});
  write_index(R"({"a":"s1.safetensors","b":"s2.safetensors"})");
  EXPECT_EQ(Checkpoint(folder.path()).tensors().size(), 2u);
}

TEST_F(CheckpointTest, SaysWhatIsMissing) {
  EXPECT_THAT(error(), HasSubstr("no *.safetensors file; expected a Hugging Face model directory"));
  EXPECT_THAT(error_of([&] { Checkpoint c(folder.path() / "none"); }), StartsWith("not_found"));
  write("s1.safetensors", {a});
  write_index(R"({"a":"s1.safetensors","b":"s2.safetensors"})");
  EXPECT_THAT(error(), HasSubstr("s2.safetensors: missing; model.safetensors.index.json lists it"));
  write_index(R"({"a":"s1.safetensors","b":"s1.safetensors"})");
  EXPECT_THAT(error(), HasSubstr("tensor b is listed in s1.safetensors, but is not in it"));
}

TEST_F(CheckpointTest, RefusesANameInTwoShards) {
  write("s1.safetensors", {a, b});
  write("s2.safetensors", {b});
  write_index(R"({"a":"s1.safetensors","b":"s2.safetensors"})");
  EXPECT_THAT(error(), HasSubstr("tensor b is in s1.safetensors and in s2.safetensors"));
}

TEST_F(CheckpointTest, FollowsOnlyPlainFileNames) {
  for (const char* name : {R"("../s1.safetensors")", R"("/etc/passwd")",
                           R"("s1.safetensors\u0000.safetensors")", R"("config.json")", R"("")", "7"}) {
    write_index(fmt::format(R"({{"a":{}}})", name));
    EXPECT_THAT(error(), HasSubstr("expected the name of a .safetensors file")) << name;
  }
  write_index("[]");
  EXPECT_THAT(error(), HasSubstr("no object \"weight_map\""));
}

}  // namespace
}  // namespace quire

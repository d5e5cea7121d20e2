// The tokenizer against Hugging Face tokenizers, by fixture.
#include <gtest/gtest.h>

#include "text/fixture.h"
#include "text/tokenizer.h"
#include "text/unicode/unicode.h"

namespace quire {
namespace {

class TokenizerFixture : public testing::TestWithParam<std::filesystem::path> {
 protected:
  Json fixture_ = read_json(GetParam());
  Tokenizer tokenizer_ = Tokenizer::from_file(fixture_.at("tokenizer").get<std::string>());
};

TEST_P(TokenizerFixture, EncodesAsHuggingFace) {
  ASSERT_FALSE(fixture_.at("encode").empty());
  for (const Json& item : fixture_.at("encode")) {
    const std::string text = bytes_of(item.at(0));
    ASSERT_EQ(tokenizer_.encode(text), item.at(1).get<std::vector<TokenId>>()) << item.at(0);
  }
}

TEST_P(TokenizerFixture, DecodesAsHuggingFace) {
  ASSERT_FALSE(fixture_.at("decode").empty());
  for (const Json& item : fixture_.at("decode")) {
    const auto ids = item.at(0).get<std::vector<TokenId>>();
    ASSERT_EQ(replace_invalid_utf8(tokenizer_.decode(ids, true)), item.at(1)) << item.at(0);
    ASSERT_EQ(replace_invalid_utf8(tokenizer_.decode(ids)), item.at(2)) << item.at(0);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, TokenizerFixture, testing::ValuesIn(fixtures("tokenizer")),
                         [](const auto& file) { return file.param.stem().string(); });

}  // namespace
}  // namespace quire

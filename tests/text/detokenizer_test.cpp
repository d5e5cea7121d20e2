#include "text/detokenizer.h"

#include <random>

#include <gtest/gtest.h>

#include "text/unicode/unicode.h"

namespace quire {
namespace {

std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool keep_special) {
  Detokenizer detokenizer(tokenizer, keep_special);
  std::string text;
  for (TokenId id : ids) {
    const std::string piece = detokenizer.push(id);
    EXPECT_TRUE(is_valid_utf8(piece));
    text += piece;
  }
  return text + detokenizer.finish();
}

TEST(Detokenizer, StreamsWhatDecodeGives) {
  const Tokenizer tokenizer = Tokenizer::from_file("models/quire-mini/tokenizer.json");
  std::mt19937 random(1);
  std::uniform_int_distribution<int> any(-2, tokenizer.vocab_size() + 1), byte(0, 255), length(0, 40),
      kind(0, 3);
  for (int i = 0; i < 5000; ++i) {
    std::vector<TokenId> ids(static_cast<std::size_t>(length(random)));
    // Single bytes are the first ids: many of them make broken and unfinished characters.
    for (TokenId& id : ids) id = kind(random) == 0 ? any(random) : byte(random);
    for (bool keep_special : {false, true})
      ASSERT_EQ(streamed(tokenizer, ids, keep_special),
                replace_invalid_utf8(tokenizer.decode(ids, keep_special)));
  }
}

TEST(Detokenizer, GivesEachCharacterWithItsLastByte) {
  const Tokenizer tokenizer = Tokenizer::from_file("models/quire-mini/tokenizer.json");
  const auto byte = [&](const char* b) { return tokenizer.id_of(std::string_view(b, 1)).value(); };
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(byte("\xf0")), "");
  EXPECT_EQ(detokenizer.push(byte("\x9f")), "");
  EXPECT_EQ(detokenizer.push(byte("\x99")), "");
  EXPECT_EQ(detokenizer.push(tokenizer.id_of("<|im_end|>").value()), "");  // special: passed over
  EXPECT_EQ(detokenizer.push(byte("\x82")), "🙂");
  EXPECT_EQ(detokenizer.push(byte("\xc3")), "");
  EXPECT_EQ(detokenizer.push(byte("A")), "\ufffdA");
  EXPECT_EQ(detokenizer.push(byte("\xe2")), "");
  EXPECT_EQ(detokenizer.finish(), "\ufffd");
  EXPECT_EQ(detokenizer.finish(), "");
}

}  // namespace
}  // namespace quire

#include "text/tokenizer.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/json.h"
#include "quire/quire.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;

constexpr const char* kQwen3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// A tokenizer of the 256 bytes, whose ids are their values, and a few merges and added tokens.
Json small_tokenizer() {
  Json vocab = Json::object();
  int others = 0;
  const auto written = [](int code) {
    std::string text;
    if (code < 0x80)
      text += static_cast<char>(code);
    else
      text.append({static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))});
    return text;
  };
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    vocab[written(printable ? b : 0x100 + others++)] = b;
  }
  vocab["he"] = 256;
  vocab["ll"] = 257;
  vocab["hell"] = 258;
  vocab["Ġhe"] = 259;
  const auto added = [](int id, const char* text, bool special) {
    return Json{{"id", id}, {"content", text}, {"special", special}, {"normalized", false}};
  };
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", kQwen3Pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return Json{{"added_tokens", Json::array({added(300, "<s>", true), added(301, "<s>x", false)})},
              {"normalizer", {{"type", "NFC"}}},
              {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}}},
              {"decoder", byte_level},
              {"model",
               {{"type", "BPE"},
                {"vocab", vocab},
                {"merges", Json::array({"h e", Json::array({"l", "l"}), "he ll", "Ġ he"})}}}};
}

Tokenizer make(const Json& json) {
  return Tokenizer::from_json(json.dump(), "test.json");
}

// Expects an Error of `code` whose message names the file and contains `part`.
void expect_refused(const Json& json, ErrorCode code, const std::string& part) {
  try {
    make(json);
    ADD_FAILURE() << "accepted, expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("test.json"));
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(Tokenizer, MergesByRankAndWritesAddedTokens) {
  const Tokenizer tokenizer = make(small_tokenizer());
  EXPECT_THAT(tokenizer.encode("hello hello"), ElementsAre(258, 'o', 32, 258, 'o'));
  EXPECT_THAT(tokenizer.encode("<s>xhe<s>"), ElementsAre(301, 256, 300));  // the longest added token
  EXPECT_THAT(tokenizer.encode(""), ElementsAre());
  EXPECT_EQ(tokenizer.vocab_size(), 302);
}

TEST(Tokenizer, NormalizesBetweenAddedTokens) {
  const Tokenizer tokenizer = make(small_tokenizer());
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("e\u0301")), "\u00e9");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("e<s>\u0301"), true), "e<s>\u0301");
}

TEST(Tokenizer, ReadsInvalidBytesAsReplacementCharacters) {
  const Tokenizer tokenizer = make(small_tokenizer());
  EXPECT_EQ(tokenizer.encode("a\xe2\x82z\xff\xed\xa0\x80"),
            tokenizer.encode("a\ufffdz\ufffd\ufffd\ufffd\ufffd"));
}

TEST(Tokenizer, DecodesByBytes) {
  const Tokenizer tokenizer = make(small_tokenizer());
  EXPECT_EQ(tokenizer.decode({258, 'o', 300, 301}), "hello<s>x");
  EXPECT_EQ(tokenizer.decode({258, 'o', 300, 301}, true), "hello<s><s>x");
  EXPECT_EQ(tokenizer.decode({-1, 302, 270, 1 << 30, 0xe2}), "\xe2");
  EXPECT_EQ(tokenizer.token_bytes(259), " he");
  EXPECT_EQ(tokenizer.token_bytes(-5), "");
  EXPECT_TRUE(tokenizer.is_special(300));
  EXPECT_FALSE(tokenizer.is_special(301) || tokenizer.is_special(-1) || tokenizer.is_special(302));
}

TEST(Tokenizer, FindsTokens) {
  const Tokenizer tokenizer = make(small_tokenizer());
  EXPECT_EQ(tokenizer.id_of("<s>"), 300);
  EXPECT_EQ(tokenizer.id_of(" he"), 259);
  EXPECT_EQ(tokenizer.id_of("hello"), std::nullopt);
}

TEST(Tokenizer, MatchesNormalizedAddedTokensAfterNormalization) {
  Json json = small_tokenizer();
  json["added_tokens"].push_back({{"id", 302}, {"content", "<\u00e9>"}, {"normalized", true}});
  EXPECT_THAT(make(json).encode("<e\u0301>"), ElementsAre(302));
}

TEST(Tokenizer, RefusesWhatItDoesNotDo) {
  const auto refused = [](const char* pointer, const Json& value, const std::string& part) {
    Json json = small_tokenizer();
    json[Json::json_pointer(pointer)] = value;
    expect_refused(json, ErrorCode::unsupported, part);
  };
  refused("/normalizer/type", "NFKC", "normalizer \"NFKC\"");
  refused("/pre_tokenizer", nullptr, "pre_tokenizer null");
  refused("/pre_tokenizer/type", "Whitespace", "Whitespace");
  refused("/pre_tokenizer/pretokenizers/0/type", "Digits", "Digits");
  refused("/pre_tokenizer/pretokenizers/1/type", "Metaspace", "Metaspace");
  refused("/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\w+", "\\w+");
  refused("/pre_tokenizer/pretokenizers/0/pattern", {{"String", " "}}, "Regex");
  refused("/pre_tokenizer/pretokenizers/0/behavior", "Removed", "Isolated");
  refused("/pre_tokenizer/pretokenizers/0/invert", true, "Isolated");
  refused("/pre_tokenizer/pretokenizers/1/use_regex", true, "use_regex");
  refused("/pre_tokenizer/pretokenizers/1/add_prefix_space", true, "add_prefix_space");
  refused("/model/type", "Unigram", "Unigram");
  refused("/model/dropout", 0.1, "dropout");
  refused("/model/unk_token", "<unk>", "unk_token");
  refused("/model/continuing_subword_prefix", "##", "continuing_subword_prefix");
  refused("/model/end_of_word_suffix", "</w>", "end_of_word_suffix");
  refused("/model/byte_fallback", true, "byte_fallback");
  refused("/model/ignore_merges", true, "ignore_merges");
  refused("/post_processor", {{"type", "TemplateProcessing"}}, "TemplateProcessing");
  refused("/decoder", nullptr, "decoder");
  refused("/added_tokens/0/lstrip", true, "\"<s>\": lstrip");
  refused("/added_tokens/0/rstrip", true, "rstrip");
  refused("/added_tokens/0/single_word", true, "single_word");
}

TEST(Tokenizer, RefusesBrokenFiles) {
  const auto refused = [](const char* pointer, const Json& value, const std::string& part) {
    Json json = small_tokenizer();
    json[Json::json_pointer(pointer)] = value;
    expect_refused(json, ErrorCode::invalid_input, part);
  };
  refused("/model/vocab", Json::array(), "model.vocab");
  refused("/model/vocab/he", 2.5, "the id of \"he\"");
  refused("/model/vocab/he", -1, "the id of \"he\"");
  refused("/model/vocab/he", 1 << 30, "the id of \"he\"");
  refused("/model/vocab/he", 257, "two tokens have id 257");
  refused("/model/merges", "h e", "model.merges must be a list");
  refused("/model/merges/1", "h l", "model.merges[1]: \"hl\"");
  refused("/model/merges/1", "hl", "model.merges[1]: \"hl\"");
  refused("/model/merges/1", 5, "model.merges[1]");
  refused("/added_tokens/0/content", "", "has no text");
  refused("/added_tokens/0/id", 256, "another token's");
  refused("/added_tokens/0/content", "hell", "but 258 in the vocabulary");
  refused("/added_tokens", "x", "added_tokens");
  refused("/added_tokens/0/special", 1, "special");
  refused("/normalizer/type", 5, "\"type\"");
  refused("/model", 5, "object");
  Json json = small_tokenizer();
  json["model"]["vocab"].erase("Ā");
  expect_refused(json, ErrorCode::invalid_input, "byte 0x00");
  EXPECT_THROW(Tokenizer::from_json("{", "test.json"), Error);
  EXPECT_THROW(Tokenizer::from_file("no/such/tokenizer.json"), Error);
}

// Every split of equal text into words must not depend on the cache, on length or on who asks at the same
// time.
TEST(Tokenizer, GivesTheSameIdsFromSeveralThreads) {
  const Tokenizer tokenizer = Tokenizer::from_file("models/quire-mini/tokenizer.json");
  std::vector<std::string> texts;
  for (int i = 0; i < 3000; ++i)
    texts.push_back("word" + std::string(static_cast<std::size_t>(i % 90), static_cast<char>('a' + i % 26)) +
                    " Zeile");
  std::vector<Ids> expected;
  const Tokenizer fresh = Tokenizer::from_file("models/quire-mini/tokenizer.json");
  for (const std::string& text : texts) expected.push_back(fresh.encode(text));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < texts.size(); ++i) wrong[t] += tokenizer.encode(texts[i]) != expected[i];
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ElementsAre(0, 0, 0, 0));
}

// The heap of long words against the scan of short ones: a run of letters is one word, in which no merge of
// these tokens crosses a "-".
TEST(Tokenizer, MergesLongWordsAsShortOnes) {
  const Tokenizer tokenizer = make(small_tokenizer());
  Ids expected;
  std::string word;
  for (int i = 0; i < 500; ++i) {
    const std::string part = std::string(static_cast<std::size_t>(i % 3), 'l') + "helloz";
    const Ids ids = tokenizer.encode(part);
    expected.insert(expected.end(), ids.begin(), ids.end());
    word += part;
  }
  EXPECT_EQ(tokenizer.encode(word), expected);
}

TEST(Tokenizer, TakesAMegabyteInOneWord) {
  const Tokenizer tokenizer = Tokenizer::from_file("models/quire-mini/tokenizer.json");
  const std::string word(1 << 20, 'e'), marks = "e" + [] {
    std::string all;
    for (int i = 0; i < 100'000; ++i) all += i % 2 ? "\u0301" : "\u0323";
    return all;
  }();
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(word)), word);
  EXPECT_EQ(make(small_tokenizer()).decode(make(small_tokenizer()).encode(marks)).substr(0, 3), "\u1eb9");
}

}  // namespace
}  // namespace quire

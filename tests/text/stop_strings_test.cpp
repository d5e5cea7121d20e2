#include "text/stop_strings.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace quire {
namespace {

using testing::HasSubstr;

struct Streamed {
  std::string text;
  bool found = false;
  std::size_t held = 0;  // most bytes that were held back
};

// `text` in pieces of so many bytes.
Streamed stream(const std::vector<std::string>& strings, const std::string& text, std::size_t size) {
  StopStrings stops(strings);
  Streamed s;
  std::size_t given = 0;
  for (std::size_t at = 0; at < text.size() && !stops.found(); at += size) {
    const std::string piece = text.substr(at, size);
    s.text += stops.push(piece);
    given += piece.size();
    if (!stops.found()) s.held = std::max(s.held, given - s.text.size());
  }
  s.found = stops.found();
  s.text += stops.finish();
  return s;
}

TEST(StopStrings, EndsBeforeTheFirst) {
  for (const std::size_t size : {1u, 2u, 3u, 100u}) {
    const Streamed s = stream({"</page>", "\n\n"}, "one\ntwo</pages</page>three\n\n", size);
    EXPECT_EQ(s.text, "one\ntwo</pages");
    EXPECT_TRUE(s.found);
  }
}

TEST(StopStrings, LetsGoWhatTurnsOutOtherwise) {
  for (const std::size_t size : {1u, 2u, 100u}) {
    const Streamed s = stream({"aab"}, "aaaaac", size);
    EXPECT_EQ(s.text, "aaaaac");
    EXPECT_FALSE(s.found);
    EXPECT_LE(s.held, 2u);
    EXPECT_EQ(stream({"aab"}, "xaaaabx", size).text, "xaa");
  }
}

TEST(StopStrings, TheEndLetsGoABeginning) {
  EXPECT_EQ(stream({"stop"}, "do not sto", 1).text, "do not sto");
}

TEST(StopStrings, TheFirstToBeCompleteCounts) {
  EXPECT_EQ(stream({"late", "soon"}, "a soon b late", 100).text, "a ");
  EXPECT_EQ(stream({"bc", "abcd"}, "xabcd", 100).text, "xa");
  EXPECT_EQ(stream({"c", "abc"}, "xabcd", 100).text, "x");
}

TEST(StopStrings, NoneChangesNothing) {
  const Streamed s = stream({}, "anything", 3);
  EXPECT_EQ(s.text, "anything");
  EXPECT_EQ(s.held, 0u);
}

TEST(StopStrings, AnyPiecesGiveTheSameText) {
  std::mt19937 random(1);
  const auto word = [&](std::size_t longest) {
    std::string s(1 + random() % longest, 'a');
    for (char& c : s) c = static_cast<char>('a' + random() % 2);
    return s;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::vector<std::string> strings = {word(5), word(5)};
    const std::string text = word(24);
    std::size_t end = 0;  // of the shortest beginning that holds one of them
    const auto is_end = [&](const std::string& s) { return text.substr(0, end).ends_with(s); };
    while (end <= text.size() && !is_end(strings[0]) && !is_end(strings[1])) ++end;
    const bool found = end <= text.size();
    const std::size_t length = is_end(strings[0]) && is_end(strings[1])
                                   ? std::max(strings[0].size(), strings[1].size())
                                   : strings[is_end(strings[0]) ? 0 : 1].size();
    for (const std::size_t size : {1u, 3u}) {
      const Streamed s = stream(strings, text, size);
      EXPECT_EQ(s.found, found);
      EXPECT_EQ(s.text, found ? text.substr(0, end - length) : text)
          << strings[0] << ' ' << strings[1] << ' ' << text;
      EXPECT_LT(s.held, std::max(strings[0].size(), strings[1].size()));
    }
  }
}

TEST(StopStrings, RefusesWhatIsNoText) {
  for (const char* bad : {"", "\xff"}) try {
      StopStrings({bad});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_input);
      EXPECT_THAT(error.what(), HasSubstr("stop string"));
    }
}

}  // namespace
}  // namespace quire

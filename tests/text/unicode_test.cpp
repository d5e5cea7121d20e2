#include "text/unicode/unicode.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

// Unicode, section 3.9, "U+FFFD substitution of maximal subparts": tables 3-8 to 3-11.
TEST(Utf8, ReplacesMaximalSubparts) {
  const std::string r = "\ufffd";
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x99"), r);
}

TEST(Utf8, KnowsEveryCharacter) {
  for (char32_t code = 0; code < 0x110000; code += code < 0x3000 ? 1 : 61) {
    if (code >= 0xd800 && code < 0xe000) continue;
    std::string text;
    append_utf8(text, code);
    const Utf8Unit unit = utf8_at(text, 0);
    ASSERT_TRUE(unit.valid && is_valid_utf8(text)) << static_cast<unsigned>(code);
    ASSERT_EQ(unit.code, code);
    ASSERT_EQ(unit.bytes, text.size());
    ASSERT_EQ(valid_utf8_at(text, 0).code, code);
    for (std::size_t n = 1; n < text.size(); ++n) {
      const Utf8Unit cut = utf8_at(std::string_view(text).substr(0, n), 0);
      ASSERT_TRUE(!cut.valid && cut.unfinished && cut.bytes == n) << static_cast<unsigned>(code);
    }
  }
}

TEST(Unicode, ClassifiesBySixteenAndNormalizesByNine) {
  const CharClasses classes;
  EXPECT_EQ(classes[U'a'], kLetter);
  EXPECT_EQ(classes[U'7'], kNumber);
  EXPECT_EQ(classes[0x3000], kSpace);
  EXPECT_EQ(classes[0x301], kMark | kNfcActive);
  EXPECT_EQ(classes[0x897], kMark | kAfterNormalization);  // a mark of Unicode 16
  EXPECT_EQ(classes[0x11de0], kAfterNormalization);        // a digit of Unicode 17: unassigned here
  EXPECT_EQ(classes[0x10ffff], kAfterNormalization);
}

TEST(Nfc, OrdersAndComposes) {
  const CharClasses classes;
  EXPECT_EQ(normalize_nfc("e\u0301 \u1100\u1161\u11a8 \u304b\u3099", classes), "\u00e9 \uac01 \u304c");
  EXPECT_EQ(normalize_nfc("e\u0301\u0323", classes), "\u1eb9\u0301");
  EXPECT_EQ(normalize_nfc("\u212b\u2126\u0344", classes), "\u00c5\u03a9\u0308\u0301");
}

TEST(Nfc, LeavesNewerCharactersAlone) {
  const CharClasses classes;
  // U+0897 has combining class 230 since Unicode 16; U+0323 (220) would pass before it.
  EXPECT_EQ(normalize_nfc("e\u0897\u0323\u0301", classes), "e\u0897\u0323\u0301");
  // U+105D2 U+0307 compose to U+105C9 since Unicode 16.
  EXPECT_EQ(normalize_nfc("\U000105d2\u0307", classes), "\U000105d2\u0307");
}

}  // namespace
}  // namespace quire

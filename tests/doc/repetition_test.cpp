#include "doc/repetition.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

std::string repeated(std::string_view unit, int copies) {
  std::string text;
  for (int i = 0; i < copies; ++i) text += unit;
  return text;
}

bool repeats(const std::string& text) {
  RepetitionDetector detector;
  return detector.push(text);
}

TEST(Repetition, ASentenceThatComesBackForEverIsFound) {
  const std::string sentence =
      "The river was low in the summer of that year. ";  // 46 bytes: 9 copies fill 400
  EXPECT_FALSE(repeats("Once. " + repeated(sentence, 8)));
  EXPECT_TRUE(repeats("Once. " + repeated(sentence, 9)));
}

TEST(Repetition, EightCopiesOfALongUnitAreNeeded) {
  std::string unit;
  for (int i = 0; i < 60; ++i) unit += "w" + std::to_string(i * i) + " ";  // no period of its own
  unit.resize(300);
  EXPECT_FALSE(repeats(repeated(unit, 7)));
  EXPECT_TRUE(repeats(repeated(unit, 8)));
}

TEST(Repetition, TheFirstCopyIsKept) {
  RepetitionDetector detector;
  EXPECT_TRUE(detector.push("# Title\n\n" + repeated("and so on, ", 100)));
  EXPECT_EQ(detector.bytes_to_keep(), std::string("# Title\n\nand so on, ").size());
}

TEST(Repetition, PiecesAndBytesGiveTheSame) {
  const std::string text = "A page. " + repeated("22 88 ", 90);
  RepetitionDetector whole, bytes;
  EXPECT_TRUE(whole.push(text));
  std::size_t pushed = 0;
  while (pushed < text.size() && !bytes.push(text.substr(pushed, 1))) ++pushed;
  EXPECT_LT(pushed, 420U);  // at once when the rule holds, not at the end
  EXPECT_EQ(whole.bytes_to_keep(), bytes.bytes_to_keep());
}

TEST(Repetition, WhatFollowsDoesNotUndoIt) {
  RepetitionDetector detector;
  EXPECT_TRUE(detector.push(repeated("again ", 100)));
  EXPECT_TRUE(detector.push("something else"));
  EXPECT_EQ(detector.bytes_to_keep(), 6U);
}

TEST(Repetition, TheCutNeverSplitsACharacter) {
  for (int shift = 0; shift < 3; ++shift) {
    RepetitionDetector detector;
    const std::string text =
        std::string(static_cast<std::size_t>(shift), 'x') + repeated("\u20ac\u00e9", 120);
    EXPECT_TRUE(detector.push(text));
    const std::size_t end = detector.bytes_to_keep();
    EXPECT_NE(text[end] & 0xC0, 0x80) << end;
  }
}

TEST(Repetition, FormsAndDottedLinesAreLeftAlone) {
  EXPECT_FALSE(repeats(repeated("|  |  |  |  |\n", 200)));
  EXPECT_FALSE(repeats(repeated("| 0.00 | 0.00 |\n", 150)));
  EXPECT_FALSE(repeats(repeated("<tr><td>0</td><td>0</td></tr>\n", 80)));
  EXPECT_FALSE(repeats("Contents " + repeated(" .", 1000)));
  EXPECT_FALSE(repeats(repeated("-", 3000)));
}

TEST(Repetition, EvenTheyEndSomewhere) {
  EXPECT_TRUE(repeats(repeated("|  |  |  |  |\n", 300)));
  EXPECT_TRUE(repeats(repeated(".", 3300)));
}

TEST(Repetition, CountingIsNotRepeating) {
  std::string list;
  for (int i = 1; i < 500; ++i) list += std::to_string(i) + ". The same words in every line\n";
  EXPECT_FALSE(repeats(list));
}

TEST(Repetition, AParagraphTwiceOnAPageIsFine) {
  std::string paragraph;
  for (int i = 0; i < 40; ++i) paragraph += "word" + std::to_string(i) + " ";
  EXPECT_FALSE(repeats(repeated(paragraph + "\n\n", 7)));
}

TEST(Repetition, EmptyTextKeepsNothing) {
  RepetitionDetector detector;
  EXPECT_FALSE(detector.push(""));
  EXPECT_EQ(detector.bytes_to_keep(), 0U);
}

}  // namespace
}  // namespace quire

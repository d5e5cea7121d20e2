#include <gtest/gtest.h>

#include "io/image.h"

namespace quire {
namespace {

using namespace std::string_view_literals;

int orientation(std::string_view bytes) {
  return exif_orientation(std::as_bytes(std::span(bytes)));
}

TEST(Exif, ReadsBothByteOrders) {
  EXPECT_EQ(orientation("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"sv), 6);
  EXPECT_EQ(orientation("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0\0\0\0\0"sv), 8);
}

TEST(Exif, FindsTheTagAmongOthers) {
  EXPECT_EQ(orientation("II*\0\x08\0\0\0\x02\0"
                        "\x0f\x01\x02\0\x04\0\0\0abc\0"
                        "\x12\x01\x03\0\x01\0\0\0\x03\0\0\0"sv),
            3);
}

TEST(Exif, IsUprightWithoutAUsableTag) {
  EXPECT_EQ(orientation(""sv), 1);
  EXPECT_EQ(orientation("II*\0"sv), 1);
  EXPECT_EQ(orientation("IM*\0\x08\0\0\0\0\0"sv), 1);
  EXPECT_EQ(orientation("II*\0\x08\0\0\0\0\0"sv), 1) << "no entries";
  EXPECT_EQ(orientation("II*\0\xff\xff\xff\xff\x01\0"sv), 1) << "directory outside";
  EXPECT_EQ(orientation("II*\0\x08\0\0\0\xff\xff"sv), 1) << "more entries than bytes";
  EXPECT_EQ(orientation("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x09\0\0\0"sv), 1) << "value 9";
  EXPECT_EQ(orientation("II*\0\x08\0\0\0\x01\0\x12\x01\x02\0\x01\0\0\0\x06\0\0\0"sv), 1) << "type ASCII";
}

}  // namespace
}  // namespace quire

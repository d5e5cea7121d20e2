// GIF, first frame only: 87a and 89a, transparency, interlacing.
// https://www.w3.org/Graphics/GIF/spec-gif89a.txt
#include <algorithm>

#include "io/image/codecs.h"

namespace quire {

namespace {

using Bytes = std::span<const std::uint8_t>;

// Reads forward; past the end it gives zeros and remembers.
class Reader {
 public:
  explicit Reader(Bytes bytes) : rest_(bytes) {}

  bool ended() const { return ended_; }
  std::uint8_t byte() {
    const Bytes one = take(1);
    return one.empty() ? std::uint8_t{0} : one[0];
  }
  int word() {
    const int low = byte();
    return low | byte() << 8;
  }
  // All of the next `count` bytes or, when the file ends before, what is left.
  Bytes take(std::size_t count) {
    if (count > rest_.size()) ended_ = true;
    const Bytes taken = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  // Data sub-blocks up to the empty one, joined.
  std::vector<std::uint8_t> sub_blocks() {
    std::vector<std::uint8_t> data;
    for (std::size_t size = byte(); size > 0; size = byte()) {
      const Bytes block = take(size);
      data.insert(data.end(), block.begin(), block.end());
    }
    return data;
  }

 private:
  Bytes rest_;
  bool ended_ = false;
};

// LZW as GIF has it: codes of 3 to 12 bits, low bits first. Fills `out` as far as the data goes and returns
// how many bytes that is.
std::size_t lzw_decode(Bytes data, int root_bits, std::span<std::uint8_t> out) {
  constexpr int kMaxCodes = 4096;
  struct Entry {
    std::uint16_t prefix, length;
    std::uint8_t first, last;
  };
  std::vector<Entry> table(kMaxCodes);
  const int clear = 1 << root_bits, end = clear + 1;
  for (int i = 0; i < clear; ++i) {
    const auto colour = static_cast<std::uint8_t>(i);
    table[static_cast<std::size_t>(i)] = {.prefix = 0, .length = 1, .first = colour, .last = colour};
  }
  int next = end + 1, code_bits = root_bits + 1, previous = -1;
  std::size_t written = 0, at = 0;
  std::uint32_t buffer = 0;
  int buffered = 0;
  while (written < out.size()) {
    for (; buffered < code_bits; buffered += 8) {
      if (at == data.size()) return written;
      buffer |= static_cast<std::uint32_t>(data[at++]) << buffered;
    }
    const int code = static_cast<int>(buffer & ((1u << code_bits) - 1));
    buffer >>= code_bits, buffered -= code_bits;
    if (code == clear) {
      next = end + 1, code_bits = root_bits + 1, previous = -1;
      continue;
    }
    if (code == end || code > next || (code == next && previous < 0)) return written;
    if (previous >= 0 && next < kMaxCodes) {
      const Entry& before = table[static_cast<std::size_t>(previous)];
      // The code being defined right now stands for the previous string and its own first byte.
      const std::uint8_t last = code == next ? before.first : table[static_cast<std::size_t>(code)].first;
      table[static_cast<std::size_t>(next)] = {.prefix = static_cast<std::uint16_t>(previous),
                                               .length = static_cast<std::uint16_t>(before.length + 1),
                                               .first = before.first,
                                               .last = last};
      if (++next == 1 << code_bits && code_bits < 12) ++code_bits;
    }
    // From its last byte to its first.
    const Entry* entry = &table[static_cast<std::size_t>(code)];
    const std::size_t length = entry->length;
    for (std::size_t i = length; i-- > 0; entry = &table[entry->prefix])
      if (written + i < out.size()) out[written + i] = entry->last;
    written = std::min(written + length, out.size());
    previous = code;
  }
  return written;
}

// Which stored row is row y of the picture, when the rows come in four passes: every 8th from 0, every 8th
// from 4, every 4th from 2, every 2nd from 1.
std::vector<int> interlaced_rows(int height) {
  struct Pass {
    int start, step;
  };
  std::vector<int> stored(static_cast<std::size_t>(height));
  int row = 0;
  for (const Pass pass : {Pass{0, 8}, Pass{4, 8}, Pass{2, 4}, Pass{1, 2}})
    for (int y = pass.start; y < height; y += pass.step) stored[static_cast<std::size_t>(y)] = row++;
  return stored;
}

struct Palette {
  Bytes rgb;             // [colours, 3]
  int transparent = -1;  // index

  void colour(int index, std::uint8_t* out) const {
    const std::size_t at = std::size_t{3} * index;
    if (index == transparent) {
      std::fill_n(out, 3, std::uint8_t{255});
    } else if (at + 3 <= rgb.size()) {
      std::copy_n(rgb.data() + at, 3, out);
    } else {
      std::fill_n(out, 3, std::uint8_t{0});
    }
  }
};

Bytes read_palette(Reader& in, int flags) {
  constexpr int kHasPalette = 0x80, kSize = 0x07;
  return flags & kHasPalette ? in.take(std::size_t{3} << ((flags & kSize) + 1)) : Bytes();
}

// The image descriptor and its data, after the separator, drawn on the screen.
Image read_frame(const ImageSource& source, Reader& in, Palette palette, int screen_width,
                 int screen_height) {
  constexpr int kInterlaced = 0x40, kMaxRootBits = 8;
  const int left = in.word(), top = in.word(), width = in.word(), height = in.word(), flags = in.byte();
  if (screen_width == 0 || screen_height == 0) screen_width = left + width, screen_height = top + height;
  if (const Bytes local = read_palette(in, flags); !local.empty()) palette.rgb = local;
  const int root_bits = in.byte();
  if (root_bits < 1 || root_bits > kMaxRootBits)
    source.reject(ErrorCode::invalid_input, fmt::format("LZW codes of {} bits; expected 1 to 8", root_bits));
  source.check_size(width, height);
  const std::int64_t pixels = std::int64_t{width} * height;
  Canvas canvas(source, screen_width, screen_height, pixels + std::ssize(source.file));

  const std::vector<std::uint8_t> data = in.sub_blocks();
  std::vector<std::uint8_t> indices(static_cast<std::size_t>(pixels));
  const std::size_t decoded = lzw_decode(data, root_bits, indices);
  const std::vector<int> order = flags & kInterlaced ? interlaced_rows(height) : std::vector<int>();

  const int columns = std::min(width, screen_width - left);
  std::vector<std::uint8_t> row(std::size_t{3} * screen_width);
  for (int y = 0; y < screen_height; ++y) {
    std::fill(row.begin(), row.end(), std::uint8_t{255});
    if (y >= top && y < top + height) {
      const int stored = order.empty() ? y - top : order[static_cast<std::size_t>(y - top)];
      const std::size_t begin = std::size_t{static_cast<unsigned>(width)} * stored;
      if (begin + width > decoded) {
        canvas.skip_row();
        continue;
      }
      for (int x = 0; x < columns; ++x)
        palette.colour(indices[begin + x], row.data() + std::ptrdiff_t{3} * (left + x));
    }
    canvas.add_row(row.data());
  }
  return std::move(canvas).finish("the compressed data ends early");
}

}  // namespace

DecodedImage decode_gif(const ImageSource& source) {
  constexpr std::size_t kSignature = 6;
  constexpr int kExtension = 0x21, kFrame = 0x2c, kGraphicControl = 0xf9, kHasTransparent = 0x01;
  Reader in({source.bytes(), source.size()});
  in.take(kSignature);
  const int width = in.word(), height = in.word(), flags = in.byte();
  in.take(2);  // background colour, which no viewer uses, and pixel aspect
  Palette palette{.rgb = read_palette(in, flags)};
  while (!in.ended()) {
    const int kind = in.byte();
    if (kind == kFrame) return {.image = read_frame(source, in, palette, width, height)};
    if (kind != kExtension) break;
    const int label = in.byte();
    const std::vector<std::uint8_t> data = in.sub_blocks();
    if (label == kGraphicControl && data.size() >= 4)
      palette.transparent = data[0] & kHasTransparent ? data[3] : -1;
  }
  source.reject(ErrorCode::invalid_input, "there is no picture before the end of the file");
}

}  // namespace quire

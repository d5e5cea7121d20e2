// GIF by giflib: the first frame on its screen, transparency, interlacing.
#include <algorithm>
#include <cstring>

#include <gif_lib.h>

#include "io/image/codecs.h"

namespace quire {
namespace {

// The file as giflib reads it.
struct Cursor {
  std::span<const std::byte> rest;
};

int read_bytes(GifFileType* gif, GifByteType* to, int count) {
  auto& cursor = *static_cast<Cursor*>(gif->UserData);
  const std::size_t n = std::min(static_cast<std::size_t>(count), cursor.rest.size());
  std::memcpy(to, cursor.rest.data(), n);
  cursor.rest = cursor.rest.subspan(n);
  return static_cast<int>(n);
}

struct Close {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};
using Gif = std::unique_ptr<GifFileType, Close>;

// Reads up to the first frame's pixels. Returns its transparent colour, -1 for none.
int find_frame(const ImageSource& source, GifFileType* gif) {
  int transparent = -1;
  while (true) {
    GifRecordType kind;
    if (DGifGetRecordType(gif, &kind) == GIF_ERROR || kind == TERMINATE_RECORD_TYPE) {
      source.reject(ErrorCode::invalid_input, "there is no picture before the end of the file");
    }
    if (kind == IMAGE_DESC_RECORD_TYPE) {
      if (DGifGetImageDesc(gif) == GIF_ERROR) {
        source.reject(ErrorCode::invalid_input, "the description of the first picture is broken");
      }
      return transparent;
    }
    int code = 0;
    GifByteType* block = nullptr;  // its length, then its bytes
    int status = DGifGetExtension(gif, &code, &block);
    while (status == GIF_OK && block) {
      GraphicsControlBlock control;
      if (code == GRAPHICS_EXT_FUNC_CODE && DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK) {
        transparent = control.TransparentColor;
      }
      status = DGifGetExtensionNext(gif, &block);
    }
  }
}

// For each row of the picture which stored row holds it: interlaced rows come in four passes, every 8th from
// 0, every 8th from 4, every 4th from 2, every 2nd from 1.
std::vector<int> stored_rows(int height, bool interlaced) {
  struct Pass {
    int start, step;
  };
  std::vector<int> stored(static_cast<std::size_t>(height));
  int row = 0;
  if (!interlaced) {
    for (int y = 0; y < height; ++y) stored[static_cast<std::size_t>(y)] = row++;
    return stored;
  }
  for (const Pass pass : {Pass{0, 8}, Pass{4, 8}, Pass{2, 4}, Pass{1, 2}}) {
    for (int y = pass.start; y < height; y += pass.step) stored[static_cast<std::size_t>(y)] = row++;
  }
  return stored;
}

void put_colour(const ColorMapObject* palette, int index, int transparent, std::uint8_t* rgb) {
  if (index == transparent) {
    std::fill_n(rgb, 3, std::uint8_t{255});
  } else if (palette && index < palette->ColorCount) {
    const GifColorType& c = palette->Colors[index];
    rgb[0] = c.Red, rgb[1] = c.Green, rgb[2] = c.Blue;
  } else {
    std::fill_n(rgb, 3, std::uint8_t{0});
  }
}

}  // namespace

DecodedImage decode_gif(const ImageSource& source) {
  Cursor cursor{source.file};
  const Gif gif(DGifOpen(&cursor, read_bytes, nullptr));
  if (!gif) source.reject(ErrorCode::invalid_input, "the header is broken");
  const int transparent = find_frame(source, gif.get());

  const GifImageDesc frame = gif->Image;
  source.check_size(frame.Width, frame.Height);
  const bool no_screen = gif->SWidth == 0 || gif->SHeight == 0;
  const int screen_width = no_screen ? frame.Left + frame.Width : gif->SWidth;
  const int screen_height = no_screen ? frame.Top + frame.Height : gif->SHeight;
  const std::int64_t pixels = std::int64_t{frame.Width} * frame.Height;
  Canvas canvas(source, screen_width, screen_height, pixels);

  std::vector<GifPixelType> indices(static_cast<std::size_t>(pixels));
  int decoded = 0;
  while (decoded < frame.Height &&
         DGifGetLine(gif.get(), indices.data() + std::ptrdiff_t{decoded} * frame.Width, frame.Width) ==
             GIF_OK) {
    ++decoded;
  }

  const ColorMapObject* palette = frame.ColorMap ? frame.ColorMap : gif->SColorMap;
  const std::vector<int> stored = stored_rows(frame.Height, frame.Interlace);
  const int columns = std::min(frame.Width, screen_width - frame.Left);
  std::vector<std::uint8_t> row(std::size_t{3} * screen_width);
  for (int y = 0; y < screen_height; ++y) {
    std::fill(row.begin(), row.end(), std::uint8_t{255});
    if (y >= frame.Top && y < frame.Top + frame.Height) {
      const int from = stored[static_cast<std::size_t>(y - frame.Top)];
      if (from >= decoded) {
        canvas.skip_row();
        continue;
      }
      for (int x = 0; x < columns; ++x) {
        put_colour(palette, indices[static_cast<std::size_t>(from) * frame.Width + x], transparent,
                   row.data() + std::ptrdiff_t{3} * (frame.Left + x));
      }
    }
    canvas.add_row(row.data());
  }
  return {.image = std::move(canvas).finish("the compressed data ends early")};
}

}  // namespace quire

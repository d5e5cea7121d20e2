// Speed of the tokenizer on one core: MB/s and tokens/s.
//
//   tokenizer_bench TOKENIZER_JSON TEXT_FILE [SECONDS]
//
// Encodes the file piece by piece, as requests come: a piece ends at the first empty line after 2,000 bytes.
// bench/rivals/tokenizers_hf.py compares with Hugging Face tokenizers in one run, ids included: --ids prints
// them, a line for each piece.
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "quire/quire.h"
#include "text/tokenizer.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<std::string_view> pieces_of(std::string_view text) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const std::size_t line = text.size() > 2000 ? text.find("\n\n", 2000) : std::string_view::npos;
    const std::size_t end = line == std::string_view::npos ? text.size() : line + 2;
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return pieces;
}

void print_ids(const quire::Tokenizer& tokenizer, const std::vector<std::string_view>& pieces) {
  for (std::string_view piece : pieces) {
    for (quire::TokenId id : tokenizer.encode(piece)) std::printf("%d ", id);
    std::printf("\n");
  }
}

void measure(const quire::Tokenizer& tokenizer, const std::vector<std::string_view>& pieces, double seconds) {
  std::size_t bytes = 0, tokens = 0;
  double best = 0;  // MB/s of the fastest pass
  const Clock::time_point start = Clock::now();
  do {
    const Clock::time_point pass = Clock::now();
    bytes = tokens = 0;
    for (std::string_view piece : pieces) {
      bytes += piece.size();
      tokens += tokenizer.encode(piece).size();
    }
    const double took = seconds_since(pass);
    const double speed = static_cast<double>(bytes) / took / 1e6;
    if (best == 0) std::printf("first pass: %.1f MB/s\n", speed);
    if (speed > best) best = speed;
  } while (seconds_since(start) < seconds);
  const double tokens_per_byte = static_cast<double>(tokens) / static_cast<double>(bytes);
  std::printf("best pass: %.1f MB/s, %.2f M tokens/s (%zu bytes, %zu tokens)\n", best, best * tokens_per_byte,
              bytes, tokens);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: tokenizer_bench TOKENIZER_JSON TEXT_FILE [SECONDS | --ids]\n");
    return 2;
  }
  try {
    const Clock::time_point start = Clock::now();
    const quire::Tokenizer tokenizer = quire::Tokenizer::from_file(argv[1]);
    const double load = seconds_since(start);
    const std::string text = quire::read_file(argv[2]);
    const std::vector<std::string_view> pieces = pieces_of(text);
    if (argc > 3 && std::string_view(argv[3]) == "--ids") {
      print_ids(tokenizer, pieces);
      return 0;
    }
    std::printf("load: %.3f s\n", load);
    measure(tokenizer, pieces, argc > 3 ? std::stod(argv[3]) : 3);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tokenizer_bench: %s\n", error.what());
    return 1;
  }
}

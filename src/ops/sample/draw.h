// The integers of drawing: random bits, weights, and what they are compared with. Every function is static:
// code for several instruction sets includes this file, and the linker would keep one copy of a shared one.
#pragma once

#include <cstdint>

#include "ops/ops.h"

namespace quire {

struct Philox {
  std::uint32_t word[4];
};

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
static constexpr Philox philox(Philox counter, std::uint32_t key0, std::uint32_t key1) {
  Philox x = counter;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * x.word[0], b = std::uint64_t{0xCD9E8D57} * x.word[2];
    x = {{static_cast<std::uint32_t>(b >> 32) ^ x.word[1] ^ key0, static_cast<std::uint32_t>(b),
          static_cast<std::uint32_t>(a >> 32) ^ x.word[3] ^ key1, static_cast<std::uint32_t>(a)}};
    key0 += 0x9E3779B9, key1 += 0xBB67AE85;
  }
  return x;
}

// What random bits are for: two uses at one position of a sequence must not share them.
enum class Purpose : std::uint32_t { draw };

static constexpr std::uint64_t random_bits(std::uint64_t seed, std::int32_t position, Purpose purpose) {
  const Philox x = philox({{static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(purpose), 0, 0}},
                          static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  return x.word[0] | std::uint64_t{x.word[1]} << 32;
}

// floor(bits * total / 2^64): uniform in [0, total).
static constexpr std::uint64_t uniform_below(std::uint64_t total, std::uint64_t bits) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits) * total) >> 64);
}

inline constexpr float kLeastRatio = 0x1p-40f;
inline constexpr std::uint32_t kLeastKey = 87u << 23;  // its bits

static constexpr std::uint64_t weight_of(float ratio) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(ratio * 0x1p40f));
}

// A whole sum is below this when it is below top_p * total.
static constexpr std::uint64_t nucleus(float top_p, std::uint64_t total) {
  const double share = double{top_p} * static_cast<double>(total);
  const auto whole = static_cast<std::uint64_t>(share > 1 ? share : 1);
  return whole + (static_cast<double>(whole) < share ? 1 : 0);
}

static constexpr bool has_penalties(const SamplingSettings& s) {
  return s.repetition_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0;
}

// Factor of p - max p. Bounded, so that 0 times it is 0.
static constexpr float inverse_temperature(float temperature) {
  const float inverse = 1 / temperature;
  return inverse < 1e30f ? inverse : 1e30f;
}

// What is kept: every ratio above that of `key` (its bits, which order as it does), and the first `ties` ids
// that have it.
struct Cutoff {
  std::uint32_t key;
  std::uint64_t ties;
};
inline constexpr std::uint64_t kAllTies = ~std::uint64_t{0};

}  // namespace quire

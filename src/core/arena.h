// Arena: memory taken in order and given back in reverse, from one block sized at the start. A forward pass
// takes its activations from one, so that a step allocates nothing.
#pragma once

#include <cstddef>

#include "core/error.h"

namespace quire {

class Arena {
 public:
  // The block is the caller's and outlives the arena.
  Arena(std::byte* block, std::size_t bytes) : block_(block), size_(bytes) {}

  // Aligned like the block, at most to 256 bytes; uninitialised. Asking for more than there is is a bug of
  // whoever sized the arena.
  std::byte* take(std::size_t bytes) {
    const std::size_t begin = used_;
    used_ += aligned(bytes);
    QUIRE_CHECK(used_ <= size_, "arena of {} bytes asked for {}", size_, used_);
    return block_ + begin;
  }
  static constexpr std::size_t kAlignment = 256;
  static std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  // Gives back, at its end, what was taken during its life.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), mark_(arena.used_) {}
    ~Scope() { arena_.used_ = mark_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    std::size_t mark_;
  };

 private:
  std::byte* block_;
  std::size_t size_;
  std::size_t used_ = 0;
};

}  // namespace quire

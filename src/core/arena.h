// Arena: memory taken in order and given back in reverse, from one block sized at the start. A forward pass
// takes its activations from one, so that a step allocates nothing.
#pragma once

#include "core/buffer.h"
#include "core/error.h"

namespace quire {

class Arena {
 public:
  explicit Arena(std::size_t bytes) : block_(bytes) {}

  // 64-byte aligned, uninitialised. Asking for more than there is is a bug of whoever sized the arena.
  std::byte* take(std::size_t bytes) {
    const std::size_t begin = used_;
    used_ += aligned(bytes);
    QUIRE_CHECK(used_ <= block_.size(), "arena of {} bytes asked for {}", block_.size(), used_);
    return block_.data() + begin;
  }
  static std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

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
  Buffer block_;
  std::size_t used_ = 0;
};

}  // namespace quire

// The table of operations with someone watching: what each call is, and what it has to move and compute at
// least.
#pragma once

#include <functional>
#include <string>

#include "ops/ops.h"

namespace quire {

struct OpCall {
  std::string op{};     // "linear"
  std::string shape{};  // "32 x 2560 -> 9216"
  double bytes = 0;     // read or written by any way of doing it: each operand once, weights and caches once
  double flop = 0;      // of products; the rest is small
};

struct OpTrace {
  const Ops* ops = nullptr;  // what is called
  std::int64_t context = 0;  // tokens of a sequence: how many is known on the device alone
  std::function<void(const OpCall&)> before;
  std::function<void()> after;
};

// Operations that call those of stream.trace, between its `before` and `after`.
const Ops& traced_ops();

}  // namespace quire

// What the <op>_cpu.cpp files define.
#pragma once

#include "ops/ops.h"

namespace quire::QUIRE_ISA {

#include "ops/entries.inc"

}  // namespace quire::QUIRE_ISA

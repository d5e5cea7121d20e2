#!/bin/sh
# isa_symbols.sh NAMESPACE OBJECT...: fails when an object compiled for a special instruction set offers the linker a
# function from outside its namespace. The linker keeps one copy of an inline function, so the whole program could end
# up with an AVX-512 version of it and die on a machine without.
set -eu
namespace=$1
shift
symbols=$(nm -C "$@")
foreign=$(echo "$symbols" | grep -E ' [WVu] ' | grep -v -e "quire::$namespace::" -e 'DW\.ref\.' || true)
[ -z "$foreign" ] && exit 0
echo "these symbols are shared with code for other machines:"
echo "$foreign"
exit 1

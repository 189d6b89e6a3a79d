#!/usr/bin/env bash
# A file compiled for an instruction set shares no inline functions with others: the linker keeps one copy of a weak function,
# and if it kept the AVX-512 one, older CPUs would crash in code that looks portable.
# usage: isa_symbols_test.sh OBJECT...     (other objects than isa_* are passed over)
set -euo pipefail
checked=0
bad=0
for object in "$@"; do
  case "$object" in */isa_*) ;; *) continue ;; esac
  checked=$((checked + 1))
  if weak=$(nm -C "$object" | grep -E ' [WVu] '); then
    printf '%s has weak symbols:\n%s\n' "$object" "$weak"
    bad=$((bad + 1))
  fi
done
echo "$checked objects checked, $bad with weak symbols"
[ "$checked" -ge 4 ] && [ "$bad" -eq 0 ]

#!/usr/bin/env bash
# From a fresh machine to an answer: installs packages, builds build/lamina, fetches a small model and runs it once.
# In: the prompt. Out: the model's text on stdout, everything else on stderr; the build's output only when it fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ $# -ne 1 ]; then
  echo 'usage: tools/quickstart.sh "PROMPT"' >&2
  exit 2
fi

tools/install_packages.sh build

echo "quickstart: building build/lamina" >&2
mkdir -p build
log=build/quickstart.log
generator=()
[ -f build/CMakeCache.txt ] || generator=(-G Ninja)  # an existing build folder keeps its generator
if ! { cmake -S . -B build "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DLAMINA_TESTS=OFF &&
  cmake --build build --target lamina --parallel "$(nproc)"; } >"$log" 2>&1 </dev/null; then
  cat "$log" >&2
  echo "quickstart: the build failed, see above (also in $log)" >&2
  exit 1
fi

model=$(build/lamina pull smollm2)
exec build/lamina run "$model" -p "$1" -n 64

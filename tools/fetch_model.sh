#!/usr/bin/env bash
# From a fresh machine to a model file: installs packages, builds build/lamina, and fetches a model of models.txt with it.
# In: what `lamina pull` takes: a name, or --list. Out: the file's path on stdout, everything else on stderr; the build's output
# only when it fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ $# -ne 1 ]; then
  echo 'usage: tools/fetch_model.sh NAME | --list' >&2
  exit 2
fi

tools/install_packages.sh build

echo "fetch_model: building build/lamina" >&2
mkdir -p build
log=build/fetch_model.log
generator=()
[ -f build/CMakeCache.txt ] || generator=(-G Ninja)  # an existing build folder keeps its generator
if ! { cmake -S . -B build "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DLAMINA_TESTS=OFF &&
  cmake --build build --target lamina --parallel "$(nproc)"; } >"$log" 2>&1 </dev/null; then
  cat "$log" >&2
  echo "fetch_model: the build failed, see above (also in $log)" >&2
  exit 1
fi

exec build/lamina pull "$1"

#!/usr/bin/env bash
# Installs packages, builds everything into build/ and runs all tests. Fails when anything fails.
# In: arguments go to ctest (e.g. -R Rules). With CI=true the C++ files' format is checked too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/install_packages.sh test

if [ "${CI:-}" = true ]; then
  echo "test: checking the format of all C++ files"
  find gguf kernels model engine tools tests \( -name '*.cpp' -o -name '*.h' \) -print0 |
    xargs -0 clang-format --dry-run -Werror || { echo "test: clang-format -i mends these" >&2; exit 1; }
fi

generator=()
[ -f build/CMakeCache.txt ] || generator=(-G Ninja)  # an existing build folder keeps its generator
cmake -S . -B build "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DLAMINA_TESTS=ON -DLAMINA_BENCHMARKS=ON
cmake --build build --parallel "$(nproc)"
ctest --test-dir build --output-on-failure --no-tests=error --parallel "$(nproc)" "$@"

#!/usr/bin/env bash
# Installs packages, builds everything into build/ and runs all tests. Fails when anything fails.
# The tests of OpenCL run on PoCL, then on Intel's runtime, and the smallest ones under oclgrind, which finds races and
# reads of what was never written; not with sanitizers, which do not know what drivers compile.
# In: --asan or --tsan builds into a folder of its own with address and undefined-behaviour, or thread sanitizers; --fuzz
# SECONDS only runs each fuzz target that long; other arguments go to ctest (e.g. -R Rules). With CI=true the C++ files'
# format is checked too, and each fuzz target runs for a minute.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build
options=(-DLAMINA_TESTS=ON)
case "${1:-}" in
  --asan) build="build-asan"; options+=("-DLAMINA_SANITIZE=address,undefined"); shift ;;
  --tsan) build="build-tsan"; options+=("-DLAMINA_SANITIZE=thread"); shift ;;
  --fuzz) build="build-fuzz" ;;
esac

configure() { # FOLDER OPTION...
  local generator=()
  [ -f "$1/CMakeCache.txt" ] || generator=(-G Ninja)  # an existing build folder keeps its generator
  cmake -S . -B "$1" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release "${@:2}"
}

# Runs each target on a copy of its corpus: what it finds stays in build-fuzz/.
fuzz() { # SECONDS
  local target corpus
  configure build-fuzz -DCMAKE_CXX_COMPILER=clang++ -DLAMINA_FUZZ=ON -DLAMINA_TESTS=OFF
  cmake --build build-fuzz --parallel "$(nproc)" --target fuzz_reader fuzz_loader fuzz_tokenizer
  for target in reader loader tokenizer; do
    corpus=build-fuzz/corpus-$target
    mkdir -p "$corpus"
    echo "test: fuzzing $target for $1 seconds"
    build-fuzz/fuzz_$target -max_total_time="$1" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -verbosity=0 \
      -print_funcs=0 -print_final_stats=1 -artifact_prefix="build-fuzz/$target-" "$corpus" "tests/data/fuzz/$target"
  done
}

tools/install_packages.sh test
if [ $build = build-fuzz ]; then
  [[ ${2:-} =~ ^[0-9]+$ ]] || { echo "usage: tools/test.sh --fuzz SECONDS" >&2; exit 2; }
  fuzz "$2"
  exit 0
fi

if [ "${CI:-}" = true ]; then
  echo "test: checking the format of all C++ files"
  find gguf kernels model engine tools tests \( -name '*.cpp' -o -name '*.h' \) -print0 |
    xargs -0 clang-format --dry-run -Werror || { echo "test: clang-format -i mends these" >&2; exit 1; }
fi

test_with() { # VARIABLE=VALUE... -- ARGUMENT OF CTEST...
  local variables=()
  while [ "$1" != -- ]; do variables+=("$1"); shift; done
  env "${variables[@]}" ctest --test-dir $build --output-on-failure --no-tests=error --parallel "$(nproc)" "${@:2}"
}

configure $build "${options[@]}"
cmake --build $build --parallel "$(nproc)"
if [ "${CI:-}" = true ] && [ $build = build ]; then fuzz 60; fi
if [ $build != build ]; then
  test_with OCL_ICD_VENDORS=/nonexistent -- "$@"
  exit 0
fi
test_with LAMINA_TEST_OPENCL=required -- "$@"
[ $# -eq 0 ] || exit 0
echo "test: OpenCL on Intel's runtime"
variables=$(tools/install_opencl.sh)
mapfile -t intel <<<"$variables"
test_with LAMINA_TEST_OPENCL=required "${intel[@]}" -- \
  -R '(Ops|Linear)\..*opencl_w|LinearOfType.*opencl_w16_(F16|BF16|Q5_1|Q8_0|Q2_K|Q4_K|Q6_K|IQ1_S|IQ4_XS|NVFP4)$'
echo "test: the smallest kernels under oclgrind"
small=Devices/Ops.ArgmaxTakesTheLowestIndexOfEqualLogits/opencl_w16
small+=:Devices/Ops.ArgmaxTakesTheLowestIndexOfEqualLogits/opencl_w1
small+=:Devices/Ops.SmallExpertWeightsAreNotBlownUpByNormalising/opencl_w1
: >build/oclgrind.log
LAMINA_TEST_OPENCL=required oclgrind --data-races --uninitialized --log build/oclgrind.log \
  build/lamina_tests --gtest_brief=1 --gtest_filter="$small"
if grep . build/oclgrind.log; then
  echo "test: oclgrind found the above" >&2
  exit 1
fi

#!/usr/bin/env bash
# Installs the Debian packages that lamina needs, and only those that are missing.
# In: `build` (what tools/quickstart.sh needs) or `test` (also what tools/test.sh needs; the default).
# Out: nothing on stdout; apt's output only when it fails. Exit code 0 when all is there, 1 when it cannot be.
set -euo pipefail

packages=(g++ cmake ninja-build pkg-config nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libpcre2-dev
  libutf8proc-dev libcurl4-openssl-dev libssl-dev libzip-dev ocl-icd-opencl-dev opencl-headers python3 python3-pip ca-certificates)
test_packages=(libgtest-dev librapidcheck-dev libbenchmark-dev clang-format clang libclang-rt-14-dev pocl-opencl-icd oclgrind
  python3-venv)
case "${1:-test}" in
  build) ;;
  test) packages+=("${test_packages[@]}") ;;
  *) echo "usage: tools/install_packages.sh [build|test]" >&2; exit 2 ;;
esac

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "install_packages: not a Debian system; these must be there already: ${packages[*]}" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
  echo "install_packages: as root, please: apt-get install ${missing[*]}" >&2
  exit 1
fi

echo "install_packages: installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
  cat "$log" >&2
  echo "install_packages: apt-get failed, see above" >&2
  exit 1
fi

#!/usr/bin/env bash
# Sets up Intel's OpenCL runtime for CPUs, the second runtime that the tests run on (PoCL, the first, is a Debian package).
# In: nothing. Out: on stdout the two environment variables, one NAME=VALUE a line, with which programs use it and no other;
# the runtime itself in build/opencl-venv/, once. Exit code 1 with one line on stderr when it cannot be installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(intel-opencl-rt==2026.2.0 intel-cmplr-lib-rt==2026.2.0)
venv=$PWD/build/opencl-venv
log=$PWD/build/opencl-venv.log
installed=$venv/installed.txt  # written last: what is there

if [ "$(cat "$installed" 2>/dev/null)" != "${packages[*]}" ]; then
  echo "install_opencl: installing ${packages[*]}" >&2
  mkdir -p build
  rm -rf "$venv"
  if ! { python3 -m venv "$venv" &&
    "$venv/bin/pip" install --disable-pip-version-check --no-input "${packages[@]}"; } >"$log" 2>&1 </dev/null; then
    echo "install_opencl: pip cannot install ${packages[*]}: is PyPI within reach? (its output is in $log)" >&2
    exit 1
  fi
  rm -f "$venv"/lib/libOpenCL.so*  # the system's loader is to be used
  mkdir "$venv/icd"
  echo "$venv/lib/libintelocl.so" >"$venv/icd/intel.icd"
  echo "${packages[*]}" >"$installed"
fi

echo "OCL_ICD_VENDORS=$venv/icd"
echo "LD_LIBRARY_PATH=$venv/lib"

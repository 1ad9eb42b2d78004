#!/usr/bin/env bash
# Prints the folder that holds the source of xgrammar, which structured output is built on. It lies in the user's cache;
# what is missing there comes through pip from the package index that pip is set up for, and must have the hash below.
set -euo pipefail

version=0.2.8
sha256=8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80

cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/gannet
archive=$cache/xgrammar-$version.tar.gz
folder=$cache/xgrammar-$version

is_right() { echo "$sha256  $1" | sha256sum --check --status 2>/dev/null; }

download() {  # download INTO
  local python=python3
  if ! "$python" -m pip --version >/dev/null 2>&1; then
    "$python" -m venv "$1/venv"
    python=$1/venv/bin/python
  fi
  "$python" -m pip download -q --disable-pip-version-check --no-deps --no-binary xgrammar -d "$1" "xgrammar==$version"
}

if [ -d "$folder" ]; then
  echo "$folder"
  exit 0
fi
mkdir -p "$cache"
temporary=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$temporary"' EXIT
if ! is_right "$archive"; then
  echo "gannet: fetching xgrammar $version, which structured output is built on" >&2
  if ! download "$temporary" >"$temporary/log" 2>&1; then
    tail -n 5 "$temporary/log" >&2
    echo "gannet: xgrammar $version could not be fetched with pip. With network access run this again, or put" >&2
    echo "gannet: xgrammar-$version.tar.gz (sha256 $sha256) at $archive" >&2
    exit 1
  fi
  if ! is_right "$temporary/xgrammar-$version.tar.gz"; then
    echo "gannet: the package index gave an xgrammar-$version.tar.gz whose sha256 is not $sha256" >&2
    exit 1
  fi
  mv "$temporary/xgrammar-$version.tar.gz" "$archive"
fi

# Another build may do the same at this moment: the folder appears whole, or not at all.
tar -xzf "$archive" -C "$temporary"
mv -T "$temporary/xgrammar-$version" "$folder" 2>/dev/null || [ -d "$folder" ]
echo "$folder"

#!/usr/bin/env bash
# Installs the packages that Gannet is built with, when some are missing: Debian 12 and Ubuntu 24.04. On other systems it
# prints the list, and stops unless the compiler and CMake are there. Quiet when nothing is to be done. With --tests also
# what only tests need: clang for the fuzz targets, and a browser, where there is a package for one (Ubuntu has none).
set -euo pipefail

packages=(g++ cmake ninja-build ccache make pkg-config curl ca-certificates python3-venv
  libssl-dev libsimdjson-dev prometheus-cpp-dev nlohmann-json3-dev libfmt-dev libspdlog-dev libcli11-dev libexpected-dev
  libicu-dev libzstd-dev libgtest-dev libgmock-dev)

system=unknown
if [ -r /etc/os-release ]; then
  system=$(. /etc/os-release && echo "${ID:-unknown}-${VERSION_ID:-}")
fi
case $system in
  debian-12)
    packages+=(libboost1.81-dev)
    [ "${1:-}" != --tests ] || packages+=(openssl clang-19 libclang-rt-19-dev chromium chromium-driver fonts-dejavu-core)
    ;;
  ubuntu-24.04)
    packages+=(libboost1.83-dev)
    [ "${1:-}" != --tests ] || packages+=(openssl clang-19 libclang-rt-19-dev)
    ;;
  *)
    echo "gannet: $system is not a system whose packages are known here. It needs the equivalents of these Debian 12" >&2
    echo "packages: ${packages[*]} libboost1.81-dev" >&2
    if command -v cmake >/dev/null && command -v ninja >/dev/null && command -v g++ >/dev/null; then
      echo "gannet: going on with what is installed." >&2
      exit 0
    fi
    echo "gannet: please install them and run make again." >&2
    exit 2
    ;;
esac

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "gannet: these packages are missing and need root to install: ${missing[*]}" >&2
    exit 2
  fi
  as_root=(sudo)
fi
echo "gannet: installing ${#missing[@]} packages: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"

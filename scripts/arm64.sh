#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# Debian's arm64 libraries that the library and its tests need, unpacked into a folder for cmake/aarch64.cmake: the machine's own
# packages, and the architectures that its dpkg knows, stay as they are. Usage: scripts/arm64.sh FOLDER
set -euo pipefail

packages=(check libsubunit0 libsubunit-dev libopenblas0-pthread libopenblas-pthread-dev libgfortran5)
mkdir -p "$1"
cd "$1"
if [[ -e complete ]]; then
    echo "complete: $(cat complete)"
    exit
fi

# An apt of its own: the machine's sources and keys, but lists, cache and installed packages (none) in the folder.
mkdir -p apt/lists/partial apt/archives/partial packages
: >apt/status
own=(-o "Dir::State=$PWD/apt" -o "Dir::State::status=$PWD/apt/status" -o "Dir::Cache=$PWD/apt" -o APT::Architecture=arm64
    -o APT::Architectures=arm64 -o APT::Sandbox::User=root -o Acquire::Languages=none)
apt-get "${own[@]}" update
(cd packages && apt-get "${own[@]}" download "${packages[@]}")
for package in packages/*.deb; do
    dpkg -x "$package" .
done
rm -rf apt packages
echo "${packages[*]}" >complete

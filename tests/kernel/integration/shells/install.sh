#!/bin/sh
# Installs the shells that completion is tested in, and what documented commands are read and run
# with, from Debian's archive.
set -eu
if command -v zsh >/dev/null && command -v fish >/dev/null && command -v shellcheck >/dev/null &&
    command -v jq >/dev/null && command -v curl >/dev/null; then
    exit 0
fi
as_root=""
[ "$(id -u)" -eq 0 ] || as_root="sudo --non-interactive"
$as_root apt-get update --quiet
$as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install --quiet --yes --no-install-recommends zsh fish shellcheck jq curl

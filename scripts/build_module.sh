#!/usr/bin/env bash
# Builds the extension module `lancemem._lancemem` and installs it, editable, into .venv. Two options build a
# wheel in FOLDER instead, which is installed nowhere:
#
#   --wheel FOLDER      the wheel of a release, stripped, with the tag of the oldest glibc that it runs on
#   --mutants FOLDER    a wheel that has the known bugs in it
#
# All checkouts of one machine share one target folder, and cargo gives the library of the module the same file
# name in each of them. So one checkout builds at a time, and a library that another checkout left is removed
# first: only the last step, its link, is then done again.
set -euo pipefail

cd "$(dirname "$0")/.."
export VIRTUAL_ENV=$PWD/.venv
target=${CARGO_TARGET_DIR:?set by the Makefile}
owner_file=$target/lancemem-module-owner
owner=$PWD${1:+ $1}
mkdir -p "$target"

if command -v flock >/dev/null; then
    exec 9>"$target/lancemem-module.lock"
    flock --nonblock 9 || { echo "another checkout builds the module; waiting for it" && flock 9; }
fi

if [ "$(cat "$owner_file" 2>/dev/null)" != "$owner" ]; then
    rm -f "$target"/release/deps/lib_lancemem.* "$target"/release/lib_lancemem.*
    echo "$owner" >"$owner_file"
fi

if [ "${1:-}" = --mutants ]; then
    exec .venv/bin/maturin build --release --features mutants --out "$2"
fi
if [ "${1:-}" = --wheel ]; then
    # `--strip` is an argument of the module's own crate and no setting of the profile: nothing below it is compiled
    # again. The interpreter is the one of `develop`, for another one would compile PyO3 again.
    rm -f "$2"/lancemem-*.whl
    exec .venv/bin/maturin build --release --locked --strip --auditwheel repair \
        --interpreter "$VIRTUAL_ENV/bin/python" --out "$2"
fi
.venv/bin/maturin develop --release
.venv/bin/python -c "import lancemem"

#!/bin/sh
# Fuzzes a reader, and keeps the smallest inputs that reach all code reached: at most 150 kB of them, which the tests replay.
#
#     scripts/fuzz.sh TARGET [SECONDS] [LONGEST]    runs for so long, with inputs of at most so many bytes
#     FAST=1 scripts/fuzz.sh TARGET ...             without a sanitizer and without looking at comparisons: several times faster
#
# Targets are those in crates/data/fuzz and crates/cli/fuzz. It needs a nightly toolchain and `cargo install cargo-fuzz`.
set -eu
cd "$(dirname "$0")/.."
target=$1 seconds=${2:-600} longest=${3:-1024}
case $target in
job | weights | checkpoint) folder=crates/cli/fuzz ;;
*) folder=crates/data/fuzz ;;
esac
cd "$folder"
corpus=corpus/$target working=target/working/$target
mkdir -p "$corpus" "$working"

flags=
[ -z "${FAST:-}" ] || flags="-s none --no-trace-compares --target-dir target/fast"
# What costs time in every execution and finds nothing more: traces of allocations, and filling of what is allocated.
export ASAN_OPTIONS=quarantine_size_mb=1:detect_leaks=0:detect_stack_use_after_return=0:malloc_context_size=0:max_malloc_fill_size=0
fuzz() {
    # shellcheck disable=SC2086
    cargo +nightly fuzz run $flags "$target" "$@"
}

seeds=$corpus
[ ! -d "../tests/hostile/$target" ] || seeds="$seeds ../tests/hostile/$target"
[ "$folder" = crates/cli/fuzz ] || seeds="$seeds ../tests/fixtures"
# shellcheck disable=SC2086
fuzz "$working" $seeds -- -max_total_time="$seconds" -max_len="$longest" -timeout=10 -rss_limit_mb=400 -malloc_limit_mb=24 \
    -print_funcs=0 -entropic=0

rm -rf "$corpus.new" && mkdir "$corpus.new"
# shellcheck disable=SC2086
fuzz "$corpus.new" "$working" $seeds -- -set_cover_merge=1 -use_counters=0 -max_len=8192
rm -rf "$corpus" && mkdir "$corpus"
kept=0
ls -Sr "$corpus.new" | while read -r name; do
    kept=$((kept + $(wc -c <"$corpus.new/$name")))
    [ $kept -le 150000 ] || break
    mv "$corpus.new/$name" "$corpus/"
done
rm -r "$corpus.new"

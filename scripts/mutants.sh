#!/usr/bin/env bash
# Puts every known bug of the core back, one at a time, and writes the failing tests to out/mutants.md.
#
#   MUTANTS="B2 B7" scripts/mutants.sh    only these; the other rows of the report stay
#   PAGE=file                             where the report goes
#   HUNT_SECONDS=n                        how long the simulation looks for each (90, and longer for the rare ones)
#   STORY_SECONDS=n                       after which stories that hang are ended (120)
#   BINARIES=folder                       where they are built already
#
# Fails where a story fails without any, and where a bug that is back passes the story that is named
# after it, or every life of the simulation although it could be seen there.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
page=${PAGE:-$root/out/mutants.md}

declare -A bug=(
    [B1]="no proof of ownership after a long sleep" [B2]="the fence is put behind the last file, not behind what is covered"
    [B3]="a flush covers entries of the next MemTable" [B4]="the replay does not end at its own sentinel"
    [B5]="a lost answer counts as the entry of another writer" [B6]="409 with nothing behind it counts as 412"
    [B7]="a claim writes no sentinel" [B8]="the wait counts batches of one MemTable"
    [B9]="a durable put does not wait" [B10]="a stopped job serves reads"
    [B11]="a replay queues what it read" [B12]="a replay starts at the first entry"
    [B13]="the queue changes places across a freeze" [B19-checksum]="no check of the checksum"
    [B19-cut]="no check of the end mark" [B19-hole]="no check for holes"
    [B19-manifest]="no check of a manifest's checksum" [B19-place]="no check of where an entry belongs"
    [B20]="a slot is empty while its key is replaced"
    [B20-list]="a list entry is gone while its key is replaced" [B21]="the claim comes before the checks"
    [B22]="appends go on behind a failure" [B23]="a drain raises the epoch"
    [B24]="a fold with a newer event forgets a replace" [B25]="bits of given columns are off by one"
    [B26]="a repeated write counts twice" [B26-log]="a replay forgets transaction ids"
    [B26-manifest]="a flush forgets transaction ids"
    [L1]="a sentinel goes on to the next position after 409" [L2]="a fenced job appends after its close"
    [L3]="an entry that was collected counts as the end of the log"
)
# The story that must fail, as docs/guarantees-evidence.md names it.
declare -A story=(
    [B1]=sleepers::a_writer_that_slept_longer_than_its_fence_stood_acknowledges_nothing
    [B2]=takeover::a_shard_whose_covered_log_was_collected_opens_and_goes_on_behind_it
    [B3]=recovery::a_flush_covers_no_entry_of_a_generation_that_is_still_in_memory
    [B4]=recovery::a_replay_that_meets_a_later_claim_ends_fenced_and_hides_none_of_its_rows
    [B5]=lost_answers::an_append_whose_answer_is_lost_is_recognised_as_ours_and_stands_once
    [B6]=known_bugs::a_conflict_that_left_nothing_behind_is_tried_again_and_is_no_other_writers_entry
    [B7]=recovery::a_fenced_writer_acknowledges_nothing_although_it_cannot_read_the_manifest
    [B8]=known_bugs::a_durable_put_is_not_acknowledged_by_the_entry_of_an_older_generation
    [B9]=known_bugs::a_durable_put_waits_for_its_entry
    [B10]=known_bugs::a_job_that_was_stopped_by_its_log_serves_no_reads
    [B11]=recovery::what_was_replayed_is_neither_appended_nor_indexed_again
    [B12]=recovery::a_replay_starts_right_behind_the_covered_entry
    [B13]=known_bugs::the_log_keeps_the_order_of_puts_across_a_freeze
    [B19-checksum]=damage_everywhere::damage_anywhere_in_a_log_entry_is_named_and_shows_no_wrong_row
    [B19-cut]=repair::an_entry_of_lance_that_was_cut_on_a_message_boundary_is_refused_reported_and_truncated
    [B19-hole]=damage::a_hole_in_the_log_is_named_and_heals_when_the_entry_comes_back
    [B19-manifest]=damage_everywhere::damage_anywhere_in_a_shard_manifest_is_named_by_readers_and_by_the_next_owner
    [B19-place]=damage::an_entry_in_the_place_of_another_is_named_whichever_shard_it_is_of
    [B20]=known_bugs::a_key_that_is_being_replaced_is_found_all_the_time
    [B20-list]=known_bugs::a_key_that_is_being_replaced_is_found_all_the_time
    [B21]=recovery::an_open_that_finds_damage_does_not_fence_the_incumbent
    [B22]=known_bugs::nothing_is_appended_behind_an_entry_that_failed
    [B23]=known_bugs::a_compactor_leaves_the_epoch_to_the_living_writer
    [B24]=merged_rows::a_replace_or_a_delete_still_counts_for_older_sources_when_newer_puts_follow
    [B25]=merged_rows::a_memtable_has_one_event_of_each_key_at_the_place_of_its_newest_row
    [B26]=txns::a_version_is_written_once_and_an_older_one_never
    [B26-log]=txns::an_append_that_landed_without_an_answer_counts_for_the_retry
    [B26-manifest]=txns::transaction_ids_of_several_generations_reach_the_manifest_with_their_rows
    [L1]=takeover::a_sentinel_that_met_a_conflict_leaves_no_hole
    [L2]=fencing::the_close_of_a_fenced_job_waits_for_the_append_that_runs_and_starts_no_other
    [L3]=recovery::an_entry_that_is_gone_is_the_end_of_the_log_only_where_no_flush_has_covered_it
)
# Why a life cannot show a bug.
declare -A unseen=([B20]="a life has one thread, the schedules find it")
# Seconds of a hunt for what few lives can show.
declare -A longer=([B1]=300 [B2]=300 [B19-cut]=300 [L3]=600)
order="B1 B2 B3 B4 B5 B6 B7 B8 B9 B10 B11 B12 B13 B19-checksum B19-cut B19-hole B19-manifest B19-place B20 B20-list B21 B22 B23 B24 B25 B26 B26-log B26-manifest L1 L2 L3"
MUTANTS=${MUTANTS:-$order}

cd rust/sim
if [[ -z ${BINARIES:-} ]]; then
    # Copies, so that a build beside this run changes nothing.
    BINARIES=$(mktemp -d)
    trap 'rm -r "$BINARIES"' EXIT
    # The simulation is built for its tests.
    cargo test --workspace --release --locked --no-run --test stories --test sleepers 2>&1 |
        sed -n 's/^ *Executable .*(\(.*\))$/\1/p' | xargs -I{} cp {} "$BINARIES/"
    cp "${CARGO_TARGET_DIR:-target}/release/lancemem-sim" "$BINARIES/"
fi

# What fails with $1 awake, one a line, also where others hang.
failing() {
    local binary
    for binary in "$BINARIES"/stories-* "$BINARIES"/sleepers-*; do
        LANCEMEM_MUTANT=$1 PROPTEST_CASES=20 PROPTEST_MAX_SHRINK_ITERS=0 \
            PROPTEST_DISABLE_FAILURE_PERSISTENCE=1 timeout "${STORY_SECONDS:-120}" \
            "$binary" --test-threads 16 2>/dev/null |
            sed -n -e 's/^test \([a-z_0-9:]*\) \.\.\. FAILED$/\1/p' | sed -e '/::/!s/^/sleepers::/'
    done | sort -u
}

# A story that fails without a bug would count as one that finds every bug.
failed=$(failing none || true)
if [[ -n $failed ]]; then
    echo "fails without a known bug:"$'\n'"$failed" >&2
    exit 1
fi

declare -A row
for mutant in $order; do
    row[$mutant]=$(grep -F "| $mutant | " "$page" 2>/dev/null || true)
done
write_page() {
    local rows="" mutant
    for mutant in $order; do
        [[ -z ${row[$mutant]} ]] || rows+="${row[$mutant]}"$'\n'
    done
    mkdir -p "$(dirname "$page")"
    cat >"$page" <<EOF
# Mutants

\`make mutants\` at commit $(git -C "$root" rev-parse --short HEAD): each bug of the core in the catalogue of
docs/guarantees.md, enabled alone. *Lives* is the median, over nine hunts, of the seeds that the simulation needs
until it fails; *more than n*: the time of the hunts (\`HUNT_SECONDS\`) was over after n seeds each. *Stories* counts
the tests of \`rust/core/tests\` and \`rust/sim/tests\` that fail; the last column names the bug's own.

| switch | bug | lives | stories | its story |
| --- | --- | ---: | ---: | --- |
${rows%$'\n'}
EOF
}

survived=""
for mutant in $MUTANTS; do
    failed=$(failing "$mutant" || true)
    count=$(printf '%s' "$failed" | grep -c . || true)
    if [[ -n ${unseen[$mutant]:-} ]]; then
        lives="none: ${unseen[$mutant]}"
    else
        lives=$(LANCEMEM_MUTANT=$mutant "$BINARIES/lancemem-sim" hunt "${HUNT_SECONDS:-${longer[$mutant]:-90}}")
    fi
    row[$mutant]="| $mutant | ${bug[$mutant]} | $lives | $count | \`${story[$mutant]}\` |"
    write_page
    echo "$mutant: $count stories, simulation $lives" >&2
    grep -qx "${story[$mutant]}" <<<"$failed" || survived+=" $mutant (its story)"
    [[ $lives != more* ]] || survived+=" $mutant (the simulation)"
done
if [[ -n $survived ]]; then
    echo "not caught:$survived" >&2
    exit 1
fi

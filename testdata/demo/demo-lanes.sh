#!/bin/sh
# Three lanes side by side on a scratch repository, from init to one integrated
# commit, with sh scripts in the place of agents. Run it with "make demo-lanes".
# It needs sh, coreutils, git and our own binaries on PATH, takes a few seconds
# and works in a directory of its own, which it removes (DEMO_KEEP=1 leaves it).
# Exit 0: everything came out as the text says.
set -u

# Nothing of the caller's settings may change what is shown.
unset PRUN_CONTAINMENT PRUN_WITHHOLD_ENV PRUN_STATE_DIR AGENT_FANOUT_QUIET AGENT_FANOUT_DEAD_START AGENT_FANOUT_TIMEOUT \
	GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE

wrong=0
say() { printf '%s\n' "$*"; }
head_line() { printf '\n== %s\n' "$*"; }
bad() {
	wrong=$((wrong + 1))
	printf 'demo-lanes: NOT AS EXPECTED: %s\n' "$*" >&2
}

for tool in agent-fanout git mktemp; do
	if ! command -v "$tool" >/dev/null 2>&1; then
		say "demo-lanes: $tool is not on PATH; run it as: make demo-lanes" >&2
		exit 2
	fi
done

demo=$(mktemp -d "${TMPDIR:-/tmp}/prun-lanes.XXXXXX") || exit 2
demo=$(cd "$demo" && pwd -P)
AGENT_FANOUT_STATE_HOME=$demo/state HOME=$demo/home GIT_CONFIG_NOSYSTEM=1
export AGENT_FANOUT_STATE_HOME HOME GIT_CONFIG_NOSYSTEM
run=''

# However the demo ends, no lane outlives it.
finish() {
	status=$?
	trap - EXIT
	trap '' HUP INT TERM
	[ -z "$run" ] || agent-fanout cleanup --run "$run" --drop-worktrees --force >/dev/null 2>&1
	if [ -n "${DEMO_KEEP:-}" ]; then
		say "Everything is still in $demo"
	else
		rm -rf "$demo"
	fi
	exit "$status"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# after PREFIX: the rest of the line of out that begins so. (sed and grep come with
# neither sh nor coreutils.)
after() {
	while IFS= read -r line; do
		case $line in "$1"*) printf '%s\n' "${line#"$1"}" ;; esac
	done <"$demo/out"
}

# step COMMAND...: shows a command, runs it, and counts a failure.
step() {
	say "\$ $*"
	"$@" || bad "status $? of: $*"
}

head_line 'A repository'
mkdir "$demo/home" "$demo/repo" "$demo/briefs" && cd "$demo/repo" || exit 2
git config --global user.name Demo
git config --global user.email demo@example.com
git config --global init.defaultBranch main
git init -q
printf 'title\n\nchapter one\n\nchapter two\n' >book.txt
printf '/cache/\n' >.gitignore
git add . && git commit -q -m 'a book'
mkdir cache && printf 'expensive\n' >cache/index
git log --oneline

head_line 'A run, and a lane for each phase'
agent-fanout init >"$demo/out" || bad 'init'
cat "$demo/out"
run=$(after run=)
integration=$(after integration_worktree=)
for phase in intro chapter index; do
	step agent-fanout add-lane --run "$run" --phase "$phase" --warm cache
done

head_line 'Three workers, started one after the other, at work side by side'
say 'Write an introduction.' >"$demo/briefs/intro.md"
say 'Write chapter two.' >"$demo/briefs/chapter.md"
say 'Make an index.' >"$demo/briefs/index.md"
lane() {
	phase=$1
	shift
	step agent-fanout start --run "$run" --phase "$phase" --brief "$demo/briefs/$phase.md" --runner command -- sh -c "$1"
}
# One edits, one commits although it was told not to and leaves a process
# behind, one makes new files.
lane intro 'cat; sleep 1; printf "title\n\nan introduction\n\nchapter one\n\nchapter two\n" >book.txt; echo "Done: introduction."'
lane chapter 'cat; (sleep 600 &); echo "and what it says" >>book.txt; git commit -q -a -m mine; echo "Done: chapter two."'
lane index 'cat; test -s cache/index && mkdir index && echo "chapter 3" >index/a.txt; echo "Done: index."'
step agent-fanout status --run "$run"

head_line 'Wait for all of them'
step agent-fanout wait --run "$run" --all --timeout 60

head_line 'Review and apply, one after the other, without a commit between'
for phase in intro chapter index; do
	step agent-fanout collect --run "$run" --phase "$phase" --patch "$demo/$phase.patch"
	[ -s "$demo/$phase.patch" ] || bad "no patch of $phase"
	step agent-fanout apply --run "$run" --phase "$phase" --check
	step agent-fanout apply --run "$run" --phase "$phase"
done

head_line 'One commit, landed'
git -C "$integration" commit -q -m 'introduction, chapter two, index' || bad 'commit'
git merge -q --ff-only "int-$run" || bad 'merge'
git log --oneline --stat -1
printf 'title\n\nan introduction\n\nchapter one\n\nchapter two\nand what it says\n' >"$demo/want"
[ "$(cat "$demo/want")" = "$(cat book.txt)" ] || bad "book.txt is $(cat book.txt)"
[ "$(cat index/a.txt)" = 'chapter 3' ] || bad 'no index'

head_line 'Clean up: what the worktrees held is saved first'
step agent-fanout cleanup --run "$run" --drop-worktrees --force
run=''
[ "$(git worktree list | wc -l)" -eq 1 ] || bad 'a worktree is left'
[ "$(git branch --list | wc -l)" -eq 1 ] || bad 'a branch is left'
step agent-fanout list

if [ "$wrong" -eq 0 ]; then
	head_line 'Everything came out as expected'
	exit 0
fi
say "demo-lanes: $wrong thing(s) were not as expected" >&2
exit 1

#!/bin/sh
# A fan-out of four units, from prompts to reconciliation, and a fifth that is
# interrupted by a crash, with sh scripts in the place of agents. Run it with
# "make demo". It needs sh, coreutils, git and our own binaries on PATH, takes
# about twenty-five seconds and works in a directory of
# its own, which it removes (DEMO_KEEP=1 leaves it). Exit 0: everything came out
# as the text says.
set -u

# Nothing of the caller's settings may change what is shown.
unset PRUN_BACKEND PRUN_SCRATCH_CWD PRUN_STALL_THRESHOLD PRUN_CLONE_LINKS PRUN_LEFTOVERS PRUN_WITHHOLD_ENV \
	CODEX_DISPATCH_TIMEOUT PRUN_MONITOR_POLL PRUN_MONITOR_TIMEOUT PRUN_MONITOR_STABLE_WINDOW \
	PRUN_GATHER_POLL PRUN_GATHER_STABLE_WINDOW AGENT_CONFIG_GATHER_TIMEOUT

wrong=0
say() { printf '%s\n' "$*"; }
head_line() { printf '\n== %s\n' "$*"; }
bad() {
	wrong=$((wrong + 1))
	printf 'demo: NOT AS EXPECTED: %s\n' "$*" >&2
}

for tool in prun-dispatch prun-monitor prun-gather prun-report prun-snapshot prun-reap git mktemp; do
	if ! command -v "$tool" >/dev/null 2>&1; then
		say "demo: $tool is not on PATH; run it as: make demo" >&2
		exit 2
	fi
done

demo=$(mktemp -d "${TMPDIR:-/tmp}/prun-demo.XXXXXX") || exit 2
demo=$(cd "$demo" && pwd -P)
PRUN_STATE_BASE=$demo/state
export PRUN_STATE_BASE
io=$demo/agent-io
out=$demo/out
mkdir "$PRUN_STATE_BASE" "$io" "$out" "$demo/workers"
children='' crashed=''

# However the demo ends, no unit outlives it: a front door that gets TERM ends
# its worker with everything below it, and waiting for it waits for that.
finish() {
	status=$?
	trap - EXIT
	trap '' HUP INT TERM
	for pid in $children; do
		kill -TERM "$pid" 2>/dev/null
	done
	wait
	[ -z "$crashed" ] || prun-reap --include-active >/dev/null 2>&1
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

# await FILE: until it holds a whole line, at most ten seconds.
await() {
	tries=0
	while ! [ -s "$1" ] || [ "$(wc -l <"$1")" -eq 0 ]; do
		tries=$((tries + 1))
		[ "$tries" -le 100 ] || return 1
		sleep 0.1
	done
}

# living PID: it runs. A dead process whose parent is gone may keep its number until
# the system's first process takes note.
living() {
	[ "$1" -gt 1 ] || return 1
	kill -0 "$1" 2>/dev/null || return 1
	[ -r "/proc/$1/stat" ] || return 0
	stat=$(cat "/proc/$1/stat" 2>/dev/null)
	case ${stat##*) } in Z* | X* | '') return 1 ;; esac
}

# What follows are sed and grep as far as the demo needs them: neither comes with
# sh or coreutils. read -r is given every line, also a last one without its end.

# field FILE KEY: the value of a JSON key that holds no quote.
field() {
	text=$(tr -d '\n' <"$1")
	case $text in *"\"$2\":"*) ;; *) return ;; esac
	text=${text##*"\"$2\":"}
	text=${text#"${text%%[! ]*}"}
	text=${text#\"}
	text=${text%%\"*}
	text=${text%%,*}
	printf '%s\n' "${text%%\}*}"
}

# guard FILE WHO: the process number that identity.json records for keeper or supervisor.
guard() {
	text=$(cat "$1")
	case $text in *"\"$2\":{\"pid\":"*) ;; *) return ;; esac
	text=${text##*"\"$2\":{\"pid\":"}
	printf '%s\n' "${text%%[!0-9]*}"
}

# indent FILE: its lines, set apart from the text of the demo.
indent() {
	while IFS= read -r line || [ -n "$line" ]; do printf '  %s\n' "$line"; done <"$1"
}

# after FILE PREFIX: the rest of each line that begins so.
after() {
	while IFS= read -r line || [ -n "$line" ]; do
		case $line in "$2"*) printf '%s\n' "${line#"$2"}" ;; esac
	done <"$1"
}

# count FILE PATTERN: how many lines the shell pattern matches. has: is there one.
count() {
	hits=0
	while IFS= read -r line || [ -n "$line" ]; do
		case $line in $2) hits=$((hits + 1)) ;; esac
	done <"$1"
	printf '%s\n' "$hits"
}
has() { [ "$(count "$1" "$2")" -gt 0 ]; }

# ---------------------------------------------------------------------------
# A repository to work on. Its configuration is its own, so the demo needs no
# git identity and obeys no setting of yours.
repo=$demo/greeter
(
	GIT_CONFIG_GLOBAL=/dev/null
	GIT_CONFIG_NOSYSTEM=1
	export GIT_CONFIG_GLOBAL GIT_CONFIG_NOSYSTEM
	git init -q "$repo" && cd "$repo" || exit
	printf '#!/bin/sh\necho "hello"\n' >greet.sh
	git add greet.sh
	git -c user.name=demo -c user.email=demo@example.invalid commit -q -m 'Greet'
) || exit 2
before=$(git -C "$repo" rev-parse HEAD)

# ---------------------------------------------------------------------------
# Four stand-ins for agents. Each gets its prompt on standard input and the path
# for its result in PRUN_RESULT_FILE.

cat >"$demo/workers/contract.sh" <<'END'
# result CONCLUSION FILES VERIFICATION: write the result in one operation.
result() {
	{
		printf '# %s result\n' "$PRUN_UNIT"
		printf 'Conclusion: %s\nFiles: %s\nOpen items: none\nVerification: %s\n\n' "$1" "$2" "$3"
		printf 'The request was:\n%s\n' "$prompt"
	} >"$PRUN_RESULT_FILE.part"
	mv "$PRUN_RESULT_FILE.part" "$PRUN_RESULT_FILE"
}
prompt=$(cat)
END

cat >"$demo/workers/code.sh" <<'END'
. "${0%/*}/contract.sh"
echo "reading greet.sh in $(pwd)"
printf '#!/bin/sh\necho "hello, ${1:-world}"\n' >greet.sh
printf '[ "$(sh greet.sh you)" = "hello, you" ] && echo ok\n' >test.sh
checked=$(sh test.sh)
echo "test says: $checked"
result 'greet.sh greets by name' 'greet.sh, test.sh' "sh test.sh: $checked"
END

cat >"$demo/workers/stream.sh" <<'END'
. "${0%/*}/contract.sh"
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
	echo "looked at source $i of 12"
	sleep 1
done
result 'twelve sources, one answer' 'none (read-only)' 'counted: 12'
END

cat >"$demo/workers/fail.sh" <<'END'
cat >/dev/null
echo "found half of the answer: 42"
echo "ERROR: the service closed the connection" >&2
exit 3
END

# It leaves a child behind whose parent is gone, as dev servers and browsers do.
cat >"$demo/workers/hang.sh" <<'END'
cat >/dev/null
echo "waiting for a permission that nobody can give"
(sleep 1000 & echo $! >"$1")
sleep 1000
END

# It has said something and works on when everything that watches it is killed.
cat >"$demo/workers/crash.sh" <<'END'
cat >/dev/null
(sleep 1000 & echo $! >"$1.part"; mv "$1.part" "$1")
echo "read 40 of 60 files; the fault is in the parser"
sleep 1000
END

# ---------------------------------------------------------------------------
head_line '1. Decompose: one prompt a unit'
say "Prompts, results and the ledger lie together in a folder named agent-io:"
say "  $io"
cat >"$io/code.prompt.md" <<'END'
Make greet.sh greet by name. You are in a throwaway clone: edit freely, never commit or push.
END
cat >"$io/stream.prompt.md" <<'END'
Survey twelve sources and say what they agree on. Read only.
END
cat >"$io/fail.prompt.md" <<'END'
Ask the service for the answer.
END
cat >"$io/hang.prompt.md" <<'END'
Do something that needs a permission.
END
cat >"$io/crash.prompt.md" <<'END'
Find the fault in sixty files.
END

head_line '2. Dispatch: four units at once'
# dispatch UNIT OPTIONS...: in the background; its STATE-DIR line goes to a file.
dispatch() {
	unit=$1
	shift
	say "\$ prun-dispatch --unit-id $unit ... $*"
	prun-dispatch --backend command --prompt-file "$io/$unit.prompt.md" --result-file "$io/$unit.result.md" \
		--unit-id "$unit" --ledger "$io/ledger.jsonl" "$@" >"$out/$unit.out" 2>"$out/$unit.err" &
	eval "pid_$unit=\$!"
	children="$children $!"
}
# Three seconds without a new byte of output count as hung. Ten minutes is the
# default; nobody wants to watch that in a demo. The second limit is a net below
# the first.
PRUN_STALL_THRESHOLD=3 CODEX_DISPATCH_TIMEOUT=45
export PRUN_STALL_THRESHOLD CODEX_DISPATCH_TIMEOUT
dispatch code --clone "$repo" -- sh "$demo/workers/code.sh"
dispatch stream -- sh "$demo/workers/stream.sh"
dispatch fail -- sh "$demo/workers/fail.sh"
dispatch hang -- sh "$demo/workers/hang.sh" "$out/child"
unset PRUN_STALL_THRESHOLD CODEX_DISPATCH_TIMEOUT

for unit in code stream fail hang; do
	if ! await "$out/$unit.out"; then
		bad "$unit printed no STATE-DIR line within ten seconds:"
		cat "$out/$unit.err" >&2
		exit 1
	fi
	dir=$(after "$out/$unit.out" 'STATE-DIR ')
	[ -d "$dir" ] || bad "state directory of $unit does not exist: $dir"
	eval "dir_$unit=\$dir"
done
say 'Each printed one line on standard output, the place where its files lie:'
for unit in code stream fail hang; do
	say "  $(cat "$out/$unit.out")"
done
say 'The agents of this demo are small scripts. code works in a throwaway clone of a'
say 'repository; stream takes twelve seconds; fail exits with 3; hang never ends.'

# ---------------------------------------------------------------------------
head_line '3. Monitor: wait for the first thing that needs attention'
PRUN_MONITOR_POLL=1 PRUN_MONITOR_STABLE_WINDOW=1 PRUN_MONITOR_TIMEOUT=40
export PRUN_MONITOR_POLL PRUN_MONITOR_STABLE_WINDOW PRUN_MONITOR_TIMEOUT
running='code stream fail hang'
failed='' finished='' round=0
while [ -n "$running" ]; do
	round=$((round + 1))
	set --
	for unit in $running; do
		eval "set -- \"\$@\" \"\$dir_$unit\""
	done
	say "\$ prun-monitor$(printf ' <%s>' $running)"
	# In the background and waited for, so that a signal to us is answered now.
	prun-monitor "$@" >"$out/monitor" 2>"$out/monitor.err" &
	set -- "$children"
	children="$children $!"
	wait "$!"
	status=$?
	children=$1
	indent "$out/monitor"
	say "  exit $status"
	if [ "$status" -ne 0 ] && [ "$status" -ne 3 ] || [ "$round" -gt 6 ]; then
		bad "prun-monitor ended with $status in round $round"
		cat "$out/monitor.err" >&2
		break
	fi
	still='' gone=''
	for unit in $running; do
		eval "name=\${dir_$unit##*/}"
		is=$(after "$out/monitor" "UNIT $name ")
		case $is in
		done) finished="$finished $unit" ;;
		failed*) failed="$failed $unit" gone="$gone $unit" ;;
		growing | finishing) still="$still $unit" ;;
		*) bad "prun-monitor says of $unit: $is" ;;
		esac
	done
	if [ "$status" -eq 0 ] && [ -n "$still" ]; then
		bad "prun-monitor said all-done while these were not:$still"
	fi
	[ -z "$gone" ] || say "Failed:$gone. That needs a decision, so the monitor came back at once (exit 3)."
	if [ -n "$still" ]; then
		say "Still running:$still. The monitor is started again, on these only."
	else
		say 'Nothing is running any more.'
	fi
	running=$still
done
[ "$failed" = ' fail hang' ] || bad "the monitor reported as failed:$failed"
case $finished in
' code stream' | ' stream code') ;;
*) bad "the monitor reported as done:$finished" ;;
esac

# ---------------------------------------------------------------------------
head_line '4. How each unit ended'
say 'That a result file exists does not mean that the run went well. The exit status of'
say 'prun-dispatch says it, and outcome.json in the state directory says it for good.'
# ended UNIT CODE CAUSE RESULT MEANING
ended() {
	eval "wait \"\$pid_$1\"; code=\$?; dir=\$dir_$1"
	cause='' result='' proven='' means=''
	if [ -f "$dir/outcome.json" ]; then
		cause=$(field "$dir/outcome.json" cause)
		result=$(field "$dir/outcome.json" result)
		proven=$(field "$dir/outcome.json" proven_empty)
		means=$(field "$dir/outcome.json" containment)
	fi
	printf '  %-7s exit %-4s cause %-11s result %-9s %s\n' "$1" "$code" "$cause" "$result" "$5"
	[ "$code" = "$2" ] || { bad "$1 ended with $code, not $2"; cat "$out/$1.err" >&2; }
	[ "$cause" = "$3" ] || bad "cause of $1 is '$cause', not $3"
	[ "$result" = "$4" ] || bad "result of $1 is '$result', not $4"
}
ended code 0 exited worker 'wrote code and its own result'
ended stream 0 exited worker 'took its time, wrote its own result'
ended fail 3 failed fallback 'failed; its output was salvaged into the result path'
ended hang 124 idle-stall fallback 'silent for 3 s; ended with everything it had started'
children=''

child=$(cat "$out/child")
if kill -0 "$child" 2>/dev/null; then
	bad "the child that hang left behind (process $child) is still alive"
else
	say "hang had left an orphan behind, process $child. It is gone too: containment $means, proven_empty $proven."
fi
say 'fail wrote no result, so what it had said was put there, under a header that says so:'
head -n 2 "$io/fail.result.md" >"$out/head"
indent "$out/head"
has "$io/fail.result.md" '*found half of the answer: 42*' || bad 'the FALLBACK lost what the worker had said'

# ---------------------------------------------------------------------------
head_line '5. Gather: wait for result files'
PRUN_GATHER_POLL=1 PRUN_GATHER_STABLE_WINDOW=1 AGENT_CONFIG_GATHER_TIMEOUT=20
export PRUN_GATHER_POLL PRUN_GATHER_STABLE_WINDOW AGENT_CONFIG_GATHER_TIMEOUT
say '$ prun-gather code.result.md stream.result.md'
prun-gather "$io/code.result.md" "$io/stream.result.md" >"$out/gather"
status=$?
indent "$out/gather"
say "  exit $status"
[ "$status" -eq 0 ] || bad "prun-gather ended with $status"
[ "$(count "$out/gather" 'DONE *')" -eq 2 ] || bad 'prun-gather did not print two DONE lines'

head_line '6. Reconcile: is there a usable result for every unit of the ledger?'
say '$ prun-gather --ledger ledger.jsonl'
prun-gather --ledger "$io/ledger.jsonl" >"$out/reconcile" 2>"$out/reconcile.err"
status=$?
indent "$out/reconcile"
say "  exit $status"
[ "$status" -eq 3 ] || { bad "prun-gather --ledger ended with $status, not 3"; cat "$out/reconcile.err" >&2; }
for unit in fail hang; do
	has "$out/reconcile" "UNRECONCILED $unit fallback *" || bad "no UNRECONCILED line for $unit"
done
[ "$(count "$out/reconcile" 'UNRECONCILED *')" -eq 2 ] || bad 'there are not exactly two UNRECONCILED lines'
say 'Exit 3 means: do not integrate this set yet. Dispatch fail and hang again, or ask the user.'

# ---------------------------------------------------------------------------
head_line '7. After a crash: report, snapshot, reap'
PRUN_STALL_THRESHOLD=0
export PRUN_STALL_THRESHOLD
dispatch crash -- sh "$demo/workers/crash.sh" "$out/orphan"
unset PRUN_STALL_THRESHOLD
if ! await "$out/crash.out" || ! await "$out/orphan"; then
	bad 'crash has not started within ten seconds:'
	cat "$out/crash.err" >&2
	exit 1
fi
dir_crash=$(after "$out/crash.out" 'STATE-DIR ')
await "$dir_crash/tail" && await "$dir_crash/worker.json" || bad 'crash said nothing within ten seconds'
say 'Now everything that watches it is killed at once, as by a crash: front door, keeper and'
say 'supervisor. Nothing can end the worker any more, and nobody will write a result.'
keeper=$(guard "$dir_crash/identity.json" keeper)
supervisor=$(guard "$dir_crash/identity.json" supervisor)
crashed=yes
if [ "${keeper:-0}" -gt 1 ] && [ "${supervisor:-0}" -gt 1 ]; then
	kill -9 "$pid_crash" "$keeper" "$supervisor"
else
	bad "identity.json of crash names keeper '$keeper' and supervisor '$supervisor'"
	kill -9 "$pid_crash"
fi
wait "$pid_crash" 2>/dev/null
children=''
# A process that was killed needs a moment of the processor to be gone.
tries=0
while living "${keeper:-0}" || living "${supervisor:-0}"; do
	tries=$((tries + 1))
	[ "$tries" -le 100 ] || { bad 'keeper and supervisor outlive a KILL'; break; }
	sleep 0.1
done
orphan=$(cat "$out/orphan")
living "$orphan" || bad "the worker's child (process $orphan) is gone already"
say '$ prun-report'
prun-report >"$out/report" 2>"$out/report.err"
status=$?
indent "$out/report"
say "  exit $status"
[ "$status" -eq 0 ] || { bad "prun-report ended with $status"; cat "$out/report.err" >&2; }
has "$out/report" 'prun-task-*-crash-* missing *resolved *' || bad 'prun-report does not show crash without a result'
[ "$(count "$out/report" '* present *')" -eq 4 ] || bad 'prun-report does not show four results'
say '$ prun-snapshot --all --dest tails'
prun-snapshot --all --dest "$demo/tails" >"$out/snapshot" 2>&1
status=$?
indent "$out/snapshot"
say "  exit $status"
[ "$status" -eq 0 ] || bad "prun-snapshot ended with $status"
archive=$(after "$out/snapshot" "published ${dir_crash##*/} ")
{ [ -f "$archive" ] && prun-snapshot --verify "$archive" >/dev/null; } || bad 'there is no good archive of the output of crash'
[ "$(count "$out/snapshot" 'published *')" -eq 1 ] || bad 'prun-snapshot did not publish exactly one archive'
for how in --dry-run ''; do
	say "\$ prun-reap${how:+ $how}"
	prun-reap $how >"$out/reap" 2>"$out/reap.err"
	status=$?
	indent "$out/reap"
	say "  exit $status"
	[ "$status" -eq 0 ] || { bad "prun-reap $how ended with $status"; cat "$out/reap.err" >&2; }
	if [ -n "$how" ]; then
		has "$out/reap" 'WOULD-REAP prun-task-*-crash-*' || bad 'prun-reap --dry-run would not reap crash'
		living "$orphan" || bad 'the dry run ended something'
	fi
done
if living "$orphan"; then
	bad "the child of crash (process $orphan) is still alive"
elif has "$out/reap" 'REAPED prun-task-*-crash-*'; then
	say 'REAPED: the kernel proves that nothing of crash is left.'
elif has "$out/reap" 'TERMINATED prun-task-*-crash-*'; then
	say 'TERMINATED: all that could be verified is gone. Only a control group could prove more.'
else
	bad 'prun-reap has no line for crash'
fi
[ "$(field "$dir_crash/outcome.json" cause)" = lost ] || bad 'the outcome of crash is not lost'
has "$io/crash.result.md" '*the fault is in the parser*' || bad 'the FALLBACK of crash lost what the worker had said'
prun-reap >"$out/reap" 2>&1 && [ "$(count "$out/reap" '?*')" -eq 2 ] || bad 'a second prun-reap still finds something'
say 'Its output is at the result path, its outcome says lost, and a second prun-reap finds nothing.'

head_line '8. Integrate: you read the diff, you decide'
clone=$(cat "$dir_code/clone-dir")
say "\$ git -C <clone> diff"
git -C "$clone" --no-pager diff --no-color >"$out/diff"
indent "$out/diff"
git -C "$clone" status --short >"$out/status"
indent "$out/status"
has "$out/diff" '+echo "hello, ${1:-world}"' || bad 'the diff of the clone does not show the new line'
[ -z "$(git -C "$clone" remote)" ] || bad 'the clone still has a remote'
if [ "$(git -C "$repo" rev-parse HEAD)" = "$before" ] && [ -z "$(git -C "$repo" status --porcelain)" ]; then
	say 'The clone has no remote to push to, and the repository itself is unchanged.'
else
	bad 'the repository was changed'
fi

head_line 'Summary'
if [ "$wrong" -ne 0 ]; then
	say "$wrong things did not come out as expected; see the lines marked NOT AS EXPECTED."
	exit 1
fi
say 'Four units ran at once. Two wrote results. One failed and one hung; both were noticed,'
say 'their output was kept, and nothing of them is still running. A fifth outlived everything'
say 'that watched it, and was found, kept and ended all the same.'
exit 0

// Package session owns herd's tasks on disk: a directory for each, its files, its turns, its states, and every way in
// which a record is read, changed, brought up to date and removed. It implements supervise.Record, so that a turn is
// one supervised unit like any other.
//
// It does not own how a worker is started, watched and ended (pkg/supervise), what a backend's bytes mean (pkg/agent)
// or how events are capped (pkg/eventlog), and it prints nothing.
//
// Invariants. A turn has one end, recorded by whoever holds its unit's lock, and a state that ends a turn changes only
// when the next one begins or when a user kills a task that waits for an answer. While a supervisor lives only it
// judges its turn. A record is changed under its lock by one at a time, and a writer of an older turn is refused. No
// process is signalled by a bare number. Directories of the original are read for ever: keys and files are only added,
// and unknown ones kept.
//
// # Files of a task, <state root>/sessions/<device>/<task>
//
//	file              | writer                    | how               | absent means
//	meta.json         | verbs, supervisor         | replace           | not a task yet, or damaged
//	status.json       | verbs, whoever concludes  | replace           | never settled
//	helper.json       | supervisor                | replace           | no turn was started
//	child.json        | supervisor                | replace           | no worker was started in this turn
//	prompt.md         | verbs                     | replace           | damaged
//	report.md         | supervisor                | replace           | no message in this turn
//	events.jsonl      | supervisor                | append, capped    | no worker was ever started, or too old
//	events.jsonl.N.zst| supervisor                | replace           | the events fit into one file, or were dropped
//	stderr.log        | supervisor                | append, capped    | no worker was ever started
//	.done             | whoever concludes, last   | write, removed    | a turn is going on, or was not concluded
//	lock              | verbs                     | lock              | made by the original
//	.meta.lock        | whoever changes meta.json | lock              | made by the original
//	pi-session        | pi                        | its own           | another backend
//	turns/N           | supervisor                | rename when whole | the turn never started
//
// Beside the files of its unit (see pkg/state) a turn's directory has prompt.md and report.md of that turn, turn.json
// (how it ended, for the record), events-from (where its events begin), stop-request (what a verb asked for) and
// leftovers-ended (nothing that it left alive is left).
package session

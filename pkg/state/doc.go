// Package state owns what is on disk in a unit's state directory: the names,
// the formats, the legal values, and the readers and writers. It owns the
// ledger and the claim on a result path as well.
//
// It does not own what a unit does (pkg/supervise), what stands at the result
// path (pkg/result), or what a tool makes of any of it: an [Observation] is
// what is there, a [Liveness] what may be concluded from it, an [Outcome] what
// happened, and three tools say it in three ways.
//
// Invariants. Every file has one writer. The terminal marker, outcome.json, is
// published last of all, whole, once, and never changed. Readers never block,
// read a bounded number of bytes, accept keys and files they do not know, and
// read the directories of every version there ever was; keys that they do not
// know survive being read and written. Directories are 0700 and files 0600
// whatever the umask, which is never changed, so that a worker has its caller's.
//
// # Files
//
// The same table is in prun-state(5) and a test compares the two. "codex", "agy"
// and "ps1" are the scripts that came before: the shell, Python and PowerShell
// fronts; "1.0" is this suite. "Front" is the process that prints STATE-DIR.
// Files "before STATE-DIR" are complete when that line is printed. How: "write"
// is a plain write of a new file, "replace" a rename over the old one, "publish"
// a link that never replaces. "Whoever concludes" is the supervisor, else its
// keeper, else prun-reap, and always holds the lock.
//
//	file                  | writer                  | when                      | how                 | absent means                                | since
//	lock                  | supervisor              | first of all              | lock, held for life | older version: pid and start decide         | 1.0
//	launch.json           | supervisor              | before STATE-DIR          | write               | older version                               | 1.0
//	identity.json         | supervisor              | before STATE-DIR          | replace, synced     | older version: a number that proves nothing | 1.0
//	.outcome              | supervisor              | before STATE-DIR          | reserve, removed    | settled, or older version                   | 1.0
//	pre-mtime             | supervisor              | before STATE-DIR          | write               | not a whole unit                            | codex
//	timestamp             | supervisor              | before STATE-DIR          | write               | not a whole unit                            | codex
//	result-file           | supervisor              | before STATE-DIR          | write               | not a whole unit                            | codex
//	dispatch-pid          | supervisor              | before STATE-DIR          | write               | not a whole unit                            | codex
//	python-interpreter    | supervisor              | before STATE-DIR          | write               | codex front                                 | agy
//	work                  | supervisor              | before STATE-DIR          | mkdir               | another working directory was given         | codex
//	clone-dir             | supervisor              | before STATE-DIR          | write               | no clone was asked for                      | 1.0
//	clone                 | supervisor              | before launch             | git clone           | no clone was asked for, or it failed        | 1.0
//	queued                | supervisor              | while it waits for a slot | replace, removed    | not waiting                                 | 1.0
//	quota-note            | supervisor              | before launch             | append              | nothing was rerouted                        | agy
//	model                 | supervisor              | before launch             | replace             | blocked, or no model named                  | agy
//	preflight-tail        | supervisor              | before launch             | replace             | no preflight                                | agy
//	prompt-relay          | supervisor              | before launch             | write               | not launched, or no relay                   | agy
//	prompt                | supervisor              | before launch             | write               | older version: the prompt came by a pipe    | 1.0
//	env-withheld          | supervisor              | before launch             | write               | nothing was withheld                        | agy
//	tail                  | worker, then the reaper | from its start            | append              | not started                                 | codex
//	tail.stderr-tmp       | worker, else front      | from its start            | append              | shares the tail, or not started             | agy
//	worker.json           | supervisor              | after the start           | replace             | not started, or older version               | 1.0
//	worker-pid-unverified | supervisor              | after the start           | write               | not started, or codex front                 | agy
//	detached              | keeper of an inner unit | when that unit detaches   | lock, held for life | no unit detached from inside this one       | 1.0
//	conversation-id       | supervisor              | when the worker says it   | replace             | not said, or not yet                        | agy
//	worker-exit           | supervisor or keeper    | when the end is seen      | write               | not ended, or not seen                      | 1.0
//	spare-result          | whoever concludes       | at the end                | replace             | the result path took it                     | 1.0
//	outcome.json          | whoever concludes       | last of all               | publish, synced     | running, lost, or older version             | 1.0
//	reap-reason           | old watchdog            | before its kill           | write               | not reaped by it                            | ps1
//	reap.cmd              | old watchdog            | before its kill           | write               | not reaped by it                            | ps1
//	run-task.cmd          | old front               | while it ran              | write, removed      | the usual case                              | ps1
//
// The result path itself is the worker's to write; when it did not, the
// supervisor publishes the response or the salvage there (pkg/result).
//
// A directory whose name begins with .new- is still being built and is no unit.
// Beside the state directories stand .prun-claim-* files, locks on result paths;
// beside a ledger stands .<name>.lock.
package state

package main

const manualText = `agent-fanout keeps parallel implementation work on one repository apart and durable. A run has an integration worktree; each phase of the work is ` +
	`a lane with a worktree of its own, in which a headless agent works on a brief under a supervisor. The caller writes the briefs, reviews every patch, merges, and runs the final tests.

Nothing depends on the caller staying alive: lanes go on, keep their results, and status tells what is true after any crash. What a worker starts ends with it, ` +
	`also what left its process group or session.

Standard output holds key=value lines and tables with tabs, and nothing of git's; people are talked to on standard error.`

const statesText = `created, dispatching, running, then one of succeeded, failed, cancelled or interrupted; cancelling while a cancellation is under way.

failed with exit code 124 means that a limit ended the worker. interrupted means that the supervisor was lost or was told to stop; status then says which processes are still alive, or that ` +
	`none is. A lane that has not succeeded may be started again.`

const limitsText = `Three limits end a worker, and 0 turns each off: --dead-start when there was no sign of progress since the start, --quiet when there was none for ` +
	`so long, --timeout after so long whatever happens. Progress is output, a growing result, or a change in the worktree, ignored files included. For codex the first event ` +
	`(thread.started) is no progress, and neither are its notices of reconnecting. The defaults are 600 seconds for codex's dead start and quiet, 3600 for the quiet of ` +
	`all others (a client may print nothing until its end), and no timeout.`

const patchesText = `A lane's patch is always taken against the commit that the lane started from, so that it does not matter whether the worker committed, staged, switched the branch or did none of these. ` +
	`It is binary-safe and the same under any git configuration. Nothing in the worktree or its index is changed by taking it.`

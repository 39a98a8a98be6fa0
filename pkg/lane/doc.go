// Package lane owns the state of agent-fanout: runs and their lanes, one value
// per file, in the layout of the original so that its callers and its old
// states keep working; and what a lane adds to the life of a supervised unit.
//
// It does not own the worktrees (package git makes them), the processes
// (package supervise), nor a word of any tool's output.
//
// Invariant: a lane's status never says that something runs when nothing does,
// and what ended keeps its result, whoever was killed at whatever moment: the
// unit's outcome is the truth, the status file its copy.
//
// # Files
//
//	claims/<run>/{repo-id,run-dir}       made first; the directory is the claim on the id
//	runs/<repo-id>/<run>/                the run
//	  sid repo-id main invoking-worktree tmux-socket integration-worktree integration-branch
//	  base-ref base-commit status error
//	  closing                            while the run is being cleaned up
//	  locks/run, locks/<phase>           held while somebody changes the run or starts the lane
//	  lanes/<phase>/                     the lane; .new-<phase> while it is being made
//	    phase worktree branch base base-ref status runner brief.md
//	    result.md run.log events.jsonl   what the last worker said
//	    result run-log event-log         the paths of the three, where there are such files
//	    wrapper.pid wrapper.start child.pid child.pgid child.start cancel.request exit-code
//	    unit                             number of the unit that the status speaks of
//	    unit-<n>/                        that unit's directory, see prun-state(5); earlier ones keep
//	                                     the files of their workers
//	    saved.patch saved.bundle         the lane's work, written before its worktree was dropped
package lane

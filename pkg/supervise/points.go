package supervise

// The parties that reach a named step.
const (
	partyFront      = "F"
	partyKeeper     = "K"
	partySupervisor = "S"
	partyReaper     = "R"
)

// WritePoints lists the steps whose writing a build with the tag crashpoints can
// make fail, by PRUN_FAIL_AT: the directory, the locks, the leaf, what it holds,
// its name, what the worker reads, what it writes, its record, its end, the
// result, the outcome.
func WritePoints() []string {
	return []string{"S2", "S3", "S4", "S5", "S6", "S7b", "S8a", "S9", "C1", "C4", "C7"}
}

// Points lists every named step of a unit's life in order (the names are those
// of the design's start and conclude tables). A build with the tag crashpoints
// is killed, or stopped, at the steps that PRUN_CRASH_AT names.
func Points() []string {
	return []string{
		"F1", "F2", "K1", "K2", "S1", "S2", "S3", "S4", "S5", "S6", "S7", "F6",
		"S7a", "S8", "S8a", "S9",
		"C0", "C1", "C2", "C3", "C4", "C5.1", "C5.2", "C5.3", "C5.4", "C5.5", "C5", "C6", "C7a", "C7", "C8", "C9",
	}
}

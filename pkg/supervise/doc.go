// Package supervise owns the life of one unit, from the front door to the
// published outcome: who starts whom, what is recorded when, how a stop is
// asked for, and what is true after any of the parties was killed.
//
// Four processes take part, each in a session of its own:
//
//	front door -> keeper -> supervisor -> worker
//
// The front door ([Front]) checks, prints its line and waits. The supervisor
// ([Supervise]) owns the unit: it makes the state directory, starts the
// worker, watches it, ends its tree, publishes result and outcome. The keeper
// ([Keep]) does nothing but outlive the supervisor: when the supervisor is
// killed the kernel hands everything below it to the keeper, which sweeps it
// and concludes the unit with the same code. On Windows the closing job takes
// the keeper's place.
//
// The package does not know what a backend's bytes mean (pkg/agent), how a
// tree is proven empty (pkg/proc), what a file is called (pkg/state) or how a
// result is published without losing another's (pkg/result). It only puts them
// in the one order in which a kill -9 between any two steps leaves a truth
// behind. Every such step is named ([Points]) and a test build can be killed
// at each.
//
// Invariant: once STATE-DIR was printed, the unit ends with exactly one
// outcome.json, or with a free lock and none, which readers call lost.
package supervise

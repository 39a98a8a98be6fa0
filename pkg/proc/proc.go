// Package proc owns one started process and everything under it.
//
// A worker is born contained, before its first instruction: in a cgroup leaf
// where one can be made, and always below this process as a subreaper (Linux);
// in a job object (Windows); in a process group (macOS). [Group.End] ends the
// tree and says in a [Proof] whether it is proven empty, by which means it
// looked, and what is left. "Killed" and "proven gone" are two facts.
//
// It also owns the start of a process that outlives us ([Detach]) and the
// bounded short command ([Run]). It does not decide when to end anything, keeps
// no files and reads no output.
//
// Invariant: there is one owner of every wait. While a [Group] lives, one
// thread is in waitid(P_ALL) and nothing else in this process may start or
// wait for a child; nothing in here ever calls wait4(-1).
package proc

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
)

// Containment is the means by which a tree is held, as recorded in identity
// and outcome.
type Containment string

// The means, strongest first. All but GroupOnly can prove that a tree is gone.
const (
	Cgroup    Containment = "cgroup"    // a leaf of our own and the subreaper
	Subreaper Containment = "subreaper" // Linux without a usable cgroup
	Job       Containment = "job"       // Windows
	GroupOnly Containment = "group"     // macOS: a process that leaves its session and loses its parent can escape
)

// Mode is the value of PRUN_CONTAINMENT.
type Mode string

// The modes. Auto takes a cgroup where one is usable.
const (
	ModeAuto      Mode = "auto"
	ModeCgroup    Mode = "cgroup"
	ModeSubreaper Mode = "subreaper"
)

// ParseMode reads the value of PRUN_CONTAINMENT; the empty text means auto.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case "":
		return ModeAuto, nil
	case ModeAuto, ModeCgroup, ModeSubreaper:
		return m, nil
	}
	return "", fmt.Errorf("read containment mode %q: not one of auto, cgroup, subreaper", s)
}

// Exit is how a process ended.
type Exit struct {
	Code   int // the exit code; 128+Signal when it died of a signal
	Signal int // the signal that it died of, else 0
}

// Status returns the number by which a shell would report the end.
func (e Exit) Status() int { return e.Code }

// DefaultBound is how long [Group.End] and [Sweep] try when not told.
const DefaultBound = 10 * time.Second

// BecomeReaper makes this process inherit every process below it that loses
// its parent (PR_SET_CHILD_SUBREAPER). It does nothing where there is no such
// thing.
func BecomeReaper() error { return becomeReaper() }

// CloseOnExecAbove marks every descriptor above fd as closed at exec, so that
// nothing started later holds our caller's pipes open. It does nothing on
// Windows, where handles are inherited one by one.
func CloseOnExecAbove(fd int) error { return closeOnExecAbove(fd) }

// Children returns the direct children of this process, whichever thread
// started or adopted them, zombies included. An empty list is no proof that
// there is none: the kernel's list is not a snapshot.
func Children() ([]int, error) { return children() }

// PremakeThreads makes the runtime hold at least n idle threads. A Go process
// that needs a new thread while a worker has filled the process table dies
// ("failed to create new OS thread"); one that already has them does not.
func PremakeThreads(n int) { premakeThreads(n) }

// Orphans returns the processes of this user whose environment holds
// PRUN_STATE_DIR=mark: what may be left of a unit whose guards are all dead.
// It is a search, not a proof, since a process may clear its environment.
// This process and its ancestors are never in it. Linux and Windows; elsewhere
// the error wraps errors.ErrUnsupported.
func Orphans(mark string) ([]pid.ID, error) { return orphans(mark) }

// Traces are the signs by which the processes of a tree are known once
// everybody who held it is dead.
type Traces struct {
	// Marks are values of PRUN_STATE_DIR in a process's environment.
	Marks []string
	// Worker is the leader of the tree. While it lives, its session belongs to
	// the tree.
	Worker pid.ID
	// Outputs are the resolved paths of files that only the tree has open for
	// writing.
	Outputs []string
	// Spare names processes that do not belong to the tree although they are
	// in it, with all that is below them.
	Spare func(pid int) bool
}

// Find returns the processes of this user that bear one of the traces, and
// what is below them, whoever's that is. Like [Orphans] it proves nothing: a
// process may have cleared its environment, closed its output and left the
// session. Linux, and by marks and worker alone Windows; elsewhere the error
// wraps errors.ErrUnsupported.
func Find(t Traces) ([]pid.ID, error) { return find(t) }

// ZombieChild returns how the child p of this process ended, without taking
// it: its number stays pinned. It is false while p lives, when it is no child
// of ours, and where the system cannot say.
func ZombieChild(p int) (Exit, bool) { return zombieChild(p) }

// Spec is a worker to start.
type Spec struct {
	Path string   // program; a name without a slash is looked up in the PATH of Env
	Args []string // arguments with argv[0]; none means Path alone
	Env  []string // the whole environment; nil means empty, never ours
	Dir  string   // working directory; a relative Path counts from it; "" means ours

	// The three descriptors of the worker; nil means the null device. They are
	// files, never pipes of ours, so that no byte depends on our life.
	Stdin, Stdout, Stderr *os.File

	Leaf        *Leaf // cgroup to be born in, nil for none; End removes it
	OOMScoreAdj int   // oom_score_adj of the worker, so that it goes before its guards; 0 leaves ours
	Nice        int   // added niceness; 0 leaves ours
}

// StartError is why a process could not be started. Nothing of it has run.
type StartError struct {
	Path string
	// Errno is the system's number, 0 when there is none.
	Errno syscall.Errno
	// NotFound: there is no such program (a shell exits with 127).
	NotFound bool
	// NotExecutable: it is there and cannot be executed (126).
	NotExecutable bool
	Err           error
}

// Error names the program and the cause.
func (e *StartError) Error() string { return fmt.Sprintf("start %s: %v", e.Path, e.Err) }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Status returns 127, 126, or 0 when it is neither of the two.
func (e *StartError) Status() int {
	switch {
	case e.NotFound:
		return 127
	case e.NotExecutable:
		return 126
	}
	return 0
}

// Group is a worker and everything under it.
type Group struct {
	id          pid.ID
	containment Containment
	note        string
	done        chan struct{}
	exit        Exit // written before done is closed
	platform
}

// Start starts a worker, contained and as the leader of its own session with
// default signal dispositions, an empty signal mask and descriptors 0 to 2
// only. The errors are [*StartError] and [ErrBusy]: a process holds one Group
// at a time, and after Start it must start and wait for nothing else until
// [Group.End] has returned. When the start into s.Leaf fails although the
// program is fine, the leaf is removed, the worker started below the subreaper
// alone, and [Group.Note] says why. After an error the leaf is untouched.
func Start(s Spec) (*Group, error) { return start(s) }

// ID returns who the leader is.
func (g *Group) ID() pid.ID { return g.id }

// Containment returns the means that hold the tree.
func (g *Group) Containment() Containment { return g.containment }

// Note says what went otherwise than asked at the start, or "".
func (g *Group) Note() string { return g.note }

// Done is closed when the leader has ended. Until End it stays a zombie, which
// pins its number, and orphans that die meanwhile are not reaped: call End
// soon.
func (g *Group) Done() <-chan struct{} { return g.done }

// Exit returns how the leader ended. It is valid once Done is closed.
func (g *Group) Exit() Exit {
	select {
	case <-g.done:
		return g.exit
	default:
		return Exit{}
	}
}

// Signal sends sig to the leader's whole process group, then SIGCONT, so that
// a stopped worker gets it too. It works from Start until End, also after
// Done. On Windows every signal but SIGKILL is a CTRL_BREAK where the worker's
// console can be reached; SIGKILL, and any signal that cannot be passed on,
// terminates the job.
func (g *Group) Signal(sig syscall.Signal) error { return g.signal(sig) }

// EndOptions is how a tree is ended.
type EndOptions struct {
	// Bound is the time for the whole kill and proof, 0 for [DefaultBound].
	Bound time.Duration
	// Keep leaves alive what the leader left behind: nothing is killed, and
	// the Proof names it. A leader that still lives is killed nevertheless,
	// with its process group.
	Keep bool
	// Spare reports that pid, and with it everything below it, is not part of
	// the tree: it is neither killed nor counted, and the proof becomes "no
	// others are left". It is asked about live processes of the tree, possibly
	// several times each, from one goroutine.
	Spare func(pid int) bool
}

// Proof is what is known about a tree after its end.
type Proof struct {
	Containment Containment
	// Empty: nothing of the tree is left, and that was proven. With spared
	// processes: nothing but them.
	Empty bool
	// Leftovers counts what was still alive when the leader had ended.
	Leftovers int
	// Remaining are the numbers of what is left, as far as it can be seen.
	Remaining []int
	// Spared are the children that Spare said yes to.
	Spared []int
	// Note says why Empty is false, or what else is worth a line; or "".
	Note string
}

// End ends the tree and proves it: it kills the process group while the zombie
// of the leader pins its number, takes the leader, kills the leaf and every
// child of this process until the kernel says that there is none (ECHILD), and
// removes the leaf. A leader that still lives is killed first. It returns
// within about the bound; then the waiting thread is gone, and what could not
// be ended is in the Proof. A second call returns the first one's Proof.
func (g *Group) End(o EndOptions) Proof { return g.end(o) }

// Sweep does the same for a process that has inherited the tree of a dead
// supervisor: it ends and takes every child of this process, also those that
// were started with [Detach], and ends the leaf (nil for none). It must not be
// called while a Group is live.
func Sweep(leaf *Leaf, o EndOptions) Proof { return sweep(leaf, o) }

// DetachSpec is a process that may outlive this one.
type DetachSpec struct {
	Path string   // as in Spec
	Args []string // as in Spec
	Env  []string // the whole environment; nil means empty
	Dir  string   // as in Spec
	// Files become descriptors 0, 1, 2, 3 and so on. A nil entry among the
	// first three, or a missing one, is the null device. Windows passes the
	// first three only.
	Files      []*os.File
	NewSession bool // setsid; on Windows no console and a group of its own
	BreakAway  bool // Windows: leave our caller's job where it lets us
}

// Detach starts a process that this one does not own: it is not contained and
// not ended with us. It begins with default signal dispositions and Files
// alone; every other descriptor of ours is marked as closed at exec. The error is a [*StartError], or [ErrBusy] while a Group
// is live.
func Detach(s DetachSpec) (*Child, error) { return detach(s) }

// Child is a process started by [Detach].
type Child struct {
	id   pid.ID
	note string
	childPlatform
}

// ID returns who it is.
func (c *Child) ID() pid.ID { return c.id }

// Note says what went otherwise than asked at the start (no breakaway), or "".
func (c *Child) Note() string { return c.note }

// Await blocks until the child has ended and returns how. It does not take the
// zombie: its number stays pinned until [Child.Reap].
func (c *Child) Await() Exit { e, _ := c.await(-1); return e }

// AwaitTimeout is Await for at most d; it is false when the child still lives.
func (c *Child) AwaitTimeout(d time.Duration) (Exit, bool) { return c.await(max(d, 0)) }

// Reap takes the zombie, if there is one, and frees what belongs to c. It never
// blocks. After it c must not be used.
func (c *Child) Reap() { c.reap() }

// Limits of Run when they are not given.
const (
	DefaultRunLimit  = time.Minute
	DefaultRunOutput = 1 << 20
)

// RunSpec is a short command.
type RunSpec struct {
	Path      string        // as in Spec
	Args      []string      // as in Spec
	Env       []string      // the whole environment; nil means empty
	Dir       string        // as in Spec
	Stdin     io.Reader     // nil means the null device
	Limit     time.Duration // how long it may take, 0 for DefaultRunLimit
	MaxOutput int           // bytes kept of each stream, the first ones; 0 for DefaultRunOutput
	Leaf      *Leaf         // cgroup to run in, nil for none; Run removes it
}

// RunResult is what a short command did.
type RunResult struct {
	Stdout, Stderr []byte
	Truncated      bool // some output was dropped
	TimedOut       bool // the limit ended it
	Exit           Exit
	Remaining      []int // processes of it that could not be ended
}

// Run runs a short command in a session of its own and returns its output. At
// the limit, at the end of ctx and when the command itself has ended, whatever
// is left of its tree is killed, so a child that holds a pipe delays nothing.
// The error is a [*StartError], [ErrBusy] while a Group is live, or ctx's; a
// bad exit and a passed limit are results, not errors. Several may run at the
// same time, also in a process that is a subreaper; on Linux Run makes this
// process one. Without a Leaf, a process that has left the session, lost its
// parent and cleared its environment before the command ended is not found.
func Run(ctx context.Context, s RunSpec) (RunResult, error) { return run(ctx, s) }

// Leaf is a cgroup of ours, made for one tree. It is nil-safe nowhere and
// exists on Linux only.
type Leaf struct {
	path  string
	inode uint64
	leafPlatform
}

// NewLeaf makes a cgroup called name below our own. It is made only in a
// cgroup2 hierarchy whose directory lists this process, because being able to
// make a directory proves nothing. The error wraps [ErrNoCgroup] when there is
// no usable one.
func NewLeaf(name string) (*Leaf, error) { return newLeaf(name) }

// OpenLeaf opens a recorded leaf. The error wraps [ErrGone] when it does not
// exist, which proves that its tree is gone, [ErrMismatch] when something else
// has its name, and [ErrNoCgroup] when its hierarchy is not mounted here, which
// proves nothing.
func OpenLeaf(path string, inode uint64) (*Leaf, error) { return openLeaf(path, inode) }

// Path returns the directory of the leaf.
func (l *Leaf) Path() string { return l.path }

// Inode returns the inode number of the directory; the kernel gives none out
// twice in one boot.
func (l *Leaf) Inode() uint64 { return l.inode }

// Members returns the live processes in the leaf and in everything below it,
// as far as they have a number here.
func (l *Leaf) Members() ([]int, error) { return l.members() }

// Populated reports whether anything lives in the leaf or below it.
func (l *Leaf) Populated() (bool, error) { return l.populated() }

// Kill ends everything in the leaf and below it and returns when nothing lives
// there, or with an error after bound. It needs no permission over the
// processes, so it reaches what a signal does not.
func (l *Leaf) Kill(bound time.Duration) error { return l.kill(bound) }

// Remove removes the leaf and everything below it, deepest first. It succeeds
// only when nothing lives there, and when it is gone already.
func (l *Leaf) Remove() error { return l.remove() }

// Close frees the descriptor. The leaf stays.
func (l *Leaf) Close() error { return l.close() }

// LeafOf returns the cgroup2 directory of process p.
func LeafOf(p int) (string, error) { return leafOf(p) }

// MoveSelf moves this process, all threads, into the cgroup dir.
func MoveSelf(dir string) error { return moveSelf(dir) }

package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/prun-suite/prun/pkg/pid"
	"golang.org/x/sys/windows"
)

type platform struct {
	job    windows.Handle
	pin    windows.Handle // keeps the leader's number from being given out again
	ending sync.Mutex     // held by End
	proof  Proof

	closing sync.Mutex // held to use or close the job
	closed  bool
}

func closeOnExecAbove(int) error { return nil }

func zombieChild(int) (Exit, bool) { return Exit{}, false }

// children follows the parent numbers of the system, and drops what is older
// than this process: the number of a dead parent is kept and given out again.
func children() ([]int, error) {
	snap, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPPROCESS, 0)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer windows.CloseHandle(snap)
	var list []int
	var e windows.ProcessEntry32
	e.Size = uint32(unsafe.Sizeof(e))
	for err = windows.Process32First(snap, &e); err == nil; err = windows.Process32Next(snap, &e) {
		if int(e.ParentProcessID) != os.Getpid() || int(e.ProcessID) == os.Getpid() {
			continue
		}
		if id, err := pid.Of(int(e.ProcessID)); err == nil && id.Start >= pid.Self().Start {
			list = append(list, id.PID)
		}
	}
	return list, nil
}

// spawn starts a process and returns it with a handle of our own.
func spawn(path string, args, env []string, dir string, files []*os.File, flags uint32) (*os.Process, windows.Handle, error) {
	full, err := lookup(path, env, dir)
	if err != nil {
		return nil, 0, err
	}
	if len(args) == 0 {
		args = []string{path}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, 0, &StartError{Path: path, Errno: errnoOf(err), Err: err}
	}
	defer null.Close()
	std := []*os.File{null, null, null}
	for i, f := range files {
		if i < len(std) && f != nil {
			std[i] = f
		}
	}
	sys := &syscall.SysProcAttr{CreationFlags: flags}
	if isBatch(full) {
		if full, sys.CmdLine, err = batchLine(full, args[1:]); err != nil {
			return nil, 0, &StartError{Path: path, NotExecutable: true, Err: err}
		}
	}
	p, err := os.StartProcess(full, args, &os.ProcAttr{Dir: dir, Env: whole(env), Files: std, Sys: sys})
	if err != nil {
		return nil, 0, classify(path, dir, err)
	}
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION|windows.SYNCHRONIZE|windows.PROCESS_TERMINATE, false, uint32(p.Pid))
	if err != nil {
		p.Kill()
		p.Wait()
		return nil, 0, &StartError{Path: path, Errno: errnoOf(err), Err: fmt.Errorf("open it: %w", err)}
	}
	return p, h, nil
}

// whole returns env, never nil (which would mean ours), with the one variable
// without which hardly any Windows program starts.
func whole(env []string) []string {
	env = append([]string{}, env...)
	if !slices.ContainsFunc(env, func(e string) bool { return len(e) > 11 && strings.EqualFold(e[:11], "SYSTEMROOT=") }) {
		env = append(env, "SYSTEMROOT="+os.Getenv("SYSTEMROOT"))
	}
	return env
}

// lookup finds a program: a name without a separator in the PATH of env, with
// the extensions of PATHEXT. Relative entries of PATH are skipped.
func lookup(name string, env []string, dir string) (string, error) {
	missing := &StartError{Path: name, Errno: syscall.ERROR_FILE_NOT_FOUND, NotFound: true, Err: errors.New("not found")}
	if name == "" {
		return "", missing
	}
	try := func(file string) (string, bool) {
		full, err := exec.LookPath(file)
		return full, err == nil
	}
	if strings.ContainsAny(name, `/\:`) {
		file := name
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		file, err := filepath.Abs(file)
		if err != nil {
			return "", &StartError{Path: name, Err: err}
		}
		if full, ok := try(file); ok {
			return full, nil
		}
		if st, err := os.Stat(file); err == nil {
			e := &StartError{Path: name, Errno: windows.ERROR_BAD_EXE_FORMAT, NotExecutable: true, Err: errors.New("not a program")}
			if st.IsDir() {
				e.Err = errors.New("is a directory")
			}
			return "", e
		}
		return "", missing
	}
	for _, e := range env {
		if len(e) < 5 || !strings.EqualFold(e[:5], "PATH=") {
			continue
		}
		for _, d := range filepath.SplitList(e[5:]) {
			if !filepath.IsAbs(d) {
				continue
			}
			if full, ok := try(filepath.Join(d, name)); ok {
				return full, nil
			}
		}
		break
	}
	return "", missing
}

func errnoOf(err error) syscall.Errno {
	var e syscall.Errno
	errors.As(err, &e)
	return e
}

func classify(path, dir string, err error) *StartError {
	e := &StartError{Path: path, Errno: errnoOf(err), Err: err}
	if dir != "" {
		st, derr := os.Stat(dir)
		if derr == nil && !st.IsDir() {
			derr = errors.New("not a directory")
		}
		if derr != nil {
			e.Err = fmt.Errorf("enter directory %s: %w", dir, derr)
			return e
		}
	}
	switch e.Errno {
	case windows.ERROR_FILE_NOT_FOUND, windows.ERROR_PATH_NOT_FOUND:
		e.NotFound = true
	case windows.ERROR_BAD_EXE_FORMAT, windows.ERROR_ACCESS_DENIED, windows.ERROR_ELEVATION_REQUIRED:
		e.NotExecutable = true
	}
	return e
}

// newJob makes a job that ends with its last handle, which is ours alone: when
// this process dies, however it dies, so does the tree.
func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, fmt.Errorf("make job: %w", err)
	}
	if err := limitJob(job, windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE); err != nil {
		windows.CloseHandle(job)
		return 0, err
	}
	return job, nil
}

func limitJob(job windows.Handle, flags uint32) error {
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = flags
	_, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err != nil {
		return fmt.Errorf("set job limits: %w", err)
	}
	return nil
}

// active returns how many processes the job holds.
func active(job windows.Handle) (int, error) {
	// JOBOBJECT_BASIC_ACCOUNTING_INFORMATION
	var info struct {
		times                                     [4]int64
		faults, total, active, terminatedByLimits uint32
	}
	const basicAccounting = 1
	err := windows.QueryInformationJobObject(job, basicAccounting, uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
	if err != nil {
		return 0, fmt.Errorf("look into job: %w", err)
	}
	return int(info.active), nil
}

// members returns the numbers of what the job holds, the first 4096 of them.
func members(job windows.Handle) []int {
	var info struct {
		assigned, listed uint32
		ids              [4096]uintptr
	}
	const processIDList = 3
	err := windows.QueryInformationJobObject(job, processIDList, uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
	if err != nil && !errors.Is(err, windows.ERROR_MORE_DATA) {
		return nil
	}
	var list []int
	for _, id := range info.ids[:min(int(info.listed), len(info.ids))] {
		list = append(list, int(id))
	}
	return list
}

func start(s Spec) (*Group, error) {
	job, err := newJob()
	if err != nil {
		return nil, &StartError{Path: s.Path, Errno: errnoOf(err), Err: err}
	}
	// Suspended: it is in the job before its first instruction. A console of
	// its own without a window, and a group of its own for CTRL_BREAK.
	p, h, err := spawn(s.Path, s.Args, s.Env, s.Dir, []*os.File{s.Stdin, s.Stdout, s.Stderr},
		windows.CREATE_SUSPENDED|windows.CREATE_NEW_PROCESS_GROUP|windows.CREATE_NO_WINDOW|priority(s.Nice))
	if err != nil {
		windows.CloseHandle(job)
		return nil, err
	}
	inside := errors.New("no handle of it")
	if werr := p.WithHandle(func(h uintptr) {
		inside = windows.AssignProcessToJobObject(job, windows.Handle(h))
	}); werr != nil {
		inside = werr
	}
	if inside == nil {
		inside = resume(p.Pid)
	}
	if inside != nil {
		// It has not run: nothing is lost by killing it.
		p.Kill()
		p.Wait()
		windows.CloseHandle(h)
		windows.CloseHandle(job)
		return nil, &StartError{Path: s.Path, Errno: errnoOf(inside), Err: fmt.Errorf("contain it: %w", inside)}
	}
	g := &Group{containment: Job, done: make(chan struct{}), platform: platform{job: job, pin: h}}
	if g.id, err = pid.Of(p.Pid); err != nil {
		g.id = pid.ID{PID: p.Pid}
	}
	go func() {
		defer close(g.done)
		g.exit = Exit{Code: 255}
		if st, err := p.Wait(); err == nil {
			g.exit.Code = st.ExitCode()
		}
	}()
	return g, nil
}

func priority(nice int) uint32 {
	switch {
	case nice >= 10:
		return windows.IDLE_PRIORITY_CLASS
	case nice > 0:
		return windows.BELOW_NORMAL_PRIORITY_CLASS
	}
	return 0
}

// resume starts the threads of a process that was made suspended: one, but the
// system hands its handle to nobody, so it is looked up.
func resume(p int) error {
	snap, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	defer windows.CloseHandle(snap)
	resumed := 0
	var e windows.ThreadEntry32
	e.Size = uint32(unsafe.Sizeof(e))
	for err = windows.Thread32First(snap, &e); err == nil; err = windows.Thread32Next(snap, &e) {
		if int(e.OwnerProcessID) != p {
			continue
		}
		t, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, e.ThreadID)
		if err != nil {
			return fmt.Errorf("open thread: %w", err)
		}
		_, err = windows.ResumeThread(t)
		windows.CloseHandle(t)
		if err != nil {
			return fmt.Errorf("resume thread: %w", err)
		}
		resumed++
	}
	if resumed == 0 {
		return errors.New("resume it: it has no thread")
	}
	return nil
}

var (
	kernel32      = windows.NewLazySystemDLL("kernel32.dll")
	attachConsole = kernel32.NewProc("AttachConsole")
	freeConsole   = kernel32.NewProc("FreeConsole")
)

// consoles is held while this process is attached to a worker's console: a
// process has one.
var consoles sync.Mutex

// breakConsole sends CTRL_BREAK to the group of the leader p, in whose console
// this process takes part for a moment. It is refused while we have a console
// of our own, which we would lose.
func breakConsole(p int) error {
	consoles.Lock()
	defer consoles.Unlock()
	if ok, _, err := attachConsole.Call(uintptr(p)); ok == 0 {
		return fmt.Errorf("attach to its console: %w", err)
	}
	defer freeConsole.Call()
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p))
}

func (g *Group) signal(sig syscall.Signal) error {
	g.closing.Lock()
	defer g.closing.Unlock()
	if g.closed {
		return fmt.Errorf("signal worker %d: %w", g.id.PID, os.ErrProcessDone)
	}
	if sig == 0 {
		return nil
	}
	if sig != syscall.SIGKILL && breakConsole(g.id.PID) == nil {
		return nil
	}
	if err := windows.TerminateJobObject(g.job, 128+uint32(sig)); err != nil {
		return fmt.Errorf("end job of worker %d: %w", g.id.PID, err)
	}
	return nil
}

func (g *Group) end(o EndOptions) Proof {
	g.ending.Lock()
	defer g.ending.Unlock()
	if g.closed {
		return g.proof
	}
	if o.Bound <= 0 {
		o.Bound = DefaultBound
	}
	deadline := time.Now().Add(o.Bound)
	lives := true
	select {
	case <-g.done:
		lives = false
	default:
	}
	p := Proof{Containment: Job}
	hosts := 0
	others := func() []int {
		var list []int
		p.Spared, hosts = nil, 0
		for _, m := range members(g.job) {
			switch {
			case m == g.id.PID:
			case consoleHost(m):
				hosts++
			case o.Spare != nil && o.Spare(m):
				p.Spared = append(p.Spared, m)
			default:
				list = append(list, m)
			}
		}
		return list
	}
	p.Leftovers = len(others())
	if lives && (o.Keep || len(p.Spared) > 0) {
		windows.TerminateProcess(g.pin, 128+uint32(syscall.SIGKILL))
	}
	for pause := 200 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		left := others()
		n, err := active(g.job)
		if err == nil && (n == 0 || n == len(p.Spared)+hosts && len(p.Spared) > 0) {
			p.Empty = true
			break
		}
		if o.Keep && len(left)+len(p.Spared) > 0 {
			p.Remaining, p.Note = left, "left alive as asked"
			break
		}
		if len(p.Spared) == 0 {
			err = windows.TerminateJobObject(g.job, 128+uint32(syscall.SIGKILL))
		} else {
			g.terminate(left)
		}
		if time.Now().After(deadline) {
			p.Remaining = left
			p.Note = "the job is not empty"
			if err != nil {
				p.Note += ": " + err.Error()
			}
			break
		}
		time.Sleep(pause)
	}
	if lives {
		// Its end is known once the job has let it go.
		select {
		case <-g.done:
		case <-time.After(max(time.Until(deadline), time.Second)):
			p.Empty = false
			p.Remaining = append(p.Remaining, g.id.PID)
		}
	}
	if o.Keep || len(p.Spared) > 0 {
		// Closing the last handle would end them after all.
		if err := limitJob(g.job, 0); err != nil {
			p.Note += "; " + err.Error()
		}
	}
	g.closing.Lock()
	defer g.closing.Unlock()
	g.closed = true
	windows.CloseHandle(g.job)
	windows.CloseHandle(g.pin)
	g.proof = p
	return p
}

// consoleHost reports whether p is the system's host of a console without a
// window, which comes and goes with the programs in it.
func consoleHost(p int) bool {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(p))
	if err != nil {
		return false
	}
	defer windows.CloseHandle(h)
	name := make([]uint16, windows.MAX_LONG_PATH)
	n := uint32(len(name))
	if windows.QueryFullProcessImageName(h, 0, &name[0], &n) != nil {
		return false
	}
	return strings.EqualFold(filepath.Base(windows.UTF16ToString(name[:n])), "conhost.exe")
}

// terminate ends processes of the job one by one.
func (g *Group) terminate(list []int) {
	for _, m := range list {
		h, err := windows.OpenProcess(windows.PROCESS_TERMINATE|windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(m))
		if err != nil {
			continue
		}
		// The number may have changed hands since it was listed.
		if slices.Contains(members(g.job), m) {
			windows.TerminateProcess(h, 128+uint32(syscall.SIGKILL))
		}
		windows.CloseHandle(h)
	}
}

// sweep has nothing to do: the closing job has ended the tree.
func sweep(*Leaf, EndOptions) Proof {
	return Proof{Containment: Job, Note: "the job ended the tree with its supervisor"}
}

type childPlatform struct {
	process *os.Process
	handle  windows.Handle
	once    sync.Once
}

func detach(s DetachSpec) (*Child, error) {
	if len(s.Files) > 3 {
		return nil, &StartError{Path: s.Path, Errno: syscall.EWINDOWS, Err: errors.New("more than three files")}
	}
	var flags uint32
	if s.NewSession {
		flags = windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP
	}
	c := &Child{}
	var err error
	if s.BreakAway {
		// Terminals, ssh servers and CI put commands into jobs that end them
		// with the command; some of those jobs let nobody leave.
		c.process, c.handle, err = spawn(s.Path, s.Args, s.Env, s.Dir, s.Files, flags|windows.CREATE_BREAKAWAY_FROM_JOB)
		if err != nil {
			c.note = "it stays in the job of this process: " + err.Error()
		}
	}
	if !s.BreakAway || err != nil {
		if c.process, c.handle, err = spawn(s.Path, s.Args, s.Env, s.Dir, s.Files, flags); err != nil {
			return nil, err
		}
	}
	if c.id, err = pid.Of(c.process.Pid); err != nil {
		c.id = pid.ID{PID: c.process.Pid}
	}
	return c, nil
}

func (c *Child) await(d time.Duration) (Exit, bool) {
	ms := uint32(windows.INFINITE)
	if d >= 0 {
		ms = uint32(min(d.Milliseconds(), 1<<30))
	}
	event, err := windows.WaitForSingleObject(c.handle, ms)
	if err != nil {
		return Exit{Code: 255}, d < 0
	}
	if event != windows.WAIT_OBJECT_0 {
		return Exit{}, false
	}
	var code uint32
	if windows.GetExitCodeProcess(c.handle, &code) != nil {
		return Exit{Code: 255}, true
	}
	return Exit{Code: int(code)}, true
}

func (c *Child) reap() {
	c.once.Do(func() {
		c.process.Release()
		windows.CloseHandle(c.handle)
	})
}

package supervise

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/result"
	"github.com/prun-suite/prun/pkg/state"
)

// Dispatch is the Record of prun-dispatch: a directory under the state base,
// the worker's output in its tail, and a result path that the caller chose.
type Dispatch struct{}

// Place implements Record.
func (Dispatch) Place(l *Launch, pid int, nonce string) (hidden, final string) {
	return filepath.Join(l.Base, state.HiddenName(l.CwdHash, l.Unit, pid, nonce)),
		filepath.Join(l.Base, state.Name(l.CwdHash, l.Unit, pid, nonce))
}

// Furnish implements Record.
func (Dispatch) Furnish(u state.Unit, final string, l *Launch) (string, *Refusal) {
	dir := l.Scratch
	switch {
	case l.CloneRepo != "":
		dir = filepath.Join(final, state.DirClone)
	case l.Scratch == "":
		dir = filepath.Join(final, state.DirWork)
		if err := atomicfile.Mkdir(u.Path(state.DirWork), 0o700); err != nil {
			return "", &Refusal{Stage: StageScratch, Path: dir, Text: err.Error()}
		}
	default:
		if err := os.MkdirAll(l.Scratch, 0o777); err != nil {
			return "", &Refusal{Stage: StageScratch, Path: l.Scratch, Text: err.Error()}
		}
	}
	mtime := "0"
	if info, err := result.Inspect(l.Result); err == nil && info.Kind != result.Absent && info.Kind != result.Foreign {
		mtime = strconv.FormatInt(info.ModTime.Unix(), 10)
	}
	entries := []struct{ name, text string }{
		{state.FilePreMtime, mtime},
		{state.FileTimestamp, strconv.FormatInt(time.Now().Unix(), 10)},
		{state.FileResult, l.ResultEntry},
		{state.FileDispatchPID, strconv.Itoa(os.Getpid())},
		{state.FileInterpreter, l.Interpreter},
	}
	if l.CloneRepo != "" {
		entries = append(entries, struct{ name, text string }{state.FileCloneDir, dir})
	}
	for _, e := range entries {
		if e.text == "" {
			continue
		}
		if err := atomicfile.Write(u.Path(e.name), []byte(e.text+"\n"), 0o600); err != nil {
			return "", &Refusal{Stage: StageStateDir, Path: final, Text: err.Error()}
		}
	}
	return dir, nil
}

// Open implements Record: the tail, and beside it standard error where the
// backend keeps the two apart.
func (d Dispatch) Open(u state.Unit, l *Launch, b agent.Backend) (stdout, stderr *os.File, r Reading, err error) {
	if stdout, err = createCapture(u.Path(state.FileTail)); err != nil {
		return nil, nil, nil, err
	}
	stderr = stdout
	if !b.Capabilities().MergeStderr {
		if stderr, err = createCapture(u.Path(state.FileStderr)); err != nil {
			stdout.Close()
			return nil, nil, nil, err
		}
	}
	if r, err = d.Reread(u, l, b); err != nil {
		stdout.Close()
		stderr.Close()
		return nil, nil, nil, err
	}
	return stdout, stderr, r, nil
}

// createCapture makes a worker's output file. O_APPEND keeps a truncation in
// place from leaving a hole of zeroes, and the file is the only channel: no
// pipe, so nobody's death can stop the worker's output.
func createCapture(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create capture: %w", err)
	}
	if err := f.Chmod(0o600); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		f.Close()
		return nil, fmt.Errorf("create capture: %w", err)
	}
	return f, nil
}

// Reread implements Record.
func (Dispatch) Reread(u state.Unit, l *Launch, b agent.Backend) (Reading, error) {
	names := map[agent.Stream]string{agent.Merged: u.Path(state.FileTail)}
	if !b.Capabilities().MergeStderr {
		names = map[agent.Stream]string{
			agent.Stdout: u.Path(state.FileTail),
			agent.Stderr: u.Path(state.FileStderr),
		}
	}
	r, err := Follow(b.NewParser(l.Turn), names)
	if err != nil {
		return nil, err
	}
	r.session = u.Path(state.FileConversationID)
	return r, nil
}

// Evidence implements Record: output alone counts.
func (Dispatch) Evidence(state.Unit, *Launch) int64 { return 0 }

// StopCause implements Record.
func (Dispatch) StopCause(state.Unit, int) state.Cause { return state.Interrupted }

// WorkerResult implements Record.
func (Dispatch) WorkerResult(c *Conclusion) bool { return standing(c) == result.Worker }

// standing says what is at the result path: result.Worker only for a file that
// this run's worker left there. A file that was there before and was not
// touched counts as result.Fallback: it is kept and is no result.
func standing(c *Conclusion) result.Kind {
	info, err := result.Inspect(c.Launch.Result)
	if err != nil {
		return result.Foreign
	}
	if info.Mode&fs.ModeSymlink != 0 {
		// A link that was there before was resolved by the front door; this
		// one was left by the worker, and is neither followed nor replaced.
		return result.Foreign
	}
	if info.Kind == result.Worker && stale(c, info) {
		return result.Fallback
	}
	return info.Kind
}

// stale reports a result that was there before the run and was not touched.
func stale(c *Conclusion, info result.Info) bool {
	b := c.Identity.ResultBefore
	return b != nil && b.Size == info.Size && b.MTime.Equal(info.ModTime) && b.Ino == info.Ino && b.Dev == info.Dev
}

// Conclude implements Record: the worker's own result is kept, its final
// message is published, or its output is salvaged.
func (d Dispatch) Conclude(c *Conclusion) error {
	response := ""
	if c.Verdict != nil {
		response = c.Verdict.Response
	}
	err := d.publish(c, standing(c), response)
	return err
}

func (d Dispatch) publish(c *Conclusion, there result.Kind, response string) error {
	o, l := c.Outcome, c.Launch
	o.Result = state.ResultNone
	if there == result.Worker {
		o.Result = state.ResultWorker
		if response == "" {
			return nil
		}
		where, err := result.PublishResponse(l.Result, []byte(response), func(existing string) bool {
			return sameText(existing, response)
		})
		if err != nil {
			return err
		}
		o.Notes = append(o.Notes, "response beside the worker's result: "+where)
		return nil
	}
	if info, err := result.Inspect(l.Result); there == result.Fallback && err == nil && stale(c, info) {
		o.Notes = append(o.Notes, "stale result: "+l.Result+" was there before this run, which did not touch it; its output is in the tail")
		return nil
	}
	body := func(w io.Writer) error { _, err := io.WriteString(w, response); return err }
	kind := state.ResultResponse
	if response == "" {
		if o.Cause == state.Exited && !l.SalvageAlways {
			return nil
		}
		if err := explain(c); err != nil {
			c.Note(err.Error())
		}
		s := salvage(c)
		body = func(w io.Writer) error { _, err := s.WriteTo(w); return err }
		kind = state.ResultFallback
	}
	if there == result.Foreign {
		// A link of the worker's counts as such even when it leads to a file.
		spare := c.Unit.Path(state.FileSpareResult)
		err := fmt.Errorf("publish result: %s is not a regular file of its own", l.Result)
		if _, unseen := result.Inspect(l.Result); unseen != nil {
			err = fmt.Errorf("publish result: %w", unseen)
		}
		if c.Gone {
			return err
		}
		if kept := atomicfile.ReplaceWith(spare, 0o600, body); kept != nil {
			return fmt.Errorf("%w; %w", err, kept)
		}
		return fmt.Errorf("%w; the text is in %s", err, spare)
	}
	whole := body
	body = func(w io.Writer) error {
		if c.fault != nil {
			if err := c.fault("C4"); err != nil {
				return err
			}
		}
		return whole(w)
	}
	c.Step("C4")
	p, err := result.Publish(result.Publication{
		Path: l.Result, Body: body, Perm: 0o666, Proven: c.Proof.Empty,
		Spare: c.Unit.Path(state.FileSpareResult), Owner: c.Owner, Step: c.Step,
	})
	c.Step("C5")
	if p.Kept != "" {
		o.Notes = append(o.Notes, "displaced file kept: "+p.Kept)
	}
	switch {
	case p.Ours:
		// Also when only the directory could not be synced.
		if p.Note != "" {
			o.Notes = append(o.Notes, p.Note)
		}
		o.Result = kind
		if err == nil {
			c.Step("C6")
		}
		return err
	case err != nil && p.Where != "":
		return fmt.Errorf("%w; the text is in %s", err, p.Where)
	case err != nil:
		return fmt.Errorf("%w; the output is in %s only", err, c.Unit.Dir)
	case p.Existing == result.Worker:
		// The worker's file landed while ours was being written.
		if standing(c) == result.Foreign {
			return d.publish(c, result.Foreign, response)
		}
		return d.publish(c, result.Worker, response)
	case p.Existing == result.Fallback:
		// A dead concluder's, where it cannot be known by its inode.
		o.Result = state.ResultFallback
		return nil
	}
	return fmt.Errorf("publish result: %s", p.Note)
}

// explain leaves the reason where a worker's last words would be, when there
// never was a worker and standard error has a file of its own.
func explain(c *Conclusion) error {
	o := c.Outcome
	unstarted := o.Cause == state.LaunchFailed || o.Cause == state.Blocked
	if !unstarted || c.Gone || o.Reason == "" || c.Backend.Capabilities().MergeStderr {
		return nil
	}
	name := c.Unit.Path(state.FileStderr)
	if fi, err := os.Lstat(name); err == nil && fi.Size() > 0 {
		return nil
	}
	return atomicfile.Append(name, []byte(o.Reason+"\n"), 0o600)
}

// salvage describes the FALLBACK of this ending.
func salvage(c *Conclusion) result.Salvage {
	o, l := c.Outcome, c.Launch
	s := result.Salvage{
		Form: l.Form, Unit: l.Unit, Tool: l.Tool, Backend: l.Backend,
		Reason: o.Reason, Reaped: reaped(o.Cause), Tail: c.Source(c.Unit.Path(state.FileTail)),
	}
	if l.Form == result.FormCodex {
		byStream := o.Cause == state.Failed && o.ExitCode != nil && *o.ExitCode == 0
		switch {
		case s.Reaped:
			s.Reason = string(o.Cause)
		case c.Verdict != nil && !byStream:
			// The old front said the same words whatever the exit code was.
			s.Reason = ""
		}
	}
	if !c.Backend.Capabilities().MergeStderr {
		s.Stderr = c.Source(c.Unit.Path(state.FileStderr))
	}
	if c.Gone {
		s.Note = "the state directory was removed while the unit ran; what follows is all that is left of its output"
	}
	return s
}

// Settled implements Record: what was moved aside or written for the
// publication goes. What was displaced may hold a late write of something that
// still lives; it is kept then.
func (Dispatch) Settled(_ state.Unit, l *Launch, o *state.Outcome) error {
	return result.Sweep(l.Result, l.Owner, !o.ProvenEmpty)
}

// sameText reports whether a file holds exactly text. It reads no more than
// that.
func sameText(name, text string) bool {
	b, err := atomicfile.ReadRegular(name, int64(len(text)))
	return err == nil && string(b) == text
}

package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/session"
)

type send struct {
	promptOptions
	Now        bool `long:"now" description:"interrupt the turn that is running"`
	NoPreamble bool `long:"no-preamble" description:"give the message as it is"`
	Stall      *int `long:"stall-after" value-name:"SECONDS" description:"end this turn without output for so long (default: the task's own)"`
	Deadline   *int `long:"deadline" value-name:"SECONDS" description:"end this turn after so long (default: the task's own)"`
	JSON       bool `long:"json" description:"print JSON"`
	Args       struct {
		Task    string `positional-arg-name:"TASK" description:"the task's name" required:"true"`
		Message string `positional-arg-name:"MESSAGE" description:"what to say; without one it is read from standard input"`
	} `positional-args:"true"`
}

// lockPatience bounds the wait for another verb on the same task.
const lockPatience = 2 * time.Minute

const running = "task is working; pass --now to interrupt the current turn"

// Run checks the task and the message before anything is stopped, and again under the task's lock.
func (o *send) Run(_ context.Context, env *cli.Env) error {
	p, _, err := start(env)
	if err != nil {
		return err
	}
	s, err := p.look(o.Args.Task)
	if err != nil {
		return err
	}
	task := s.Task
	if err := o.may(s); err != nil {
		return err
	}
	message, err := o.read(env, o.Args.Message, "message is empty")
	if err != nil {
		return err
	}
	bin, err := findBinary(env, s.Meta.Text("backend"))
	if err != nil {
		return err
	}
	version := clientVersion(env, s.Meta.Text("backend"), bin)
	patience := lockPatience
	if !o.Now {
		// Whoever holds the lock is about to start a turn, which is then the answer.
		patience = 30 * time.Second
	}
	lock, err := task.Lock(patience)
	switch {
	case errors.Is(err, session.ErrNoTask):
		return say(exitNoTask, "no such task on this device: %s", o.Args.Task)
	case errors.Is(err, session.ErrBusy):
		return say(exitRefused, running)
	case err != nil:
		return cli.Fail(1, "%w", err)
	}
	defer lock.Unlock()
	if s, err = o.ready(task); err != nil {
		return err
	}
	m := s.Meta
	dir := m.Text("exec_root")
	if dir == "" {
		dir = m.Text("repo")
	}
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return cli.Fail(1, "the task's directory is gone: %s", dir)
	}
	prompt := message
	if !o.NoPreamble {
		prompt = goOn + "\n\n" + message
	}
	stall, deadline := o.limits(env, m)
	now := time.Now()
	turn, err := task.Begin(prompt, func(meta *session.Object) {
		meta.Set("deadline_utc", session.Epoch(now)+float64(deadline))
		meta.Set("stall_after_s", stall)
	})
	if err != nil {
		return cli.Fail(1, "%w", err)
	}
	err = p.begin(env, turnSpec{
		turn: turn, mode: "resume", backend: m.Text("backend"), bin: bin, version: version, dir: dir, model: m.Text("model"),
		effort: m.Text("effort"), access: m.Text("access"), resume: m.Text("session_id"), fast: m.True("fast"),
		commit: m.True("worktree") && m.True("auto_commit"), stall: stall, deadline: deadline, leaf: m.Text("leaf"), prompt: prompt,
	})
	if err != nil {
		return errors.Join(err, turn.Unbegun(err.Error()))
	}
	return printBegun(env, task, o.JSON, " (resumed)")
}

// may refuses what cannot be continued.
func (o *send) may(s session.Snapshot) error {
	switch {
	case s.Meta.Text("session_id") == "":
		return say(exitRefused, "no session to resume (worker never emitted a session id)")
	case !session.Settled(s.State) && !o.Now:
		return say(exitRefused, running)
	}
	return nil
}

// ready brings the task to where a turn can begin; the lock is held.
func (o *send) ready(task session.Task) (session.Snapshot, error) {
	s := task.Look()
	if s.Err != nil {
		return s, broken(o.Args.Task, s.Err)
	}
	if err := o.may(s); err != nil {
		return s, err
	}
	if session.Settled(s.State) {
		if err := task.Quiet(); err != nil {
			return s, cli.Fail(1, "%w", err)
		}
		return task.Settle(), nil
	}
	s, err := task.Stop(session.RequestInterrupt, grace(s.Meta.Text("backend")))
	if err == nil {
		err = task.Quiet()
	}
	if err != nil {
		return s, cli.Fail(1, "%w", err)
	}
	return s, nil
}

// limits are the task's own unless told otherwise. The original kept only the last turn's silence.
func (o *send) limits(env *cli.Env, m session.Object) (stall, deadline int) {
	stall, deadline = envStall(env), envDeadline(env)
	for _, key := range []string{"stall_after_s", "task_stall_after_s"} {
		if n, ok := m.Int(key); ok {
			stall = int(n)
		}
	}
	if n, ok := m.Int("task_deadline_s"); ok {
		deadline = int(n)
	}
	if o.Stall != nil {
		stall = *o.Stall
	}
	if o.Deadline != nil {
		deadline = *o.Deadline
	}
	return stall, deadline
}

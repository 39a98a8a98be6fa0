package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/git"
	"github.com/prun-suite/prun/pkg/lane"
	"github.com/prun-suite/prun/pkg/line"
)

const collectText = `Prints what a lane came to: status=, worktree=, result=, run_log= and event_log=, then branch=, base=, commits= and exit_code= where they are ` +
	`known, an empty line, and the worker's report. Exit status 0 also for a failed lane.

--patch writes the lane's whole difference from its recorded base to FILE: commits, staged and unstaged changes and new files, whatever ` +
	`the worker committed and whatever git's configuration is. commits= says how many commits the worker made; patch_files=0 means that nothing was changed.`

type collectOptions struct {
	laneOptions
	JSON  bool   `long:"json" description:"one JSON object instead, without the report's text"`
	Patch string `long:"patch" value-name:"FILE" description:"write the lane's work as a patch against its base"`
}

type collectJSON struct {
	Run string `json:"run"`
	laneJSON
	Branch string     `json:"branch,omitempty"`
	Base   string     `json:"base,omitempty"`
	Commit string     `json:"head,omitempty"`
	Count  *int       `json:"commits,omitempty"`
	Patch  *patchJSON `json:"patch,omitempty"`
	Notes  []string   `json:"notes,omitempty"`
}

type patchJSON struct {
	Path  string `json:"path"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
}

// Run is the verb.
func (o *collectOptions) Run(ctx context.Context, env *cli.Env) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	run, l, err := o.openLane(env)
	if err != nil {
		return err
	}
	v := l.Examine()
	out := collectJSON{Run: run.ID, laneJSON: describe(v), Base: l.Get(lane.FileBase)}
	if err := o.work(ctx, env, run, l, v, &out); err != nil {
		return err
	}
	p := printer{w: env.Stdout}
	for _, n := range out.Notes {
		env.Notef("%s", n)
	}
	if o.JSON {
		b, err := json.Marshal(out)
		if err != nil {
			return cli.Fail(1, "encode answer: %w", err)
		}
		p.text(string(b) + "\n")
		return p.err
	}
	p.value("status", v.Status)
	p.value("worktree", v.Worktree)
	p.value("result", v.Result)
	p.value("run_log", v.RunLog)
	p.value("event_log", v.EventLog)
	if out.ExitCode != "" {
		p.value("exit_code", out.ExitCode)
	}
	if out.Base != "" {
		p.value("base", out.Base)
	}
	if out.Count != nil {
		p.value("branch", out.Branch)
		p.value("head", out.Commit)
		p.value("commits", strconv.Itoa(*out.Count))
	}
	if out.Patch != nil {
		p.value("patch", out.Patch.Path)
		p.value("patch_files", strconv.Itoa(out.Patch.Files))
		p.value("patch_bytes", strconv.FormatInt(out.Patch.Bytes, 10))
	}
	p.text("\n")
	if p.err != nil {
		return p.err
	}
	return report(env.Foreign(), v.Result)
}

// report copies the worker's report.
func report(w io.Writer, name string) error {
	if name == "" {
		return nil
	}
	f, err := atomicfile.OpenRegular(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cli.Fail(1, "read result: %w", err)
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// work says what the worktree holds, and writes the patch.
func (o *collectOptions) work(ctx context.Context, env *cli.Env, run lane.Run, l lane.Lane, v lane.View, out *collectJSON) error {
	repo, err := worktree(ctx, env, v.Worktree)
	if err != nil {
		if o.Patch != "" {
			return refuse("%v", err)
		}
		out.Notes = append(out.Notes, err.Error())
		return nil
	}
	base, err := baseOf(ctx, repo, run, l)
	if err != nil {
		return refuse("%v", err)
	}
	out.Base = base
	if o.Patch == "" {
		p, err := repo.Checked(ctx, v.Worktree, base)
		if err != nil {
			out.Notes = append(out.Notes, err.Error())
			return nil
		}
		o.describe(l, p, out)
		return nil
	}
	if !lane.Ended(v.Status) && v.Status != lane.Created {
		out.Notes = append(out.Notes, "the lane is "+v.Status+": the patch is of this moment")
	}
	p, err := repo.WritePatch(ctx, v.Worktree, base, o.Patch)
	if err != nil {
		return refuse("%v", err)
	}
	o.describe(l, p, out)
	out.Patch = &patchJSON{Path: o.Patch, Files: len(p.Paths), Bytes: p.Bytes}
	if len(p.Paths) == 0 {
		out.Notes = append(out.Notes, "the lane changed nothing")
	}
	return nil
}

func (o *collectOptions) describe(l lane.Lane, p git.Patch, out *collectJSON) {
	out.Branch, out.Commit, out.Count = p.Branch, p.Head, &p.Commits
	own := l.Get(lane.FileBranch)
	switch {
	case p.Branch == "" && p.Head != "":
		out.Notes = append(out.Notes, "the worker left the branch "+own+": HEAD is detached at "+p.Head)
	case p.Branch != own:
		out.Notes = append(out.Notes, "the worker left the branch "+own+": it is on "+p.Branch)
	}
	if p.Commits > 0 {
		out.Notes = append(out.Notes, "the worker made "+strconv.Itoa(p.Commits)+" commit(s): they are in the patch")
	}
	if len(p.Links) > 0 {
		out.Notes = append(out.Notes, "a patch cannot hold what is in these repositories of their own: "+line.Escape(strings.Join(p.Links, ", ")))
	}
	if p.Unread != "" {
		out.Notes = append(out.Notes, "not everything could be read, so the patch is incomplete: "+p.Unread)
	}
}

// baseOf is the commit that a lane started from. A lane of the original has no
// such record: where its branch left the integration branch is the next best.
func baseOf(ctx context.Context, repo git.Repo, run lane.Run, l lane.Lane) (string, error) {
	if base := l.Get(lane.FileBase); base != "" {
		return base, nil
	}
	return repo.MergeBase(ctx, "refs/heads/"+run.Get(lane.FileIntBranch), "refs/heads/"+l.Get(lane.FileBranch))
}

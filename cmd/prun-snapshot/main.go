// Command prun-snapshot copies what a worker has said so far into an archive of
// its own, so that it outlives the state directory.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/line"
	"github.com/prun-suite/prun/pkg/snapshot"
	"github.com/prun-suite/prun/pkg/state"
)

// The exit statuses that are a failure's.
const (
	exitUsage       = 2
	exitExists      = 3
	exitSource      = 4
	exitArchive     = 5
	exitDestination = 6
)

type options struct {
	Unit   string   `long:"unit" value-name:"DIR" description:"state directory of the unit whose tail is copied"`
	Dest   string   `long:"dest" value-name:"DIR" description:"directory for the archive, which gets a name of its own there"`
	Output string   `long:"output" value-name:"FILE" description:"path of the archive"`
	All    bool     `long:"all" description:"copy the tail of every unit whose result is missing or empty"`
	Roots  []string `long:"root" value-name:"DIR" description:"with --all: where state directories are looked for (default: where dispatchers make them)"`
	Verify string   `long:"verify" value-name:"FILE" description:"take nothing, check this archive"`
	JSON   bool     `long:"json" description:"print JSON"`
}

func main() { cli.Main(tool(), new(options)) }

func tool() cli.Tool {
	return cli.Tool{
		Name:    "prun-snapshot",
		Summary: "copy the tail of a unit into an archive",
		Description: `Copies what a worker wrote to its tail into a ZIP archive with exactly two members, both stored: tail.bin, byte for byte, and manifest.json. ` +
			`It works on a unit that has ended and on one that is still writing. The archive is read back and compared, synced, and gets its name by a hard link, ` +
			`which never replaces anything: another file of that name stays as it is. With every exit status but 0 nothing is at that name that was not there before.

The read ends where the file ended when it was opened. It is a best effort: a file that is written, cut or replaced meanwhile can yield the same number of bytes, ` +
			`so complete_bounded_read in the manifest means that as many bytes came as were expected and no more than that. ` +
			`What was seen to happen (grew, shrank, rewritten, replaced, removed) is told beside it, under observed; to see nothing proves nothing.

Without --dest and --output the archive goes to the user's own directory for such things, see FILES. Directories that are missing are made with mode 0700, ` +
			`the archive has mode 0600. A snapshot prolongs the life of prompts and of what programs printed, so a directory that others can enter is refused.

With --all one archive is made for each unit below the roots whose result is missing or empty, and one line is printed for each: ` +
			`published, the unit's directory name and the path of the archive, or failed, the name, the exit status that failure would have had alone, and the reason. The exit status is the highest of these. ` +
			`A unit whose result cannot be told (prun-report calls it unknown) is not taken; how many there were is said on standard error.

--verify checks an archive: its members, that they are stored, its length and its digest. Holding a snapshot does not make the unit disposable.`,
		Exits: cli.Exits{
			0:               "published; with --verify: the archive is whole",
			exitUsage:       "wrong usage, or the unit is not a directory",
			exitExists:      "something stands at the destination; it is unchanged",
			exitSource:      "the tail (with --verify: the archive) cannot be opened or is not a regular file",
			exitArchive:     "the archive could not be built, or is not what it should be",
			exitDestination: "the destination cannot be used, or the archive could not be published there",
		},
		ExitOther: "128+n: stopped by signal n",
		Files: []cli.File{
			{Path: "$XDG_STATE_HOME/anywhere-agents/prun/snapshots", Text: "where archives go by default; XDG_STATE_HOME is ~/.local/state unless set. On Windows %LOCALAPPDATA%\\anywhere-agents\\prun\\snapshots"},
			{Path: "snapshot-<time>-<8 hex digits>.zip", Text: "name of an archive that was given none"},
			{Path: ".snap-*.part", Text: "an archive being made. A later snapshot removes it if its maker was killed and it is ten minutes old"},
		},
		Environment: []cli.EnvVar{
			{Name: "XDG_STATE_HOME", Default: "~/.local/state", Text: "base of the default destination; a relative one is ignored"},
			{Name: "PRUN_STATE_BASE", Default: "TMPDIR", Text: "with --all: where state directories are, unless --root says"},
		},
		Sections: []cli.Section{{Title: "MANIFEST", Text: `manifest.json holds, in this order:

	schema_version         1
	captured_at            when the tail was opened, UTC
	source_path            absolute path of the tail
	source_size_at_open    its size in bytes at that time
	bytes_copied           bytes in tail.bin
	sha256                 their digest
	source_may_be_live     true, always
	capture_outcome        complete_bounded_read or short_read
	note                   what equal counts do not prove

The answer of --json is an object with published (the path), manifest, warning (null, or what went wrong after the archive had its name) and observed. ` +
			`With --all it is an object with snapshots, a list of such objects with unit, exit and error added. With --verify it is verified and manifest.`}},
		Examples: []cli.Example{
			{Text: "Keep what one unit has said:", Command: "prun-snapshot --unit /tmp/prun-task-0123abcd-u1-4711-00112233445566aa"},
			{Text: "Keep what a killed session left, then look at it:", Command: "prun-snapshot --all --dest ~/salvage && prun-report"},
			{Text: "Check an archive:", Command: "prun-snapshot --verify ~/salvage/snapshot-20261129T120000Z-0a1b2c3d.zip"},
		},
		SeeAlso: []string{"prun-report(1)", "prun-dispatch(1)", "prun-state(5)", "prun(7)"},
	}
}

// Run checks that the options say one thing and does it.
func (o *options) Run(ctx context.Context, env *cli.Env) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	switch {
	case o.Verify != "" && (o.All || o.Unit != "" || o.Dest != "" || o.Output != "" || len(o.Roots) > 0):
		return cli.Usage("--verify goes with --json alone")
	case o.Verify != "":
		return o.verify(ctx, env)
	case env.Given("dest") && env.Given("output"):
		return cli.Usage("--dest and --output exclude each other")
	case o.All && (o.Unit != "" || env.Given("output")):
		return cli.Usage("--all goes with neither --unit nor --output")
	case !o.All && len(o.Roots) > 0:
		return cli.Usage("--root needs --all")
	case !o.All && o.Unit == "":
		return cli.Usage("option --unit is required")
	}
	if !o.All {
		if fi, err := os.Stat(o.Unit); err != nil {
			return quoted(exitUsage, "unit is not a directory: "+err.Error())
		} else if !fi.IsDir() {
			return quoted(exitUsage, "unit is not a directory: "+o.Unit)
		}
	}
	dir, name, err := o.destination(env)
	if err != nil {
		return err
	}
	if o.All {
		return o.every(ctx, env, dir)
	}
	return o.one(ctx, env, dir, name)
}

// one takes one snapshot.
func (o *options) one(ctx context.Context, env *cli.Env, dir, name string) error {
	u := state.Unit{Dir: o.Unit}
	s, err := snapshot.Take(ctx, snapshot.Request{Tail: u.Path(state.FileTail), Dir: dir, Name: name})
	if err != nil {
		return refuse(ctx, err)
	}
	if o.JSON {
		return printJSON(env, s)
	}
	return printText(env, s)
}

// verify checks an archive.
func (o *options) verify(ctx context.Context, env *cli.Env) error {
	m, err := snapshot.Verify(ctx, o.Verify)
	if err != nil {
		return refuse(ctx, err)
	}
	name, err := filepath.Abs(o.Verify)
	if err != nil {
		name = o.Verify
	}
	return printVerified(env, o.JSON, name, m)
}

// destination is where the archive goes; name is empty when it gets one there.
func (o *options) destination(env *cli.Env) (dir, name string, err error) {
	if !env.Given("output") {
		if env.Given("dest") {
			if o.Dest == "" {
				return "", "", cli.Usage("option --dest is empty")
			}
			return o.Dest, "", nil
		}
		dir, err := home(env)
		return dir, "", err
	}
	// The name is taken as it was written: cleaning it first would turn dir/.. into
	// a name.
	i := strings.LastIndexFunc(o.Output, func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) })
	dir, name = o.Output[:i+1], o.Output[i+1:]
	if vol := filepath.VolumeName(o.Output); dir == "" && vol != "" {
		dir, name = vol, strings.TrimPrefix(name, vol)
	}
	if name == "" || name == "." || name == ".." || name != strings.TrimSpace(name) || strings.ContainsRune(o.Output, 0) {
		return "", "", quoted(exitUsage, "output name may not traverse: "+o.Output)
	}
	if dir == "" {
		dir = "."
	}
	return dir, name, nil
}

// status maps the class of a failure.
func status(err error) int {
	var failure *snapshot.Error
	if errors.As(err, &failure) {
		switch failure.Class {
		case snapshot.Exists:
			return exitExists
		case snapshot.Source:
			return exitSource
		case snapshot.Destination:
			return exitDestination
		}
	}
	return exitArchive
}

// refuse ends with a failure, or with the signal that is behind it.
func refuse(ctx context.Context, err error) error {
	if s := stoppedBy(ctx); s != 0 {
		return cli.Fail(s, "stopped; nothing was published")
	}
	return quoted(status(err), err.Error())
}

// quoted ends with a message in the form that callers of the original know.
func quoted(code int, text string) error {
	return cli.Quoted(code, "error: "+line.Escape(text))
}

// stop is the signal that ended a context.
type stop struct{ os.Signal }

func (s stop) Error() string { return "stopped by " + s.String() }

// interruptible returns a context that ends with a signal, so that a copy of
// gigabytes takes its temporary file with it. Signals that were ignored when we
// started stay so.
func interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ch := make(chan os.Signal, 1)
	for _, s := range stops {
		if !signal.Ignored(s) {
			signal.Notify(ch, s)
		}
	}
	go func() {
		select {
		case s := <-ch:
			cancel(stop{s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		cancel(nil)
	}
}

// stoppedBy returns 128 and the number of the signal that ended ctx, or 0.
func stoppedBy(ctx context.Context) int {
	var s stop
	if errors.As(context.Cause(ctx), &s) {
		return 128 + number(s.Signal)
	}
	return 0
}

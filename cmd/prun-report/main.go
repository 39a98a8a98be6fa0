// Command prun-report says what the state directories of units hold: whether a
// result landed, how much output there is, and what could not be seen. It is read
// only.
package main

import (
	"bufio"
	"context"
	"io"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/state"
)

// safety stands in every answer, whole in JSON, on three lines in text.
const safety = "Snapshotting a tail is the only safe operation offered here. This output does not establish that deleting, overwriting, or promoting any unit is safe."

// exitPartial: something could not be seen; everything else is there.
const exitPartial = 1

type options struct {
	Roots        []string `long:"root" value-name:"DIR" description:"where state directories are looked for (default: where dispatchers make them)"`
	JSON         bool     `long:"json" description:"print JSON"`
	Summary      bool     `long:"summary" description:"add counts of units and of bytes"`
	Sort         string   `long:"sort" value-name:"ORDER" choice:"path" choice:"tail-bytes-desc" default:"path" description:"order of the units"`
	MinTailBytes int64    `long:"min-tail-bytes" value-name:"N" default:"0" description:"leave units with a smaller tail out of the listing; they are counted all the same"`
	LegacyPID    bool     `long:"include-legacy-pid" description:"show the number in dispatch-pid, which proves nothing"`
	Detail       bool     `long:"detail" description:"show who answers for each unit, how it ended, and more"`
	Units        []string `long:"units" value-name:"GLOB" description:"look only at units whose id, or whose directory's name, matches"`
	Since        ago      `long:"since" value-name:"DURATION" description:"look only at units begun since: seconds, or a number with s, m, h, d or w"`
}

func main() { cli.Main(tool(), new(options)) }

func tool() cli.Tool {
	return cli.Tool{
		Name:    "prun-report",
		Summary: "show what the state directories of units hold",
		Description: `Looks at the state directories directly below each root and says of each unit two things that are independent: what its record says about where its result is, and what stands there. ` +
			`It changes nothing, reads small files only, opens nothing that could block, and signals no process. ` +
			`It is for the time after a session was interrupted, when you must know which output survived.

A unit or a root that cannot be seen is reported as that, never as empty or missing, and makes the exit status 1.

The listing is a table of four columns in a pipe. On a terminal, and with --detail, it is a wider one that starts with the unit's id and tells also whether anybody answers for the unit, ` +
			`how it ended, its age and what ran. It is cut to the width of the terminal by leaving columns out, never by cutting an id; ids that occur twice get their process number. ` +
			`Red marks what needs attention, yellow what is still going on or cannot be told.

--units and --since decide which units are looked at; --min-tail-bytes only what is listed.`,
		Exits: cli.Exits{
			0:           "every root was listed and every unit seen in full",
			exitPartial: "a root or a unit could not be seen in full; the rest is reported",
			2:           "wrong usage",
		},
		Files: []cli.File{
			{Path: "$TMPDIR/prun-task-*", Text: "state directories; see prun-state(5)"},
		},
		Environment: []cli.EnvVar{
			{Name: "PRUN_STATE_BASE", Default: "TMPDIR", Text: "the root, unless --root says"},
			{Name: "TMPDIR", Default: "/tmp", Text: "the root where neither --root nor PRUN_STATE_BASE says; TEMP and TMP come after it"},
			{Name: "COLUMNS", Text: "width of the terminal, where it does not say itself"},
		},
		Sections: []cli.Section{
			{Title: "What the fields mean", Text: fieldsSection},
			{Title: "Detail", Text: detailSection},
		},
		Examples: []cli.Example{
			{Text: "After an interruption:", Command: "prun-report --summary"},
			{Text: "Which units hold output that nobody has read, largest first:", Command: "prun-report --json --sort tail-bytes-desc --min-tail-bytes 1 | jq -r '.units[] | select(.result != \"present\") | .unit'"},
			{Text: "How the units of today ended:", Command: "prun-report --detail --since 1d"},
		},
		SeeAlso: []string{"prun-snapshot(1)", "prun-monitor(1)", "prun-state(5)", "prun(7)"},
	}
}

// Run looks and prints.
func (o *options) Run(ctx context.Context, env *cli.Env) error {
	pick, err := o.selection()
	if err != nil {
		return err
	}
	terminal := !o.JSON && env.Terminal(env.Stdout)
	wide := !o.JSON && (o.Detail || terminal)
	roots := o.Roots
	if len(roots) == 0 {
		roots = []string{state.Base(env.Getenv)}
	}
	found := discover(roots, pick)
	s := &sweep{found: found, opts: state.ObserveOptions{LegacyPID: o.LegacyPID}, detail: o.Detail || wide, strict: o.Detail, now: time.Now()}
	out := bufio.NewWriterSize(env.Stdout, 64<<10)
	switch {
	case o.JSON:
		err = o.printJSON(out, s)
	case wide:
		limit := 0
		if terminal {
			limit = columns(env)
		}
		err = o.printWide(env, out, s, limit)
	default:
		err = o.printPlain(out, s)
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return err
	}
	partial := s.failed > 0 || len(found.Errors) > 0
	if !o.JSON {
		tellFailures(env.Stderr, s, partial)
	}
	if partial {
		return cli.Status(exitPartial)
	}
	return nil
}

// tellFailures says on stderr what the table could not.
func tellFailures(w io.Writer, s *sweep, partial bool) {
	var b strings.Builder
	for _, e := range s.found.Errors {
		b.WriteString("discovery failed: " + escape(e.Path) + " (" + state.ErrorName(e.Err) + ")\n")
	}
	if s.hidden > 0 {
		b.WriteString(count(s.hidden, "unit") + " that could not be seen in full " + isAre(s.hidden) + " left out by --min-tail-bytes\n")
	}
	if partial {
		b.WriteString("\nThis sweep is incomplete; what could not be seen is named above, and nothing is claimed about it.\n")
	}
	io.WriteString(w, b.String())
}

const fieldsSection = `result_path_state says what the unit's record says:

	resolved        it recorded a path
	absent-entry    it recorded none
	invalid-entry   the entry is blank, or a relative path that leaves the unit
	unreadable      there is an entry and it could not be read

result says what stands at the path:

	present         a file with something in it
	empty           a file with nothing in it
	missing         nothing: only that there is no such file proves it
	unknown         nothing is claimed

result is unknown with every state but resolved, and may be with that. The other keys of --json are unit (absolute), errors, result_target (the resolved path or null), ` +
	`tail_bytes (0 without a tail, null when it could not be seen), and with --include-legacy-pid legacy_pid_unverified. ` +
	`Above them stand schema_version (1), roots, unit_count (before --min-tail-bytes), discovery_errors, units, safety and, with --summary, summary.

Each error is a stage and a name: that of a Python exception, NotARegularFile for a directory, FIFO or device, or EntryTooLarge for more than 64 KiB. Stages are result-entry, result-target, result, tail and legacy-pid; ` +
	`root and unit-entry in discovery_errors.

The two counters of bytes in the summary never overlap. missing_or_empty_result counts the tails of units whose result is missing or empty, unresolved those of units whose result is unknown. ` +
	`Neither proves that no other copy exists.`

const detailSection = `With --detail schema_version is 2 and each unit has, after the old keys:

	identity       null without identity.json; else liveness, reason, and for
	               front, keeper, supervisor and worker null or pid, verdict
	               (alive, gone, unknown) and reason
	containment    cgroup, subreaper, job, group or null
	outcome        outcome.json, or null
	age_s          seconds since the dispatch, or null
	executor       what ran, or null
	queue          null, or ahead: how many workers are before this unit

A verdict is about the process that was recorded, by its start time and boot, never about whoever has its number now. unknown is an answer and no error; a record that exists and cannot be read is one, with the stage identity, worker or outcome and the name MalformedRecord where it is not whole.`

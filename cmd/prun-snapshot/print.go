package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/line"
	"github.com/prun-suite/prun/pkg/snapshot"
)

// disclaimer is two lines: what a reader of the numbers above must not conclude.
var disclaimer = []string{
	"Equal counts do not prove that the tail held still while it was read.",
	"Holding this snapshot does not make the unit disposable.",
}

// printText tells about one snapshot.
func printText(env *cli.Env, s *snapshot.Snapshot) error {
	m := s.Manifest
	lines := []string{
		"published " + s.Path,
		fmt.Sprintf("%d of %d bytes, %s", m.BytesCopied, m.SourceSizeAtOpen, m.CaptureOutcome),
		"sha256 " + m.SHA256,
	}
	if len(s.Observed) > 0 {
		lines = append(lines, "observed "+words(s.Observed))
	}
	if s.Warning != "" {
		env.Warnf("%s", s.Warning)
	}
	return printLines(env.Stdout, append(lines, disclaimer...))
}

func printLines(w io.Writer, lines []string) error {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(line.Escape(l) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func words(changes []snapshot.Change) string {
	var b strings.Builder
	for i, c := range changes {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(c))
	}
	return b.String()
}

// printJSON prints the answer for one snapshot: the keys of the original in its
// order, then ours.
func printJSON(env *cli.Env, s *snapshot.Snapshot) error {
	_, err := io.WriteString(env.Stdout, "{"+fields(s, "")+"\n}\n")
	return err
}

func fields(s *snapshot.Snapshot, indent string) string {
	in := indent + "  "
	published, manifest, warning, observed := "null", "null", "null", "[]"
	if s != nil {
		published, manifest = snapshot.Quote(s.Path), s.Manifest.JSON(in)
		if s.Warning != "" {
			warning = snapshot.Quote(s.Warning)
		}
		observed = list(s.Observed, in)
	}
	return "\n" + in + `"published": ` + published +
		",\n" + in + `"manifest": ` + manifest +
		",\n" + in + `"warning": ` + warning +
		",\n" + in + `"observed": ` + observed
}

func list(changes []snapshot.Change, indent string) string {
	if len(changes) == 0 {
		return "[]"
	}
	var b strings.Builder
	b.WriteString("[")
	for i, c := range changes {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n" + indent + "  " + snapshot.Quote(string(c)))
	}
	b.WriteString("\n" + indent + "]")
	return b.String()
}

// printVerified tells that an archive is whole.
func printVerified(env *cli.Env, asJSON bool, name string, m snapshot.Manifest) error {
	if asJSON {
		_, err := io.WriteString(env.Stdout, "{\n  \"verified\": "+snapshot.Quote(name)+",\n  \"manifest\": "+m.JSON("  ")+"\n}\n")
		return err
	}
	return printLines(env.Stdout, []string{
		"verified " + name,
		fmt.Sprintf("%d of %d bytes, %s", m.BytesCopied, m.SourceSizeAtOpen, m.CaptureOutcome),
		"sha256 " + m.SHA256,
	})
}

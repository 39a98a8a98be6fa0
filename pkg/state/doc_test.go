package state

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var root = filepath.Join("..", "..")

// fileNames returns the values of the File and Dir constants of names.go.
func fileNames(t *testing.T) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]string)
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "File") && !strings.HasPrefix(spec.Names[0].Name, "Dir") {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		names[value] = spec.Names[0].Name
		return true
	})
	return names
}

// docTable returns the rows of the table in doc.go, cells trimmed.
func docTable(t *testing.T) [][]string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(string(text)) {
		row, ok := strings.CutPrefix(line, "//\t")
		if !ok {
			continue
		}
		var cells []string
		for _, cell := range strings.Split(row, "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		rows = append(rows, cells)
	}
	return rows[1:]
}

func TestEveryFileHasARow(t *testing.T) {
	names := fileNames(t)
	for _, row := range docTable(t) {
		if len(row) != 6 || slices.Contains(row, "") {
			t.Errorf("row %q does not have six cells", row)
			continue
		}
		if _, ok := names[row[0]]; !ok {
			t.Errorf("row %q is about no constant", row[0])
		}
		delete(names, row[0])
	}
	for value, name := range names {
		t.Errorf("%s = %q has no row in doc.go", name, value)
	}
}

// The manual page repeats the table in its own form: an item per file with one
// sentence per column.
func TestManualRepeatsTheTable(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "man", "prun-state.5"))
	if err != nil {
		t.Fatal(err)
	}
	labels := []string{"Writer: ", "When: ", "How: ", "Absent: ", "Since: "}
	var rows [][]string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(strings.ReplaceAll(line, `\&`, ""))
		if name, ok := strings.CutPrefix(line, ".It Pa "); ok {
			rows = append(rows, []string{name})
			continue
		}
		for i, label := range labels {
			if cell, ok := strings.CutPrefix(line, label); ok && len(rows) > 0 {
				if row := rows[len(rows)-1]; len(row) != i+1 {
					t.Errorf("%s: %q out of place", row[0], label)
				}
				rows[len(rows)-1] = append(rows[len(rows)-1], strings.TrimSuffix(cell, "."))
			}
		}
	}
	rows = slices.DeleteFunc(rows, func(row []string) bool { return len(row) == 1 })
	want := docTable(t)
	for i, row := range want {
		if i >= len(rows) || !slices.Equal(rows[i], row) {
			got := []string(nil)
			if i < len(rows) {
				got = rows[i]
			}
			t.Fatalf("row %d of the manual page is\n%q, doc.go has\n%q", i, got, row)
		}
	}
	if len(rows) != len(want) {
		t.Errorf("the manual page has %d rows, doc.go %d", len(rows), len(want))
	}
}

// TestNamesAreNowhereElse keeps every file name in this package. Names that are
// ordinary words may be anything in another package; they are looked for only
// where a path is made, in the rooms that deal in units.
func TestNamesAreNowhereElse(t *testing.T) {
	names := fileNames(t)
	// Package agent imports nothing of ours and has this one name as a default. It
	// is looked up by its value, so the two cannot drift apart unseen.
	excused := map[string]string{"pkg/agent/muse.go": FilePromptRelay}
	for _, top := range []string{"pkg", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			slash := filepath.ToSlash(path)
			if d.IsDir() && (strings.HasSuffix(slash, "pkg/state") || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				// Not this test's business.
				return nil
			}
			units := strings.Contains(slash, "pkg/supervise/") || strings.Contains(slash, "cmd/prun-")
			look(f, units, func(value string) {
				if name, ok := names[value]; ok && excused[strings.TrimPrefix(slash, "../../")] != value {
					t.Errorf("%s spells %q, which is state.%s", slash, value, name)
				}
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// look calls found with every string literal of f that may name a file.
func look(f *ast.File, units bool, found func(string)) {
	inspect := func(n ast.Node, any bool) {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return
		}
		value, err := strconv.Unquote(lit.Value)
		if err == nil && (any || strings.ContainsAny(value, ".-")) {
			found(value)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		inspect(n, false)
		if call, ok := n.(*ast.CallExpr); ok && units {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && (sel.Sel.Name == "Join" || sel.Sel.Name == "Path" || sel.Sel.Name == "ReadEntry") {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "strings" {
					return true
				}
				for _, arg := range call.Args {
					inspect(arg, true)
				}
			}
		}
		return true
	})
}

package cmd

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/prun-suite/prun/"

// floor is what one package may import beside the standard library. An import may
// only go down; a rule carries its reason, because a rule without one is deleted
// by the first person whom it hinders.
type floor struct {
	may    []string
	reason string
}

var floors = map[string]floor{
	"pkg/atomicfile": {[]string{"golang.org/x/sys"}, "ground: files change whole or not at all, whoever asks"},
	"pkg/pid":        {[]string{"golang.org/x/sys"}, "ground: who a process is does not depend on what it is for"},
	"pkg/watch":      {nil, "arithmetic on times and sizes: tested without a clock, a file or a process"},
	"pkg/wake":       {[]string{"golang.org/x/sys"}, "knows paths, not what they mean"},
	"pkg/line":       {nil, "the grammar is text; who prints it is decided above"},
	"pkg/environ":    {nil, "pure lists of strings: what a program may see can be read in one table"},
	"pkg/agent":      {nil, "backends are described, never started, so that a transcript tests them"},
	"pkg/proc":       {[]string{"pkg/pid", "golang.org/x/sys"}, "a process tree knows no unit and no file of ours"},
	"pkg/state":      {[]string{"pkg/atomicfile", "pkg/pid"}, "names and formats; it starts and kills nothing"},
	"pkg/result":     {[]string{"pkg/atomicfile"}, "what stands at a path does not depend on who put it there"},
	"pkg/snapshot":   {[]string{"pkg/atomicfile", "github.com/klauspost/compress/zip"}, "the archive writer is used in one room"},
	"pkg/slots":      {[]string{"pkg/atomicfile", "pkg/pid", "pkg/wake"}, "admission counts locks and identities, no units; it waits for a directory to change"},
	"pkg/git":        {[]string{"pkg/atomicfile", "pkg/proc", "pkg/environ"}, "the only caller of git: hygiene, bounds, tree kill"},
	"pkg/quota":      {[]string{"pkg/atomicfile", "pkg/proc", "pkg/line"}, "reads and refreshes a snapshot; its notes are lines of the grammar, and who hears them is decided above"},
	"pkg/userdir":    {nil, "one directory, found the same way by every program of the user"},
	"pkg/preflight":  {[]string{"pkg/atomicfile"}, "remembers that a probe went well; what a probe is stays with its backend"},
	"pkg/supervise": {[]string{"pkg/proc", "pkg/watch", "pkg/agent", "pkg/environ", "pkg/state", "pkg/result", "pkg/slots",
		"pkg/quota", "pkg/preflight", "pkg/userdir", "pkg/git", "pkg/pid", "pkg/atomicfile", "pkg/line"}, "the one loop from start to outcome: it may use every room below, and no front"},
	"pkg/session": {[]string{"pkg/supervise", "pkg/eventlog", "pkg/git", "pkg/state", "pkg/atomicfile", "pkg/pid", "pkg/proc", "pkg/wake",
		"pkg/agent", "golang.org/x/sys"},
		"a record with its own table of files: its turns are units of the supervisor, so it stands above that room"},
	"pkg/lane": {[]string{"pkg/supervise", "pkg/git", "pkg/wake", "pkg/result", "pkg/state", "pkg/atomicfile", "pkg/pid", "pkg/proc",
		"pkg/agent", "pkg/line"},
		"a record with its own table of files, and what it adds to the one loop"},
	"pkg/copytree": {[]string{"golang.org/x/sys"}, "makes one path a copy of another; whose paths they are is decided above"},
	"pkg/eventlog": {[]string{"pkg/state", "pkg/atomicfile", "pkg/pid", "github.com/klauspost/compress/zstd"},
		"rotated segments; the compressor is used in one room"},
	"pkg/cli": {[]string{"pkg/line", "github.com/jessevdk/go-flags", "github.com/mattn/go-isatty"},
		"the front knows no unit; the flag library and the terminal test stay behind it"},
}

// systems are those that a build is made for; an import may hide in a file that
// only one of them compiles.
var systems = []string{"linux", "windows", "darwin"}

// packages finds the directories with Go files below root/cmd and root/pkg.
func packages(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, top := range []string{"cmd", "pkg"} {
		err := filepath.WalkDir(filepath.Join("..", top), func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if d.Name() == "testdata" {
				return fs.SkipDir
			}
			if files, _ := filepath.Glob(filepath.Join(name, "*.go")); len(files) > 0 {
				rel, err := filepath.Rel("..", name)
				found = append(found, filepath.ToSlash(rel))
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// imports returns what the non-test and the test files of a package import on one
// system.
func imports(t *testing.T, system, pkg string) (code, tests []string) {
	t.Helper()
	c := build.Default
	c.GOOS, c.GOARCH, c.CgoEnabled = system, "amd64", false
	c.BuildTags = []string{"forceposix"}
	p, err := c.ImportDir(filepath.Join("..", filepath.FromSlash(pkg)), 0)
	if err != nil {
		if _, none := err.(*build.NoGoError); none {
			return nil, nil
		}
		t.Fatalf("%s on %s: %v", pkg, system, err)
	}
	return p.Imports, slices.Concat(p.TestImports, p.XTestImports)
}

func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// TestFloors checks every import of every package, on every system.
func TestFloors(t *testing.T) {
	for _, pkg := range packages(t) {
		rule, known := floors[pkg]
		if strings.HasPrefix(pkg, "pkg/") && !known {
			t.Errorf("%s is in no row of the table: say what it owns and what it may import", pkg)
			continue
		}
		for _, system := range systems {
			code, tests := imports(t, system, pkg)
			for _, imported := range code {
				if why := refused(pkg, rule, imported); why != "" {
					t.Errorf("%s (%s) imports %s: %s", pkg, system, imported, why)
				}
			}
			for _, imported := range tests {
				if own := strings.TrimPrefix(imported, module); strings.HasPrefix(own, "cmd/") && own != pkg {
					t.Errorf("a test of %s (%s) imports %s: tools meet at their lines and exit statuses", pkg, system, imported)
				}
			}
		}
	}
}

// refused returns why an import is not allowed, "" when it is.
func refused(pkg string, rule floor, imported string) string {
	switch {
	case imported == "C":
		return "there is no C compiler where the suite is built"
	case standard(imported):
		return ""
	}
	own := strings.TrimPrefix(imported, module)
	if strings.HasPrefix(pkg, "cmd") {
		switch {
		case strings.HasPrefix(own, "pkg/"), strings.HasPrefix(own, pkg+"/"):
			return ""
		case strings.HasPrefix(own, "cmd"):
			return "a tool never imports a tool: they meet at their lines and exit statuses"
		}
		return "a tool imports rooms of the suite only; a library has one room that owns it"
	}
	for _, allowed := range rule.may {
		if own == allowed || imported == allowed || strings.HasPrefix(imported, allowed+"/") {
			return ""
		}
	}
	return fmt.Sprintf("allowed are %v, because: %s", rule.may, rule.reason)
}

// TestFloorsNoCycle: the table itself only goes down.
func TestFloorsNoCycle(t *testing.T) {
	var visit func(pkg string, above []string)
	visit = func(pkg string, above []string) {
		if slices.Contains(above, pkg) {
			t.Fatalf("the table lets %v import itself", append(above, pkg))
		}
		for _, below := range floors[pkg].may {
			if strings.HasPrefix(below, "pkg/") {
				visit(below, append(above, pkg))
			}
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(floors)) {
		if floors[pkg].reason == "" {
			t.Errorf("%s has a rule without a reason", pkg)
		}
		visit(pkg, nil)
	}
}

// TestNames: a drawer collects everything because its name refuses nothing.
func TestNames(t *testing.T) {
	drawers := []string{"util", "utils", "common", "helper", "helpers", "internal", "base", "misc", "shared", "manager", "core", "lib"}
	for _, pkg := range packages(t) {
		for _, part := range strings.Split(pkg, "/") {
			if slices.Contains(drawers, part) {
				t.Errorf("%s: name the promise, not the drawer", pkg)
			}
		}
	}
}

// sources parses every Go file of every package, whatever system it is for.
func sources(t *testing.T, visit func(pkg, file string, f *ast.File, set *token.FileSet)) {
	t.Helper()
	for _, pkg := range packages(t) {
		files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(pkg), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			visit(pkg, filepath.Base(name), f, set)
		}
	}
}

// TestOneExit: only the front ends the process. Anywhere else, what must still be
// written, released or ended would be lost.
func TestOneExit(t *testing.T) {
	ends := []string{"os.Exit", "syscall.Exit", "unix.Exit", "log.Fatal", "log.Fatalf", "log.Fatalln"}
	sources(t, func(pkg, file string, f *ast.File, set *token.FileSet) {
		if pkg == "pkg/cli" || strings.HasSuffix(file, "_test.go") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && slices.Contains(ends, x.Name+"."+s.Sel.Name) {
					t.Errorf("%s: %s.%s: only pkg/cli ends the process; return an error or a status", set.Position(n.Pos()), x.Name, s.Sel.Name)
				}
			}
			return true
		})
	})
}

// wellKnown methods say what every method of that name says.
var wellKnown = []string{"Error", "String", "Unwrap"}

// TestDocumented: every package has one package comment, every exported name a
// comment that says what holds.
func TestDocumented(t *testing.T) {
	comments := make(map[string]int)
	sources(t, func(pkg, file string, f *ast.File, set *token.FileSet) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		if f.Doc != nil {
			comments[pkg]++
		} else if comments[pkg] == 0 {
			comments[pkg] = 0
		}
		if strings.HasPrefix(pkg, "cmd") {
			return
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) && !slices.Contains(wellKnown, d.Name.Name) {
					t.Errorf("%s: %s has no comment", set.Position(d.Pos()), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					var names []*ast.Ident
					var doc, beside *ast.CommentGroup
					switch s := s.(type) {
					case *ast.TypeSpec:
						names, doc, beside = []*ast.Ident{s.Name}, s.Doc, s.Comment
					case *ast.ValueSpec:
						names, doc, beside = s.Names, s.Doc, s.Comment
					}
					for _, name := range names {
						if name.IsExported() && d.Doc == nil && doc == nil && beside == nil {
							t.Errorf("%s: %s has no comment", set.Position(name.Pos()), name.Name)
						}
					}
				}
			}
		}
	})
	for _, pkg := range slices.Sorted(maps.Keys(comments)) {
		if comments[pkg] == 0 {
			t.Errorf("%s has no package comment", pkg)
		}
	}
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	x := d.Recv.List[0].Type
	if star, ok := x.(*ast.StarExpr); ok {
		x = star.X
	}
	name, ok := x.(*ast.Ident)
	return ok && name.IsExported()
}

// TestTree: words and places that no file of the tree may hold.
func TestTree(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil || len(home) < 6 {
		home = "" // "/root" would be found in honest paths of tests
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	banned := []string{"TO" + "DO", "FIX" + "ME", root}
	if home != "" {
		banned = append(banned, home)
	}
	sources(t, func(pkg, file string, _ *ast.File, _ *token.FileSet) {
		text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(path.Join(pkg, file))))
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range strings.Split(string(text), "\n") {
			for _, word := range banned {
				if strings.Contains(l, word) {
					t.Errorf("%s/%s:%d holds %q", pkg, file, i+1, word)
				}
			}
		}
	})
}

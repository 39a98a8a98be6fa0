package result

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

func TestPublish(t *testing.T) {
	for _, empty := range []bool{false, true} {
		for _, proven := range []bool{true, false} {
			t.Run(fmt.Sprintf("empty=%v,proven=%v", empty, proven), func(t *testing.T) {
				dir := tempDir(t)
				path := filepath.Join(dir, "new", "deep", "r.md")
				if empty {
					must(t, os.MkdirAll(filepath.Dir(path), 0o700))
					write(t, path, "")
				}
				p := publication(path)
				p.Proven = proven
				var steps []string
				p.Step = func(name string) { steps = append(steps, name) }
				got, err := Publish(p)
				must(t, err)
				if !got.Ours || got.Where != path || got.Existing != Fallback || read(t, path) != fallback {
					t.Errorf("%+v, %s", got, short(read(t, path)))
				}
				if leased := leases(t, dir); empty && leased && (got.Kept == "") != proven {
					t.Errorf("kept %q", got.Kept)
				}
				want := []string{"C4", "C5.4", "C5", "C6"}
				if empty {
					want = []string{"C4", "C5.1", "C5.2", "C5.3", "C5.4", "C5", "C6"}
				}
				if !slices.Equal(steps, want) {
					t.Errorf("steps %q", steps)
				}
				// Another concluder: it is ours, and is not written again.
				before, _ := Inspect(path)
				again, err := Publish(publication(path))
				must(t, err)
				after, _ := Inspect(path)
				if !again.Ours || !again.sameAs(Published{Where: path, Ours: true, Existing: Fallback}) || before.Ino != after.Ino {
					t.Errorf("second concluder: %+v", again)
				}
				must(t, Sweep(path, owner, false))
				if got := names(t, filepath.Dir(path)); got != "r.md" {
					t.Errorf("left behind: %s", got)
				}
				// Now nothing says any more that it is ours.
				if got, err := Publish(publication(path)); err != nil || got.Ours || got.Existing != Fallback {
					t.Errorf("after the sweep: %+v, %v", got, err)
				}
				if got := names(t, filepath.Dir(path)); got != "r.md" {
					t.Errorf("left behind: %s", got)
				}
			})
		}
	}
}

// links reports whether there are hard links here.
func links(t *testing.T) bool {
	t.Helper()
	name := filepath.Join(tempDir(t), "a")
	write(t, name, "")
	return os.Link(name, name+"b") == nil
}

// sameAs compares all but what depends on the system.
func (p Published) sameAs(q Published) bool {
	p.Kept, p.Note = "", ""
	return p == q
}

// leases reports whether dir is on a file system with leases.
func leases(t *testing.T, dir string) bool {
	t.Helper()
	name := filepath.Join(dir, "lease")
	write(t, name, "")
	defer os.Remove(name)
	l, err := atomicfile.TakeLease(name)
	if err != nil {
		return false
	}
	l.Close()
	return true
}

func TestPublishLeavesWords(t *testing.T) {
	dir := tempDir(t)
	path := filepath.Join(dir, "r.md")
	for words, kind := range map[string]Kind{" ": Worker, "# u1 result\n": Worker, "# u9 result (FALLBACK, older)\n": Fallback} {
		write(t, path, words)
		got, err := Publish(publication(path))
		if err != nil || got != (Published{Existing: kind}) || read(t, path) != words || names(t, dir) != "r.md" {
			t.Errorf("%q: %+v, %v, %q in %s", words, got, err, read(t, path), names(t, dir))
		}
	}
}

func TestPublishForeign(t *testing.T) {
	dir := tempDir(t)
	path := filepath.Join(dir, "r.md")
	must(t, os.Mkdir(path, 0o700))
	got, err := Publish(publication(path))
	if err != nil || !got.sameAs(Published{Where: filepath.Join(dir, "spare"), Existing: Foreign}) || got.Note == "" || read(t, got.Where) != fallback {
		t.Errorf("%+v, %v", got, err)
	}
	if names(t, dir) != "r.md spare" || names(t, path) != "" {
		t.Errorf("left behind: %s", names(t, dir))
	}
	p := publication(path)
	p.Spare = ""
	if got, err := Publish(p); err != nil || got.Where != "" || got.Note == "" {
		t.Errorf("no spare: %+v, %v", got, err)
	}
}

func TestPublishCannot(t *testing.T) {
	dir := tempDir(t)
	write(t, filepath.Join(dir, "file"), "")
	p := publication(filepath.Join(dir, "file", "r.md"))
	p.Spare = filepath.Join(dir, "spare")
	got, err := Publish(p)
	if err == nil || got.Where != p.Spare || read(t, p.Spare) != fallback || got.Ours {
		t.Errorf("a file as parent: %+v, %v", got, err)
	}
	boom := errors.New("boom")
	p = publication(filepath.Join(dir, "r.md"))
	p.Body = func(w io.Writer) error {
		io.WriteString(w, "half")
		return boom
	}
	p.Spare = filepath.Join(dir, "spare2")
	if got, err := Publish(p); !errors.Is(err, boom) || got.Where != "" || names(t, dir) != "file spare" {
		t.Errorf("a body that fails: %+v, %v, %s", got, err, names(t, dir))
	}
	p = publication(filepath.Join(dir, strings.Repeat("x", 300)))
	if got, err := Publish(p); err == nil || got.Where != p.Spare {
		t.Errorf("a name too long: %+v, %v", got, err)
	}
	p = publication(filepath.Join(dir, strings.Repeat("x", 250)+".md")) // too long with the hidden part
	if got, err := Publish(p); err != nil || !got.Ours {
		t.Errorf("a long name: %+v, %v", got, err)
	}
	must(t, Sweep(p.Path, owner, false))
	if strings.Contains(names(t, dir), "prun") {
		t.Errorf("left behind: %s", names(t, dir))
	}
	must(t, Sweep(filepath.Join(dir, "no", "such"), owner, false))
}

// TestPublishMeetsWorker lets a worker act at each point of the protocol; its words
// must be at the result path in the end.
func TestPublishMeetsWorker(t *testing.T) {
	const words = "# u1 result\nlate\n"
	retry := func() {}
	rename := func(t *testing.T, path string) {
		write(t, path+".new", words)
		// Windows does not replace what is open; a worker there tries again.
		if err := os.Rename(path+".new", path); err != nil && runtime.GOOS == "windows" {
			retry = func() { must(t, os.Rename(path+".new", path)) }
		} else {
			must(t, err)
		}
	}
	create := func(t *testing.T, path string) { write(t, path, words) }
	link := func(t *testing.T, path string) {
		write(t, path+".new", words)
		if err := os.Link(path+".new", path); err != nil && !errors.Is(err, os.ErrExist) {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		at, name string
		act      func(*testing.T, string)
		refused  bool // the worker is told so
	}{
		{"C4", "rename", rename, false}, {"C4", "create", create, false}, {"C4", "link", link, true},
		{"C5.1", "rename", rename, false},
		{"C5.2", "rename", rename, false}, {"C5.2", "create", create, false}, {"C5.2", "link", link, false},
		{"C5.3", "rename", rename, false}, {"C5.3", "create", create, false}, {"C5.3", "link", link, false},
		{"C5.4", "rename", rename, false}, {"C5.4", "create", create, false}, {"C5.4", "link", link, true},
		{"C5", "rename", rename, false}, {"C6", "rename", rename, false},
	} {
		if c.name == "link" && !links(t) {
			continue
		}
		for _, proven := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%s/proven=%v", c.at, c.name, proven), func(t *testing.T) {
				dir := tempDir(t)
				path := filepath.Join(dir, "r.md")
				write(t, path, "")
				p := publication(path)
				p.Proven = proven
				var once sync.Once
				p.Step = func(name string) {
					if name == c.at {
						once.Do(func() { c.act(t, path) })
					}
				}
				retry = func() {}
				got, err := Publish(p)
				must(t, err)
				retry()
				now := read(t, path)
				if c.refused {
					if now != fallback || !got.Ours {
						t.Errorf("%+v, %s", got, short(now))
					}
				} else if now != words {
					t.Errorf("%+v, %s", got, short(now))
				}
				os.Remove(path + ".new")
				must(t, Sweep(path, owner, false))
				if got := names(t, dir); got != "r.md" {
					t.Errorf("left behind: %s", got)
				}
			})
		}
	}
}

// TestPublishKilled: the publisher dies at each point; a reader sees nothing, the
// empty file or all; the next concluder finishes.
func TestPublishKilled(t *testing.T) {
	for _, empty := range []bool{false, true} {
		steps := []string{"C4", "C5.4", "C5", "C6"}
		if empty {
			steps = append(steps, "C5.1", "C5.2", "C5.3")
		}
		for _, step := range steps {
			t.Run(fmt.Sprintf("empty=%v/%s", empty, step), func(t *testing.T) {
				dir := tempDir(t)
				path := filepath.Join(dir, "r.md")
				if empty {
					write(t, path, "")
				}
				out, err := helper("publish", path, step).CombinedOutput()
				if err == nil {
					t.Fatalf("it lived: %s", out)
				}
				if now := read(t, path); now != fallback && now != "" && now != "<absent>" {
					t.Errorf("a reader sees %s", short(now))
				}
				got, err := Publish(publication(path))
				must(t, err)
				if !got.Ours || read(t, path) != fallback {
					t.Errorf("%+v, %s", got, short(read(t, path)))
				}
				must(t, Sweep(path, owner, false))
				if got := names(t, dir); got != "r.md" {
					t.Errorf("left behind: %s", got)
				}
			})
		}
	}
}

// TestRecoverWords: a publisher died with a worker's words under the hidden name.
func TestRecoverWords(t *testing.T) {
	const words = "# u1 result\nlate\n"
	for _, at := range []string{"<absent>", "", "fallback", "newer"} {
		for _, sweep := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/sweep=%v", at, sweep), func(t *testing.T) {
				dir := tempDir(t)
				path := filepath.Join(dir, "r.md")
				aside := asideName(path, owner, 1)
				switch at {
				case "fallback":
					_, err := Publish(publication(path))
					must(t, err)
				case "", "newer":
					write(t, path, at)
				}
				write(t, aside, words)
				var got Published
				if sweep {
					must(t, Sweep(path, owner, true))
				} else {
					var err error
					got, err = Publish(publication(path))
					must(t, err)
				}
				want := words
				if at == "newer" {
					want = at // both are kept
					if read(t, aside) != words || !sweep && got.Kept != aside {
						t.Errorf("%+v: words are gone", got)
					}
				}
				if now := read(t, path); now != want {
					t.Errorf("%+v, %s", got, short(now))
				}
				if !sweep && (got.Ours || got.Existing != Worker) {
					t.Errorf("%+v", got)
				}
			})
		}
	}
}

// TestWordsInOurFile: the publisher died, and a worker wrote over the FALLBACK in
// place, into the file that we recognise.
func TestWordsInOurFile(t *testing.T) {
	path := filepath.Join(tempDir(t), "r.md")
	_, err := Publish(publication(path))
	must(t, err)
	write(t, path, "# u1 result\n")
	if got, err := Publish(publication(path)); err != nil || got.Ours || got.Existing != Worker || read(t, path) != "# u1 result\n" {
		t.Errorf("%+v, %v", got, err)
	}
	// Cut to nothing and then died: nobody's words are there.
	path += "2"
	_, err = Publish(publication(path))
	must(t, err)
	write(t, path, "")
	if got, err := Publish(publication(path)); err != nil || !got.Ours || read(t, path) != fallback {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSixConcluders(t *testing.T) {
	dir := tempDir(t)
	for round := range 30 {
		path := filepath.Join(dir, fmt.Sprint("r", round))
		if round%2 == 0 {
			write(t, path, "")
		}
		var won [6]bool
		var wg sync.WaitGroup
		body := func(i int) string { return fallback + fmt.Sprint(i) }
		for i := range won {
			wg.Go(func() {
				p := publication(path)
				p.Owner, p.Body, p.Spare = fmt.Sprintf("%d-1", i), text(body(i)), ""
				got, err := Publish(p)
				if err != nil {
					t.Error(err)
				}
				won[i] = got.Ours
			})
		}
		wg.Wait()
		winner := slices.Index(won[:], true)
		if winner < 0 || slices.Contains(won[winner+1:], true) || read(t, path) != body(winner) {
			t.Fatalf("round %d: winners %v, %s", round, won, short(read(t, path)))
		}
	}
}

func BenchmarkPublish(b *testing.B) {
	for _, empty := range []bool{false, true} {
		b.Run(fmt.Sprint("empty=", empty), func(b *testing.B) {
			path := filepath.Join(tempDir(b), "r.md")
			for b.Loop() {
				if empty {
					write(b, path, "")
				}
				if got, err := Publish(publication(path)); err != nil || !got.Ours {
					b.Fatal(got, err)
				}
				must(b, Sweep(path, owner, false))
				must(b, os.Remove(path))
			}
		})
	}
}

package supervise

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/prun-suite/prun/pkg/state"
)

// FuzzLaunch: whoever concludes a unit reads what is in its directory, which may
// have been spoilt.
func FuzzLaunch(f *testing.F) {
	whole, err := json.Marshal(Launch{SchemaVersion: 1, Unit: "u", Backend: "command", Base: "/b", Result: "/r"}.kept())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"unit":"../x","backend":"no such","result":"relative","stops":null,"hard":-1,"turn":{"Argv":["a"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		u := state.Unit{Dir: t.TempDir()}
		if err := os.WriteFile(filepath.Join(u.Dir, state.FileLaunch), data, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := ReadLaunch(u)
		if err == nil && (l.Turn.StateDir != u.Dir || l.Turn.ResultFile != l.Result) {
			t.Errorf("%q: %+v", data, l)
		}
		// Nobody answers for it and nothing proves whose it is.
		if finding := Reap(Dispatch{}, u, ReapOptions{DryRun: true}); finding.Left == "" {
			t.Errorf("%q: %+v", data, finding)
		}
	})
}

// FuzzMessages: the two ends may be of different versions.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(`{"kind":"launch","launch":{"unit":"u"},"argv":["YQ=="]}` + "\n" + `{"kind":"go"}` + "\n"))
	f.Add([]byte("\n{}\n[]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l := &link{r: bufio.NewReaderSize(bytes.NewReader(data), 64)}
		for n := 0; ; n++ {
			if _, err := l.recv(); err != nil {
				return
			}
			if n > len(data) {
				t.Fatal("messages without end")
			}
		}
	})
}

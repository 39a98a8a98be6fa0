package result

import "io"

// Form is the text of a FALLBACK.
type Form int

const (
	FormCodex Form = iota // of dispatch-task: the whole tail, raw
	FormAgy               // of the Agy dispatcher: fenced blocks
	FormNamed             // FormAgy for another backend, named in line 1
)

// Salvage is the FALLBACK of a unit whose worker left no result.
type Salvage struct {
	Form    Form
	Unit    string
	Tool    string // who signs a FormCodex: "dispatch-task" or "prun-dispatch"
	Backend string // who is named in line 1 of a FormNamed
	Reason  string
	Reaped  bool   // FormCodex: the worker was ended by us, for Reason
	Tail    string // path, "" for none
	Stderr  string // path, "" for none
	Note    string
}

// WriteTo writes the FALLBACK to w.
func (s Salvage) WriteTo(w io.Writer) (int64, error) { return 0, nil }

package cli

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/mattn/go-isatty"
	"github.com/prun-suite/prun/pkg/line"
)

// output is stdout with a memory: the first error is kept, so that a run that
// ignored it cannot end as a success.
type output struct {
	w   io.Writer
	mu  sync.Mutex
	err error
}

// Write passes on and remembers.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil {
		o.mu.Lock()
		if o.err == nil {
			o.err = err
		}
		o.mu.Unlock()
	}
	return n, err
}

func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// closedPipe reports whether err says that the reader of a stream has left.
func closedPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) || closedPipeSystem(err)
}

// settle makes the process safe before anything else runs: a write to a closed
// stdout or stderr is an error and no death by SIGPIPE (a supervisor must survive
// the end of its caller's terminal), and no child sees go-flags' own variable.
func settle() {
	catchPipe()
	dropCompletionVariable()
}

// dropCompletionVariable: with it set, go-flags prints a list of options and ends
// the process in the middle of a parse.
func dropCompletionVariable() {
	os.Unsetenv("GO_FLAGS_COMPLETION")
}

// File returns the file behind a stream of Env, nil when it is none (in tests).
func (e *Env) File(stream any) *os.File {
	if o, ok := stream.(*output); ok {
		stream = o.w
	}
	f, _ := stream.(*os.File)
	return f
}

// Terminal reports whether a stream of Env is a terminal, that of Git Bash on
// Windows included. It may decide colour and layout, never a line or a status.
func (e *Env) Terminal(stream any) bool {
	f := e.File(stream)
	return f != nil && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
}

// Foreign is standard output for text that somebody else wrote, a worker above
// all: on a terminal its control characters are shown and not obeyed; elsewhere
// every byte passes.
func (e *Env) Foreign() io.Writer {
	if e.Terminal(e.Stdout) {
		return line.Text(e.Stdout)
	}
	return e.Stdout
}

// Colour is a way to mark text on a terminal.
type Colour string

// The colours in use: Red for what failed, Yellow for what waits or warns, Green
// for what is done, Bold and Dim for weight.
const (
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
	Bold   Colour = "1"
	Dim    Colour = "2"
)

// Paint marks text if w may have colour: --color=always, or --color=auto (the
// default) on a terminal that is not dumb, with NO_COLOR unset or empty.
func (e *Env) Paint(w io.Writer, c Colour, text string) string {
	if !e.Coloured(w) {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// Coloured reports whether w may have colour.
func (e *Env) Coloured(w io.Writer) bool {
	switch e.color {
	case "always":
		return true
	case "never":
		return false
	}
	return e.Getenv("NO_COLOR") == "" && e.Getenv("TERM") != "dumb" && e.Terminal(w)
}

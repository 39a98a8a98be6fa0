package supervise

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/prun-suite/prun/pkg/state"
)

// message is one line between the front door and the supervisor. The whole
// protocol is: down launch, prompt..., prompt-end, go or
// abort, stop; up refused, or
// dir, note..., accepted (the ledger has its first line), end. End of file from above changes nothing for a worker that
// runs; before go it means that the worker is never started.
type message struct {
	Kind    string         `json:"kind"`
	Launch  *Launch        `json:"launch,omitempty"`
	Argv    [][]byte       `json:"argv,omitempty"`
	Args    [][]byte       `json:"args,omitempty"`
	Cwd     []byte         `json:"cwd,omitempty"`
	Data    []byte         `json:"data,omitempty"`
	Signal  int            `json:"signal,omitempty"`
	Dir     string         `json:"dir,omitempty"`
	PID     int            `json:"pid,omitempty"`
	Text    string         `json:"text,omitempty"`
	Refusal *Refusal       `json:"refusal,omitempty"`
	Outcome *state.Outcome `json:"outcome,omitempty"`
}

const (
	kindLaunch    = "launch"
	kindPrompt    = "prompt"
	kindPromptEnd = "prompt-end"
	kindGo        = "go"
	kindStop      = "stop"
	kindAbort     = "abort"
	kindRefused   = "refused"
	kindDir       = "dir"
	kindNote      = "note"
	kindAccepted  = "accepted"
	kindEnd       = "end"
)

// maxMessage bounds one line of the link; the largest is an outcome with
// notes, or a launch with a long argv.
const maxMessage = 16 << 20

// promptChunk is how much of a prompt one message carries.
const promptChunk = 64 << 10

// link is one end of the connection. Reading is for one goroutine; writing is
// safe for several.
type link struct {
	in  *os.File
	out *os.File
	r   *bufio.Reader
	mu  sync.Mutex
	// patience bounds a write; zero waits for ever. The supervisor must never
	// wait for a stopped front door.
	patience time.Duration
	broken   bool
}

func newLink(in, out *os.File, patience time.Duration) *link {
	return &link{in: in, out: out, r: bufio.NewReaderSize(in, 32<<10), patience: patience}
}

func (l *link) send(m message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s message: %w", m.Kind, err)
	}
	b = append(b, '\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		return io.ErrClosedPipe
	}
	whole := len(b)
	until := time.Now().Add(m.patience())
	for tries := 1; ; tries++ {
		if l.patience > 0 {
			// Without a deadline first: on a machine that has no time for us it
			// passes before the first byte was tried.
			_ = l.out.SetWriteDeadline(time.Time{})
			if b = b[writeNow(l.out, b):]; len(b) == 0 {
				return nil
			}
			// Not every file takes a deadline (Windows pipes do not); the write
			// then only blocks when a stopped reader let 64 KiB pile up.
			_ = l.out.SetWriteDeadline(time.Now().Add(l.patience))
		}
		n, err := l.out.Write(b)
		if err == nil {
			return nil
		}
		b = b[n:]
		if errors.Is(err, os.ErrDeadlineExceeded) && (tries < sendTries || time.Now().Before(until)) {
			continue
		}
		// After half a line anything more would be read as part of it.
		l.broken = len(b) < whole || !errors.Is(err, os.ErrDeadlineExceeded)
		return fmt.Errorf("send %s message: %w", m.Kind, err)
	}
}

// sendTries is how often a message is tried before it is given up.
const sendTries = 3

// patience is how long a message is worth waiting for a reader that does not
// read: the other side waits for these, and for ever.
func (m message) patience() time.Duration {
	switch m.Kind {
	case kindDir, kindRefused, kindAccepted, kindEnd:
		return 10 * time.Second
	}
	return 0
}

var errLongMessage = errors.New("message too long")

func (l *link) recv() (message, error) {
	var m message
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return m, err
		}
		if len(line) > maxMessage {
			return m, errLongMessage
		}
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return m, fmt.Errorf("decode message: %w", err)
	}
	return m, nil
}

func (l *link) close() {
	if l.out == l.in {
		l.in.Close()
		return
	}
	l.out.Close()
	// Two pipes are Windows, where closing one waits for a read that is under
	// way in it, and that waits for the other end: a detached unit would hold
	// its front door. Whoever closes a link is about to end.
	go l.in.Close()
}

// receive starts the one reading goroutine; the channel closes at end of file.
func (l *link) receive() <-chan message {
	c := make(chan message, 16)
	go func() {
		defer close(c)
		for {
			m, err := l.recv()
			if err != nil {
				return
			}
			c <- m
		}
	}()
	return c
}

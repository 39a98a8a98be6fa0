//go:build unix

package supervise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/pid"
)

// Descriptors that a keeper and a supervisor are born with.
const (
	linkFD  = 3
	guardFD = 4
)

// guardLink is the supervisor's end of its connection to the keeper: two
// one-way messages, which the keeper does not read before the supervisor is
// dead. A nil guardLink is a supervisor without a keeper.
type guardLink struct {
	f    *os.File
	who  pid.ID
	gone chan struct{}
}

// supervisorLinks takes over what the keeper handed down.
func supervisorLinks() (*link, *guardLink, error) {
	up, err := inherited(linkFD, "front door")
	if err != nil {
		return nil, nil, err
	}
	f, err := inherited(guardFD, "keeper")
	if err != nil {
		return newLink(up, up, notePatience), nil, nil
	}
	g := &guardLink{f: f, who: parentID(), gone: make(chan struct{})}
	go func() {
		defer close(g.gone)
		// The keeper never writes: this returns when it is dead.
		_, _ = f.Read(make([]byte, 1))
	}()
	return newLink(up, up, notePatience), g, nil
}

// keeper is who guards this supervisor; the zero ID when nobody does.
func (g *guardLink) keeper() pid.ID {
	if g == nil {
		return pid.ID{}
	}
	return g.who
}

// lost closes when the keeper died.
func (g *guardLink) lost() <-chan struct{} {
	if g == nil {
		return nil
	}
	return g.gone
}

// tell leaves the unit's names with the keeper.
func (g *guardLink) tell(n birthNames) error {
	if g == nil {
		return nil
	}
	b, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode names: %w", err)
	}
	if _, err := g.f.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("tell the keeper: %w", err)
	}
	return nil
}

// lend sends held locks to the keeper. In flight they stay held when this
// process is killed, until the keeper is gone too.
func (g *guardLink) lend(locks ...*os.File) error {
	if g == nil || len(locks) == 0 {
		return nil
	}
	var fds []int
	for _, l := range locks {
		fds = append(fds, int(l.Fd()))
	}
	raw, err := g.f.SyscallConn()
	if err != nil {
		return fmt.Errorf("lend lock: %w", err)
	}
	var serr error
	err = raw.Write(func(fd uintptr) bool {
		serr = syscall.Sendmsg(int(fd), []byte{'\n'}, syscall.UnixRights(fds...), nil, 0)
		return !errors.Is(serr, syscall.EAGAIN)
	})
	if err = errors.Join(err, serr); err != nil {
		return fmt.Errorf("lend lock: %w", err)
	}
	return nil
}

// inherit reads, on the keeper's end, what a dead supervisor left: the names
// and the locks, which this process holds from now on.
func inherit(f *os.File) (birthNames, []*atomicfile.Lock, error) {
	var n birthNames
	var text []byte
	var locks []*atomicfile.Lock
	raw, err := f.SyscallConn()
	if err != nil {
		return n, nil, fmt.Errorf("read bequest: %w", err)
	}
	buf, oob := make([]byte, 64<<10), make([]byte, 256)
	for {
		var count, oobCount int
		var rerr error
		err := raw.Read(func(fd uintptr) bool {
			count, oobCount, _, _, rerr = syscall.Recvmsg(int(fd), buf, oob, 0)
			return !errors.Is(rerr, syscall.EAGAIN)
		})
		if err = errors.Join(err, rerr); err != nil {
			return n, locks, fmt.Errorf("read bequest: %w", err)
		}
		if oobCount > 0 {
			locks = append(locks, adoptLocks(oob[:oobCount])...)
		}
		if count == 0 {
			break
		}
		text = append(text, buf[:count]...)
	}
	if len(text) == 0 {
		return n, locks, io.EOF
	}
	// The first line is the names, the rest are the empty lines that carried
	// descriptors.
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&n); err != nil {
		return n, locks, fmt.Errorf("read bequest: %w", err)
	}
	return n, locks, nil
}

func adoptLocks(oob []byte) []*atomicfile.Lock {
	var locks []*atomicfile.Lock
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		fds, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			locks = append(locks, atomicfile.AdoptLock(os.NewFile(uintptr(fd), "lock")))
		}
	}
	return locks
}

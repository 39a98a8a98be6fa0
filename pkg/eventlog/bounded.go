package eventlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// Bounded is a plain log whose newest half is kept when it is full.
type Bounded struct {
	name string
	cap  int64
	f    *os.File
	size int64
	err  error
}

// OpenBounded opens a log of at most limit bytes for appending.
func OpenBounded(name string, limit int64) (*Bounded, error) {
	b := &Bounded{name: name, cap: max(limit, 16<<10)}
	if err := b.open(); err != nil {
		return nil, err
	}
	if b.size > b.cap {
		b.halve()
	}
	return b, nil
}

func (b *Bounded) open() error {
	l := Log{name: b.name}
	if err := l.open(os.O_CREATE); err != nil {
		return err
	}
	fi, err := l.f.Stat()
	if err != nil {
		l.f.Close()
		return fmt.Errorf("open log: %w", err)
	}
	b.f, b.size = l.f, fi.Size()
	return nil
}

// Write appends. It never fails; Err says what could not be kept.
func (b *Bounded) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		part := p[:min(int64(len(p)), b.cap/4)]
		if b.size+int64(len(part)) > b.cap {
			b.halve()
		}
		if _, err := b.f.Write(part); err != nil {
			b.err = fmt.Errorf("write log: %w", err)
			return n, nil
		}
		b.size += int64(len(part))
		p = p[len(part):]
	}
	return n, nil
}

// halve keeps the newest half, from the beginning of a line, under a line that says how much went.
func (b *Bounded) halve() {
	start := b.size - b.cap/2
	temp := atomicfile.TempName(b.name, strconv.Itoa(os.Getpid())+"-0")
	err := func() error {
		_ = os.Remove(temp)
		out, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, filePerm)
		if err != nil {
			return err
		}
		defer out.Close()
		in := bufio.NewReaderSize(io.NewSectionReader(b.f, start, b.size-start), block)
		if head, err := in.Peek(block / 2); err == nil {
			if i := bytes.IndexByte(head, '\n'); i >= 0 {
				n, _ := in.Discard(i + 1)
				start += int64(n)
			}
		}
		if _, err := fmt.Fprintf(out, "[%d bytes left out]\n", start); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
		if err := out.Close(); err != nil {
			return err
		}
		b.f.Close()
		return atomicfile.Rename(temp, b.name)
	}()
	if err != nil {
		b.err = fmt.Errorf("shorten log: %w", err)
		_ = os.Remove(temp)
		b.f.Close()
		_ = os.Truncate(b.name, 0)
	}
	if err := b.open(); err != nil {
		b.err = err
	}
}

// Err is the last failure to keep something.
func (b *Bounded) Err() error { return b.err }

// Close closes the file.
func (b *Bounded) Close() error { return errors.Join(b.err, b.f.Close()) }

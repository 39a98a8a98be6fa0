// Package result owns what stands at a unit's result path: reading it without
// trusting it, the FALLBACK that is put there when the worker wrote nothing,
// the return contract, the response beside it, and the publication of all these.
//
// It does not decide whether a unit succeeded, and it knows no state directory:
// callers hand in paths.
//
// The invariant: a reader of the result path sees nothing or a whole text, and
// a non-empty file of the worker is never replaced, moved or written to,
// whenever it lands (see Publish for what that costs on each system).
package result

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// Kind says what stands at a result path.
type Kind int

const (
	Absent   Kind = iota // nothing, or a parent directory is missing
	Empty                // a regular file without bytes
	Worker               // a regular file with bytes and no FALLBACK header
	Fallback             // a regular file whose first line is a FALLBACK header
	Foreign              // a directory, FIFO, socket, device, or a link to anything but a regular file
)

func (k Kind) String() string {
	switch k {
	case Absent:
		return "absent"
	case Empty:
		return "empty"
	case Worker:
		return "worker"
	case Fallback:
		return "fallback"
	case Foreign:
		return "foreign"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// Info is one look at a result path. For a link to a regular file everything is
// the target's, but Mode has fs.ModeSymlink set.
type Info struct {
	Kind       Kind
	Size       int64
	ModTime    time.Time
	ChangeTime time.Time // of the inode: cannot be set back by whoever writes the file
	Dev, Ino   uint64    // volume serial number and file index on Windows
	Mode       fs.FileMode
}

func infoOf(i atomicfile.Info) Info {
	return Info{Size: i.Size, ModTime: i.ModTime, ChangeTime: i.ChangeTime, Dev: i.Dev, Ino: i.Ino, Mode: i.Mode}
}

// same reports whether both looks met the same file.
func (i Info) same(j atomicfile.Info) bool { return j.Same(atomicfile.Info{Dev: i.Dev, Ino: i.Ino}) }

// Inspect looks at path and reads nothing but its first line. It opens only
// regular files, never waits (FIFO, device), and never follows a last link
// unknowingly. Nothing there is Absent and no error. When a non-empty regular
// file cannot be read the Info says Worker, because it cannot be proven to be
// anything less, and the error says why.
func Inspect(path string) (Info, error) {
	seen, err := atomicfile.Look(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Info{Kind: Absent}, nil
	}
	if err != nil {
		return Info{Kind: Absent}, fmt.Errorf("inspect result: %w", err)
	}
	info := infoOf(seen)
	linked := info.Mode&fs.ModeSymlink != 0
	if linked {
		target, err := atomicfile.LookThrough(path)
		if err != nil || !target.Mode.IsRegular() {
			info.Kind = Foreign // dangling, a loop, or a link to something else
			return info, nil
		}
		info = infoOf(target)
	}
	if !info.Mode.IsRegular() {
		info.Kind = Foreign
		return info, nil
	}
	if linked {
		info.Mode |= fs.ModeSymlink
	}
	if info.Size == 0 {
		info.Kind = Empty
		return info, nil
	}
	info.Kind = Worker
	line, err := firstLine(path)
	if err != nil {
		return info, fmt.Errorf("inspect result: %w", err)
	}
	if IsFallbackHeader(line) {
		info.Kind = Fallback
	}
	return info, nil
}

// headerMax is how much of line 1 is read; a header of ours is far shorter.
const headerMax = 4096

func firstLine(path string) ([]byte, error) {
	f, err := atomicfile.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buf := make([]byte, headerMax)
	n, err := io.ReadFull(f, buf)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, err
	}
	line, _, _ := bytes.Cut(buf[:n], []byte("\n"))
	return line, nil
}

// IsFallbackHeader reports whether line, the first of a result, says that the
// dispatcher wrote it: ^# [A-Za-z0-9_-]+ result \(FALLBACK,  (and a blank).
func IsFallbackHeader(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("# "))
	if !ok {
		return false
	}
	n := 0
	for n < len(rest) && unitByte(rest[n]) {
		n++
	}
	return n > 0 && bytes.HasPrefix(rest[n:], []byte(" result (FALLBACK, "))
}

func unitByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// contractMax is how much of a result is searched for the lines of the contract.
const contractMax = 64 << 10

// Malformed says what the result at path lacks of the return contract: line 1
// "# <unit> result", and lines that start with Conclusion:, Files:, Open items:
// and Verification: within the first 64 KiB, in any order, empty or not. ""
// means nothing is missing. Blanks and a carriage return at the end of line 1
// do not matter. No file is fs.ErrNotExist, anything but a regular one
// atomicfile.ErrNotRegular.
func Malformed(path, unit string) (string, error) {
	f, err := atomicfile.OpenRegular(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return malformed(f, unit)
}

func malformed(r io.Reader, unit string) (string, error) {
	in := bufio.NewReaderSize(io.LimitReader(r, contractMax), 4096)
	missing := []string{"Conclusion:", "Files:", "Open items:", "Verification:"}
	first, start := true, true // start: the next piece begins a line
	for {
		piece, err := in.ReadSlice('\n')
		if len(piece) > 0 && start {
			if first && string(bytes.TrimRight(piece, " \t\r\n")) != "# "+unit+" result" {
				return fmt.Sprintf("line 1 is not %q", "# "+unit+" result"), nil
			}
			first = false
			for i, name := range missing {
				if bytes.HasPrefix(piece, []byte(name)) {
					missing = append(missing[:i], missing[i+1:]...)
					break
				}
			}
		}
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return "", fmt.Errorf("read result: %w", err)
		}
		if err == io.EOF {
			break
		}
		start = err == nil
	}
	if first {
		return "empty", nil
	}
	if len(missing) > 0 {
		return "missing " + strings.Join(missing, " "), nil
	}
	return "", nil
}

// ResponsePath returns where a response goes when the worker has written the
// result itself: r.md -> r.response.md, r.tar.gz -> r.tar.response.gz,
// r -> r.response, .md -> .md.response.
func ResponsePath(path string) string { return responsePath(path, 1) }

func responsePath(path string, n int) string {
	dir, base := filepath.Split(path)
	stem, ext := base, ""
	if i := strings.LastIndexByte(base, '.'); i > 0 && i < len(base)-1 {
		stem, ext = base[:i], base[i:]
	}
	if n > 1 {
		return fmt.Sprintf("%s%s.response-%d%s", dir, stem, n, ext)
	}
	return dir + stem + ".response" + ext
}

// PublishResponse puts body beside path, at ResponsePath or, when that name is
// taken by something that this unit did not write, at the first free one of
// <stem>.response-2<ext>, -3 and so on. It returns the name. A regular file there
// is replaced in one step when ours says that this unit wrote it (nil: never);
// one that already holds exactly body is left as it is. The mode is 0666 under
// the caller's umask. No reader sees a part of body.
func PublishResponse(path string, body []byte, ours func(existing string) bool) (string, error) {
	const tries = 10000
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return "", fmt.Errorf("publish response: %w", err)
	}
	temp := atomicfile.TempName(path, strconv.Itoa(os.Getpid())+responseTag)
	err := writeNew(temp, 0o666, func(w io.Writer) error {
		_, err := w.Write(body)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("publish response: %w", err)
	}
	defer atomicfile.Remove(temp)
	for n := 1; n <= tries; n++ {
		name := responsePath(path, n)
		err := atomicfile.Publish(temp, name)
		if errors.Is(err, atomicfile.ErrExists) {
			if holds(name, body) {
				return name, nil
			}
			info, lerr := atomicfile.Look(name)
			if lerr != nil || !info.Mode.IsRegular() || ours == nil || !ours(name) {
				continue
			}
			err = atomicfile.Rename(temp, name)
		}
		if err != nil {
			return "", fmt.Errorf("publish response: %w", err)
		}
		return name, atomicfile.SyncDir(filepath.Dir(name))
	}
	return "", fmt.Errorf("publish response: %d names beside %s are taken", tries, path)
}

// holds reports whether the regular file name has exactly the bytes of body.
func holds(name string, body []byte) bool {
	info, err := atomicfile.Look(name)
	if err != nil || !info.Mode.IsRegular() || info.Size != int64(len(body)) {
		return false
	}
	have, err := atomicfile.ReadRegular(name, int64(len(body)))
	return err == nil && bytes.Equal(have, body)
}

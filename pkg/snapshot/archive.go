package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"time"

	"github.com/klauspost/compress/zip"
)

// The members.
const (
	tailMember     = "tail.bin"
	manifestMember = "manifest.json"
)

const (
	// bufferSize is what is read at once, in bytes: large enough that calls cost
	// nothing, small enough that a buffer is still in the cache when it is summed.
	bufferSize = 256 << 10
	// dosEpoch is 1980-01-01 as a ZIP holds it, the earliest it can. A date that
	// is always the same says that it says nothing.
	dosEpoch = 0x0021
	// version45 of the format is the one with sizes of 64 bits.
	version45 = 45
	unixHost  = 3 << 8
	// The local header of the first member: 30 bytes, its name, then one extra
	// field of 20 bytes with both sizes in 64 bits.
	headerLen  = 30
	crcAt      = 14
	extraAt    = headerLen + len(tailMember)
	zip64Extra = 20
	zip64ID    = 1
	ones       = 0xffffffff
)

// part is the archive while it is being written.
type part struct {
	f   *os.File
	off int64
}

var zeros [bufferSize]byte

// Write appends. A run of zeros is not written but skipped, so that the hole in
// the tail of a worker that was cut under its writer costs no disk.
func (p *part) Write(b []byte) (int, error) {
	if len(b) >= 4096 && len(b) <= len(zeros) && b[0] == 0 && bytes.Equal(b, zeros[:len(b)]) {
		p.off += int64(len(b))
		return len(b), nil
	}
	n, err := p.f.WriteAt(b, p.off)
	p.off += int64(n)
	return n, err
}

// sums is the checksum and the digest of what goes through it. They are computed
// beside the writing; a buffer is free again when the next but one is added.
type sums struct {
	sha  hash.Hash
	crc  uint32
	todo chan []byte
	done chan struct{}
	busy bool
}

func newSums() *sums {
	s := &sums{sha: sha256.New(), todo: make(chan []byte), done: make(chan struct{})}
	go func() {
		for b := range s.todo {
			s.sha.Write(b)
			s.crc = crc32.Update(s.crc, crc32.IEEETable, b)
			s.done <- struct{}{}
		}
	}()
	return s
}

func (s *sums) wait() {
	if s.busy {
		<-s.done
		s.busy = false
	}
}

func (s *sums) add(b []byte) {
	s.wait()
	s.todo <- b
	s.busy = true
}

func (s *sums) close() {
	s.wait()
	close(s.todo)
}

// build writes the archive: at most size bytes of source, then the manifest. It
// returns the manifest as it stands in the archive.
//
// Sizes and checksum of the first member are not known before it is read, and a
// live file cannot be read twice. So its header is written with blanks that are
// filled in afterwards: readers see true sizes and no flag.
func build(ctx context.Context, f *os.File, source io.Reader, size int64, describe func(copied int64, sum []byte) Manifest) (Manifest, error) {
	out := &part{f: f}
	w := zip.NewWriter(out)
	extra := make([]byte, zip64Extra)
	binary.LittleEndian.PutUint16(extra, zip64ID)
	binary.LittleEndian.PutUint16(extra[2:], zip64Extra-4)
	head := member(tailMember)
	head.Extra = extra
	body, err := w.CreateRaw(head)
	if err != nil {
		return Manifest{}, err
	}
	s := newSums()
	copied, err := transfer(ctx, body, source, size, s)
	s.close()
	if err != nil {
		return Manifest{}, err
	}
	head.CRC32 = s.crc
	head.CompressedSize64, head.UncompressedSize64 = uint64(copied), uint64(copied)
	// The directory at the end gets an extra field of its own where it needs one.
	head.Extra = nil

	m := describe(copied, s.sha.Sum(nil))
	text := m.JSON("") + "\n"
	info := member(manifestMember)
	info.CRC32 = crc32.ChecksumIEEE([]byte(text))
	info.CompressedSize64, info.UncompressedSize64 = uint64(len(text)), uint64(len(text))
	if body, err = w.CreateRaw(info); err != nil {
		return m, err
	}
	if _, err := io.WriteString(body, text); err != nil {
		return m, err
	}
	if err := w.Close(); err != nil {
		return m, err
	}
	return m, patch(f, s.crc, copied)
}

func member(name string) *zip.FileHeader {
	h := &zip.FileHeader{
		Name:           name,
		Method:         zip.Store,
		CreatorVersion: unixHost | version45,
		ReaderVersion:  version45,
		ModifiedDate:   dosEpoch,
		ModifiedTime:   0,
	}
	h.ExternalAttrs = uint32(filePerm) << 16
	return h
}

// transfer copies until size bytes or the end of source, whichever comes first.
func transfer(ctx context.Context, to io.Writer, source io.Reader, size int64, s *sums) (copied int64, err error) {
	buffers := [2][]byte{make([]byte, bufferSize), make([]byte, bufferSize)}
	for i := 0; copied < size; i = 1 - i {
		if err := context.Cause(ctx); err != nil {
			return copied, err
		}
		b := buffers[i][:min(int64(bufferSize), size-copied)]
		n, err := io.ReadFull(source, b)
		if n > 0 {
			s.add(b[:n])
			if _, err := to.Write(b[:n]); err != nil {
				return copied, err
			}
			copied += int64(n)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return copied, nil
		}
		if err != nil {
			return copied, fmt.Errorf("read the tail: %w", err)
		}
	}
	return copied, nil
}

// patch fills in the header of the first member: in the fields of 32 bits the
// mark that sends a reader to the extra field, which has the sizes.
func patch(f *os.File, crc uint32, size int64) error {
	var fields [12]byte
	binary.LittleEndian.PutUint32(fields[0:], crc)
	binary.LittleEndian.PutUint32(fields[4:], ones)
	binary.LittleEndian.PutUint32(fields[8:], ones)
	if _, err := f.WriteAt(fields[:], crcAt); err != nil {
		return err
	}
	var sizes [16]byte
	binary.LittleEndian.PutUint64(sizes[0:], uint64(size))
	binary.LittleEndian.PutUint64(sizes[8:], uint64(size))
	_, err := f.WriteAt(sizes[:], int64(extraAt)+4)
	return err
}

// directoryFits looks at the end record before the library does. It makes room
// for as many members as the record claims, and a file that lies about that
// would be given gigabytes.
func directoryFits(r io.ReaderAt, size int64) error {
	const (
		endLen, endMark         = 22, 0x06054b50
		locLen                  = 20
		end64Len, end64Mark     = 56, 0x06064b50
		countAt, count64At      = 10, 32
		overflow            int = 0xffff
	)
	var end [endLen]byte
	if size < endLen {
		return errors.New("not an archive: too short")
	}
	if _, err := r.ReadAt(end[:], size-endLen); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(end[:]) != endMark {
		return errors.New("not an archive: no end record")
	}
	count := uint64(binary.LittleEndian.Uint16(end[countAt:]))
	at := size - endLen - locLen - end64Len
	var end64 [end64Len]byte
	if at >= 0 {
		if _, err := r.ReadAt(end64[:], at); err != nil {
			return err
		}
	}
	// Where it stands, this record goes before the short one.
	if binary.LittleEndian.Uint32(end64[:]) == end64Mark {
		count = binary.LittleEndian.Uint64(end64[count64At:])
	} else if count == uint64(overflow) {
		return errors.New("unexpected archive members: a record of many is missing")
	}
	if count != 2 {
		return fmt.Errorf("unexpected archive members: %d, not 2", count)
	}
	return nil
}

// bounded is a reader that refuses to be read without end: a directory that does
// not stop where its record says is read on by the library.
type bounded struct {
	r    io.ReaderAt
	left int64
}

// ReadAt reads, or fails when the bound is used up.
func (b *bounded) ReadAt(p []byte, off int64) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errors.New("unexpected archive members: the directory does not end")
	}
	return b.r.ReadAt(p, off)
}

// contents is what check has found.
type contents struct {
	manifest []byte
	size     int64
	sum      []byte
}

// check reads an archive back: its members, their kind, their checksums.
func check(ctx context.Context, r io.ReaderAt, size int64) (contents, error) {
	var c contents
	if err := directoryFits(r, size); err != nil {
		return c, err
	}
	guard := &bounded{r: r, left: 1 << 20}
	z, err := zip.NewReader(guard, size)
	if err != nil {
		return c, fmt.Errorf("not an archive: %w", err)
	}
	files := make(map[string]*zip.File)
	for _, f := range z.File {
		files[f.Name] = f
	}
	tail, info := files[tailMember], files[manifestMember]
	if len(z.File) != 2 || tail == nil || info == nil {
		return c, fmt.Errorf("unexpected archive members: %s", names(z.File))
	}
	for _, f := range z.File {
		if f.Method != zip.Store || f.CompressedSize64 != f.UncompressedSize64 {
			return c, fmt.Errorf("%s is not stored", f.Name)
		}
	}
	if info.UncompressedSize64 > manifestMax {
		return c, fmt.Errorf("manifest unreadable: %d bytes", info.UncompressedSize64)
	}
	guard.left = int64(info.UncompressedSize64) + 2*bufferSize
	from, err := info.Open()
	if err != nil {
		return c, fmt.Errorf("manifest unreadable: %w", err)
	}
	if c.manifest, err = io.ReadAll(from); err != nil {
		return c, fmt.Errorf("manifest unreadable: %w", err)
	}
	guard.left = size + bufferSize
	if from, err = tail.Open(); err != nil {
		return c, fmt.Errorf("read %s: %w", tailMember, err)
	}
	sha := sha256.New()
	c.size, err = io.CopyBuffer(sha, &interruptible{ctx, from}, make([]byte, bufferSize))
	if errors.Is(err, zip.ErrChecksum) {
		// The same fault as a wrong digest, seen by the weaker sum first.
		return c, fmt.Errorf("digest mismatch: %w", err)
	}
	if err != nil {
		return c, fmt.Errorf("read %s: %w", tailMember, err)
	}
	c.sum = sha.Sum(nil)
	return c, nil
}

func names(files []*zip.File) string {
	text := ""
	for i, f := range files {
		if i == 8 {
			return text + ", and more"
		}
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%.80q", f.Name)
	}
	return text
}

type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i *interruptible) Read(p []byte) (int, error) {
	if err := context.Cause(i.ctx); err != nil {
		return 0, err
	}
	return i.r.Read(p)
}

// stamp returns the time as it stands in a generated name.
func stamp(t time.Time) string { return t.UTC().Format("20060102T150405Z") }

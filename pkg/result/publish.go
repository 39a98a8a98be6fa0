package result

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"os"
)

// Publication is a text to be put at a result path.
type Publication struct {
	Path   string
	Temp   string
	Body   func(io.Writer) error
	Perm   fs.FileMode
	Proven bool
	Spare  string
	Owner  string
	Step   func(name string)
}

// Published says what became of a Publication.
type Published struct {
	Where    string
	Kept     string
	Ours     bool
	Existing Kind
	Note     string
}

// Publish puts a body at the result path.
func Publish(p Publication) (Published, error) { return Published{}, errors.New("not yet") }

// Sweep removes the hidden names of Publish.
func Sweep(path, owner string, keepDisplacedNonEmpty bool) error { return nil }

// writeTemp writes a hidden file beside path.
func writeTemp(path, tag string, perm fs.FileMode, body func(io.Writer) error) (string, error) {
	temp := atomicfile.TempName(path, tag)
	if err := atomicfile.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return "", err
	}
	err = body(f)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		atomicfile.Remove(temp)
		return "", fmt.Errorf("write %s: %w", temp, err)
	}
	return temp, nil
}

// Package userdir owns one answer: which directory the programs of this user on this
// machine share, whatever their TMPDIR, HOME or session. What is counted across all of
// them (pkg/slots) and what one may tell the next (pkg/preflight) lives there.
//
// It is no place for state directories, nor for anything that must survive a reboot.
// It does not know what is kept in it.
//
// Invariant: a directory that Open returns belongs to this user, is no link, and nobody
// else can read it or make anything in it.
package userdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Variable overrides the place. Programs that are to count each other must agree on it.
const Variable = "PRUN_USER_DIR"

// ErrUnsafe: what stands there cannot be trusted; the text says what to do.
var ErrUnsafe = errors.New("not a private directory of this user")

// spare is how many further names are tried in a directory that others may write to:
// somebody else can take a name, and all of the user's programs then agree on the next.
const spare = 8

// Open returns the shared directory, made if need be, and in it the directory sub. The
// error wraps ErrUnsafe when what stands there is a link, another user's, or open to
// others.
//
// The place does not follow TMPDIR or XDG_RUNTIME_DIR on purpose: they differ between a
// desktop, ssh and cron, and the latter vanishes at logout while units go on.
func Open(getenv func(string) string, sub string) (string, error) {
	if dir := getenv(Variable); strings.TrimSpace(dir) != "" {
		if !filepath.IsAbs(dir) {
			// Programs in different directories would each count for themselves.
			return "", fmt.Errorf("open user directory: %s=%q is not an absolute path", Variable, dir)
		}
		if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
			return "", fmt.Errorf("open user directory: %w", err)
		}
		return within(dir, sub)
	}
	base, err := place(getenv)
	if err != nil {
		return "", fmt.Errorf("open user directory: %w", err)
	}
	return among(base, sub)
}

// among takes the first name at base that is not somebody else's.
func among(base, sub string) (string, error) {
	var refused error
	for i := range spare {
		dir := base
		if i > 0 {
			dir += "-" + strconv.Itoa(i)
		}
		path, err := within(dir, sub)
		if err == nil || !errors.Is(err, ErrUnsafe) || ours(dir) {
			return path, err
		}
		refused = errors.Join(refused, err)
	}
	return "", refused
}

func within(dir, sub string) (string, error) {
	for _, dir := range []string{dir, filepath.Join(dir, sub)} {
		if err := private(dir); err != nil {
			return "", fmt.Errorf("open user directory %s: %w", dir, err)
		}
	}
	return filepath.Join(dir, sub), nil
}

// private makes dir if it is missing and checks what is there.
func private(dir string) error {
	err := os.Mkdir(dir, 0o700)
	made := err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	fi, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case fi.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%w: it is a link", ErrUnsafe)
	case !fi.IsDir():
		return fmt.Errorf("%w: it is no directory", ErrUnsafe)
	}
	return guarded(dir, fi, made)
}

package state

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

const claimPrefix = ".prun-claim-"

// ClaimResult claims path as a result for one live unit among those with this
// base. The claim is a lock on a file beside the state directories and lives
// as long as the lock does, so a crash needs no cleaning up; hand its descriptor
// on to whoever outlives the caller. ErrClaimed (and atomicfile.ErrLocked) is
// wrapped when another unit has it. Units with another base are not seen, nor
// are other users': their locks could not be opened, and a name that another
// user can make first must not be able to refuse us.
func ClaimResult(base, path string) (*atomicfile.Lock, error) {
	name := ClaimName(base, path)
	lock, err := atomicfile.TryLock(name)
	if errors.Is(err, atomicfile.ErrLocked) && notOurs(name) {
		err = fmt.Errorf("%w: another user's file", fs.ErrPermission)
	}
	if errors.Is(err, atomicfile.ErrLocked) {
		return nil, fmt.Errorf("claim result %s: %w: %w", path, ErrClaimed, err)
	}
	if err != nil {
		return nil, fmt.Errorf("claim result %s: %w", path, err)
	}
	return lock, nil
}

// ClaimName is the file that ClaimResult locks. It depends on what stands at path
// now: whoever will need it later keeps it.
func ClaimName(base, path string) string {
	return filepath.Join(base, claimPrefix+strconv.Itoa(os.Getuid())+"-"+resultHash(path))
}

// DropClaim removes the file of a claim that nobody holds any more, because
// whoever held it was killed. A name that is no claim of this user's, and one
// that is held, is left alone.
func DropClaim(name string) {
	if !strings.HasPrefix(filepath.Base(name), claimPrefix+strconv.Itoa(os.Getuid())+"-") {
		return
	}
	if fi, err := os.Lstat(name); err != nil || !fi.Mode().IsRegular() {
		return
	}
	if lock, err := atomicfile.TryLock(name); err == nil {
		_ = ReleaseClaim(lock)
	}
}

// ReleaseClaim gives a claim up and removes its file. A claim that is simply
// dropped leaves an empty file, which harms nobody.
func ReleaseClaim(lock *atomicfile.Lock) error {
	// Removed while held: the next claimant makes a new file, and TryLock takes
	// no lock on one that has lost its name.
	_ = os.Remove(lock.File().Name())
	return lock.Unlock()
}

// resultHash names a path whatever way it was spelled: links in its directory
// are resolved, the last element is taken as it is, since it need not exist.
func resultHash(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	// A link to a regular file is allowed at the result path; two links to one
	// file are one result.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:16])
}

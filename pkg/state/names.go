package state

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// The files of a unit's state directory. doc.go says for each of them who
// writes it, when, how, and what its absence means.
const (
	// FileTail holds what the worker said, byte for byte.
	FileTail = "tail"
	// FileStderr holds the worker's standard error where it does not share the
	// tail, and the reason of a refusal before launch.
	FileStderr = "tail.stderr-tmp"
	// FileResult holds the path of the result, not the result.
	FileResult = "result-file"
	// FileDispatchPID holds the number of the process that supervises the unit.
	FileDispatchPID = "dispatch-pid"
	// FilePreMtime holds the epoch seconds of a result that was there before.
	FilePreMtime = "pre-mtime"
	// FileTimestamp holds the epoch seconds of the dispatch.
	FileTimestamp = "timestamp"
	// FileInterpreter holds the path of a Python, or ours.
	FileInterpreter = "python-interpreter"
	// FileModel holds the name of the model that runs.
	FileModel = "model"
	// FileQuotaNote holds what quota routing changed.
	FileQuotaNote = "quota-note"
	// FilePreflightTail holds the output of the probes.
	FilePreflightTail = "preflight-tail"
	// FilePromptRelay holds the prompt with the rules of the house around it.
	FilePromptRelay = "prompt-relay"
	// FilePrompt holds the bytes that are the worker's standard input.
	FilePrompt = "prompt"
	// FileEnvWithheld names the variables the worker was not given.
	FileEnvWithheld = "env-withheld"
	// FileWorkerPID holds the worker's bare number, for old readers.
	FileWorkerPID = "worker-pid-unverified"
	// FileConversationID holds the id by which the session can be resumed.
	FileConversationID = "conversation-id"
	// FileCloneDir holds the path of the clone the worker runs in.
	FileCloneDir = "clone-dir"
	// FileQueued holds how many workers were ahead at the last look; it exists
	// while the unit waits for a slot.
	FileQueued = "queued"
	// FileReapReason and the two after it were written by the old Windows
	// watchdog; they are only read, and only to be named.
	FileReapReason = "reap-reason"
	// FileReapCmd is the old watchdog's kill script.
	FileReapCmd = "reap.cmd"
	// FileRunCmd is the old Windows front's launch script.
	FileRunCmd = "run-task.cmd"
	// FileLock is held for life by whoever answers for the unit.
	FileLock = "lock"
	// FileIdentity says who answers for the unit and where it is contained.
	FileIdentity = "identity.json"
	// FileWorker says who the worker is.
	FileWorker = "worker.json"
	// FileWorkerExit holds how the worker ended, the moment it was seen.
	FileWorkerExit = "worker-exit"
	// FileOutcome is the terminal marker.
	FileOutcome = "outcome.json"
	// FileOutcomeReserve holds the blocks the outcome will be written into, so
	// that a full disk cannot prevent it.
	FileOutcomeReserve = ".outcome"
	// FileSpareResult holds a body that could not be published at the result
	// path.
	FileSpareResult = "spare-result"
	// FileLaunch says what was asked for, for whoever has to conclude.
	FileLaunch = "launch.json"
	// DirWork is the scratch directory of a unit that was given none.
	DirWork = "work"
	// DirClone is the clone of a unit that was given a repository.
	DirClone = "clone"
	// DirDetached holds one locked entry for every unit that was started from
	// inside this one and detached from it, named by its keeper's number.
	DirDetached = "detached"
)

const (
	// Prefix begins the name of every state directory.
	Prefix = "prun-task-"
	// HiddenPrefix begins the name of a directory that is still being built;
	// it is not a unit.
	HiddenPrefix = ".new-"
	// NoHash stands in a directory name where the old shell front found no
	// program to hash with.
	NoHash = "nohash"

	hashLen  = 8
	nonceLen = 16
)

// Base returns the absolute directory in which state directories are made:
// PRUN_STATE_BASE, else the first of TMPDIR, TEMP and TMP that is not blank,
// else the system's. PRUN_STATE_BASE is for systems whose cleaners empty the
// temporary directory. Base looks at no file; a directory that is missing is
// found out by whoever makes something in it.
func Base(getenv func(string) string) string {
	base := ""
	for _, name := range []string{"PRUN_STATE_BASE", "TMPDIR", "TEMP", "TMP"} {
		if value := getenv(name); strings.TrimSpace(value) != "" {
			base = value
			break
		}
	}
	if base == "" {
		base = "/tmp"
		if runtime.GOOS == "windows" {
			base = os.TempDir()
		}
	}
	abs, err := filepath.Abs(base)
	if err != nil {
		// Only without a working directory; the cleaned text is then as good
		// as it gets, and the mkdir that follows says what is wrong.
		return filepath.Clean(base)
	}
	return abs
}

// CwdHash returns the eight hex digits that stand for dir in a directory name:
// the head of the SHA-256 of its path with links resolved. A directory that
// cannot be resolved is hashed as its absolute path.
func CwdHash(dir string) string {
	path := dir
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:])[:hashLen]
}

// NewNonce returns sixteen random lower-case hex digits.
func NewNonce() (string, error) {
	var b [nonceLen / 2]byte
	if _, err := io.ReadFull(rand.Reader, b[:]); err != nil {
		return "", fmt.Errorf("draw nonce: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// Name returns the base name of a state directory. pid is the number of the
// process that supervises the unit, the same that dispatch-pid holds.
func Name(hash, unit string, pid int, nonce string) string {
	return Prefix + hash + "-" + unit + "-" + strconv.Itoa(pid) + "-" + nonce
}

// HiddenName returns the name under which that directory is built. It becomes
// a unit by being renamed, so no reader ever sees half of one.
func HiddenName(hash, unit string, pid int, nonce string) string {
	return HiddenPrefix + Name(hash, unit, pid, nonce)
}

// ValidUnit reports whether id may name a unit: one or more ASCII letters,
// digits, dashes or underscores. Nothing else can be part of a path safely, on
// every system, in every shell that will handle it.
func ValidUnit(id string) bool {
	if id == "" {
		return false
	}
	for i := 0; i < len(id); i++ {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// UnitOf returns the unit id in the base name of a state directory, and
// whether the name has the shape of one. The id may hold dashes and digits
// itself, so the name is taken apart from both ends.
func UnitOf(dirname string) (string, bool) {
	rest, ok := strings.CutPrefix(dirname, Prefix)
	if !ok {
		return "", false
	}
	hash, rest, ok := strings.Cut(rest, "-")
	if !ok || hash != NoHash && !isHex(hash, hashLen) {
		return "", false
	}
	i := strings.LastIndexByte(rest, '-')
	if i < 0 || !isHex(rest[i+1:], nonceLen) {
		return "", false
	}
	rest = rest[:i]
	i = strings.LastIndexByte(rest, '-')
	if i < 0 {
		return "", false
	}
	pid := rest[i+1:]
	if pid == "" || strings.Trim(pid, "0123456789") != "" {
		return "", false
	}
	unit := rest[:i]
	return unit, ValidUnit(unit)
}

func isHex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}

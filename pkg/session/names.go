package session

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// The files of a task's directory; doc.go says who writes which.
const (
	FileMeta    = "meta.json"
	FileStatus  = "status.json"
	FileHelper  = "helper.json"
	FileChild   = "child.json"
	FilePrompt  = "prompt.md"
	FileReport  = "report.md"
	FileEvents  = "events.jsonl"
	FileStderr  = "stderr.log"
	FileDone    = ".done"
	FileLock    = "lock"
	FileGuard   = ".meta.lock"
	DirTurns    = "turns"
	DirPi       = "pi-session"
	FileTurn    = "turn.json"
	FileRequest = "stop-request"
	FileFrom    = "events-from"
	FileSwept   = "leftovers-ended"
)

const (
	// hiddenNew begins the name of a task or turn that is still being made, hiddenGone that of one being removed.
	hiddenNew  = ".herd-new-"
	hiddenGone = ".herd-gone-"
	// longestName leaves room for the prefixes and a nonce within the 255 bytes of a name.
	longestName = 190
)

// Root is where the tasks of one device live.
type Root struct {
	Dir    string // the state root, absolute
	Device string
}

// Sessions is the directory whose entries are the tasks.
func (r Root) Sessions() string { return filepath.Join(r.Dir, "sessions", r.Device) }

// Task returns the task of that name, which need not exist.
func (r Root) Task(name string) Task {
	return Task{Root: r, Name: name, Dir: filepath.Join(r.Sessions(), name)}
}

// Tasks lists the tasks in the order of their names. A sessions directory that does not exist holds none.
func (r Root) Tasks() ([]Task, error) {
	entries, err := os.ReadDir(r.Sessions())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	tasks := make([]Task, 0, len(entries))
	for _, e := range entries {
		if e.IsDir() && !hidden(e.Name()) {
			tasks = append(tasks, r.Task(e.Name()))
		}
	}
	// ReadDir sorts by name already, byte by byte, as the original did.
	return tasks, nil
}

func hidden(name string) bool {
	return strings.HasPrefix(name, hiddenNew) || strings.HasPrefix(name, hiddenGone)
}

var unsafeRun = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// Sanitize makes a name of a task or device out of any text: every run of other characters becomes one dash.
func Sanitize(name string) string {
	return strings.Trim(unsafeRun.ReplaceAllString(name, "-"), "-")
}

// ValidName reports whether a sanitised text can name a task: not a way to another directory, and not one of the
// names under which tasks are made and removed.
func ValidName(name string) bool {
	return name != "" && name != "." && name != ".." && !hidden(name) && len(name) <= longestName
}

// StateRoot returns the directory for the state: DELEGATE_STATE_DIR, else delekit below XDG_STATE_HOME or
// ~/.local/state (LOCALAPPDATA on Windows).
func StateRoot(getenv func(string) string) (string, error) {
	dir := getenv("DELEGATE_STATE_DIR")
	if dir == "" {
		home := first(getenv("HOME"), getenv("USERPROFILE"))
		base := first(getenv("XDG_STATE_HOME"), filepath.Join(home, ".local", "state"))
		if runtime.GOOS == "windows" {
			base = first(getenv("LOCALAPPDATA"), filepath.Join(home, "AppData", "Local"))
		}
		if home == "" && !filepath.IsAbs(base) {
			return "", errors.New("find state directory: neither DELEGATE_STATE_DIR nor HOME is set")
		}
		dir = filepath.Join(base, "delekit")
	}
	if rest, ok := strings.CutPrefix(dir, "~/"); ok {
		dir = filepath.Join(first(getenv("HOME"), getenv("USERPROFILE")), rest)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find state directory: %w", err)
	}
	return abs, nil
}

// Device returns this device's id: DELEKIT_DEVICE_ID from the environment, else from the user's device.env, else a
// hash of the host's name. State never crosses devices.
func Device(getenv func(string) string) string {
	id := getenv("DELEKIT_DEVICE_ID")
	if id == "" {
		config := first(getenv("XDG_CONFIG_HOME"), filepath.Join(first(getenv("HOME"), getenv("USERPROFILE")), ".config"))
		if text, err := readSmall(filepath.Join(config, "delekit", "device.env")); err == nil {
			id = Assignments(text)["DELEKIT_DEVICE_ID"]
		}
	}
	if id == "" {
		host, err := os.Hostname()
		if err != nil {
			host = ""
		}
		sum := sha256.Sum256([]byte(host))
		id = "dev-" + hex.EncodeToString(sum[:])[:8]
	}
	if id = Sanitize(id); id == "" || id == "." || id == ".." {
		return "dev-unknown"
	}
	return id
}

var assignment = regexp.MustCompile(`^([A-Z][A-Z0-9_]*)=(.*)$`)

// Assignments reads KEY=VALUE lines. Quotes around a value go; comments, blank and malformed lines are left out.
func Assignments(text []byte) map[string]string {
	set := make(map[string]string)
	for l := range strings.Lines(string(text)) {
		m := assignment.FindStringSubmatch(strings.TrimSpace(l))
		if m == nil {
			continue
		}
		set[m[1]] = strings.Trim(strings.Trim(strings.TrimSpace(m[2]), `"`), `'`)
	}
	return set
}

// turns lists the numbers of the turns that have a directory, in order.
func (t Task) turns() []int {
	entries, err := os.ReadDir(t.Path(DirTurns))
	if err != nil {
		return nil
	}
	var list []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n > 0 && e.IsDir() {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list
}

func first(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}

package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Find returns the program that a turn of this backend runs, for Turn.Bin. getenv returns "" for an unset variable
// and isSet tells an empty one from that. Only agy's rules look at the file system; the others take the variable as
// it stands, or the backend's own name, and leave the search to whoever starts the worker.
//
// Its error wraps ErrNoBinary.
func Find(b Backend, getenv func(string) string, isSet func(string) bool, goos string) (string, error) {
	if f, ok := b.(interface {
		find(getenv func(string) string, isSet func(string) bool, goos string) (string, error)
	}); ok {
		return f.find(getenv, isSet, goos)
	}
	if v, ok := b.(interface{ binaryVar() string }); ok {
		if path := getenv(v.binaryVar()); strings.TrimSpace(path) != "" {
			return path, nil
		}
	}
	return "", nil
}

// find applies agy's rules: ANTIGRAVITY_BIN with ~ and $NAME expanded; with a separator in it a regular file, seen
// from the current directory; else a name looked for on PATH, and on Windows in the place of its installer. Links
// are resolved, so that the recorded program is the one that runs. Set but empty means none.
func (agy) find(getenv func(string) string, isSet func(string) bool, goos string) (string, error) {
	name := "agy"
	if isSet("ANTIGRAVITY_BIN") {
		name = expand(getenv("ANTIGRAVITY_BIN"), getenv)
	}
	if path, ok := findAgy(name, getenv, goos); ok {
		return path, nil
	}
	return "", fmt.Errorf("%w: no runnable Antigravity CLI found; install agy or set ANTIGRAVITY_BIN", ErrNoBinary)
}

func findAgy(name string, getenv func(string) string, goos string) (string, bool) {
	if strings.TrimSpace(name) == "" {
		return "", false
	}
	separators := "/"
	if goos == "windows" {
		separators = `/\`
	}
	if strings.ContainsAny(name, separators) {
		return resolved(name)
	}
	if path, err := exec.LookPath(name); err == nil {
		return resolved(path)
	}
	if goos == "windows" && (strings.EqualFold(name, "agy") || strings.EqualFold(name, "agy.exe")) {
		if local := getenv("LOCALAPPDATA"); local != "" {
			return resolved(filepath.Join(local, "agy", "bin", "agy.exe"))
		}
	}
	return "", false
}

// resolved returns the absolute path, free of links, of a regular file.
func resolved(path string) (string, bool) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", false
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", false
	}
	info, err := os.Stat(path)
	return path, err == nil && info.Mode().IsRegular()
}

// expand replaces a leading ~ and $NAME or ${NAME}; a name that is not set stays as it is written.
func expand(s string, getenv func(string) string) string {
	if s == "~" || strings.HasPrefix(s, "~/") || strings.HasPrefix(s, `~\`) {
		if home := first(getenv("HOME"), getenv("USERPROFILE")); home != "" {
			s = home + s[1:]
		}
	}
	return os.Expand(s, func(name string) string {
		if v := getenv(name); v != "" {
			return v
		}
		return "$" + name
	})
}

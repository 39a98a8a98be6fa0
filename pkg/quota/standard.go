package quota

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Home is the user's home directory as the original finds it: by the variables, else by
// the list of users; "" when there is none.
func Home(getenv func(string) string) string {
	names := []string{"HOME", "USERPROFILE"}
	if runtime.GOOS == "windows" {
		names = []string{"USERPROFILE", "HOME"}
	}
	for _, name := range names {
		if dir := getenv(name); strings.TrimSpace(dir) != "" {
			return dir
		}
	}
	if u, err := user.Current(); err == nil {
		return u.HomeDir
	}
	return ""
}

// Standard fills a Config from the environment: where the snapshot is, its times, and a
// deployed script with an interpreter for it. Agy and Env are the caller's to add. The
// warnings name variables whose value is bad, and the default that is used instead.
func Standard(getenv func(string) string) (c Config, warnings []string) {
	c.Home = Home(getenv)
	c.Source = SourceOf(getenv, c.Home)
	for _, v := range []struct {
		name string
		def  time.Duration
		into *time.Duration
	}{
		{"AGY_QUOTA_TTL_SECONDS", DefaultTTL, &c.TTL}, {"AGY_QUOTA_TIMEOUT_SECONDS", DefaultTimeout, &c.Timeout},
	} {
		*v.into = v.def
		text := getenv(v.name)
		if strings.TrimSpace(text) == "" {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31); err == nil && n > 0 {
			*v.into = time.Duration(n) * time.Second
			continue
		}
		warnings = append(warnings, fmt.Sprintf("%s=%s is not a whole number of seconds above 0; using the default %d",
			v.name, strconv.Quote(text[:min(len(text), 80)]), int(v.def/time.Second)))
	}
	if c.Home != "" {
		c.Script = filepath.Join(c.Home, ".claude", "agent-quota.py")
		c.Python = python(getenv("PATH"))
	}
	return c, warnings
}

// python finds an interpreter on a search path, "" when there is none. The stubs that
// Windows puts there in place of one only open a shop.
func python(path string) string {
	names := []string{"python3", "python"}
	if runtime.GOOS == "windows" {
		names = []string{"python3.exe", "python.exe"}
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) || strings.Contains(dir, `\WindowsApps`) {
			continue
		}
		for _, name := range names {
			full := filepath.Join(dir, name)
			if fi, err := os.Stat(full); err == nil && fi.Mode().IsRegular() && (fi.Mode()&0o111 != 0 || runtime.GOOS == "windows") {
				return full
			}
		}
	}
	return ""
}

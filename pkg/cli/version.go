package cli

import (
	"runtime"
	"runtime/debug"
)

// version is what the build knows about itself: the tag it was made from, else
// the commit, else "devel". No file states it, so none can be wrong.
func version() string {
	v := "devel"
	info, ok := debug.ReadBuildInfo()
	if ok {
		if info.Main.Version != "" && info.Main.Version != "(devel)" {
			v = info.Main.Version
		} else {
			for _, s := range info.Settings {
				if s.Key == "vcs.revision" && len(s.Value) >= 12 {
					v += "-" + s.Value[:12]
				}
				if s.Key == "vcs.modified" && s.Value == "true" {
					v += "-modified"
				}
			}
		}
	}
	return v + " (" + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + ")"
}

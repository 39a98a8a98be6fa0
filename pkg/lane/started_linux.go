package lane

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
)

// startedAt reports whether a process began when "ps -o lstart" said so. The
// kernel counts in hundredths since boot, and the boot time that it tells is
// rounded, hence the slack.
func startedAt(id pid.ID, lstart string) bool {
	at, err := time.ParseInLocation("Mon Jan _2 15:04:05 2006", strings.Join(strings.Fields(lstart), " "), time.Local)
	if err != nil {
		// Fields made the padding of a one-digit day a single blank.
		return false
	}
	boot, err := bootTime()
	if err != nil {
		return false
	}
	began := boot.Add(time.Duration(id.Start) * (time.Second / 100))
	diff := began.Sub(at)
	return diff > -2*time.Second && diff < 2*time.Second
}

func bootTime() (time.Time, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "btime "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return time.Unix(n, 0), err
		}
	}
	return time.Time{}, os.ErrNotExist
}

package slots

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// FreeMemory returns how many bytes a new process could have without swapping, as Linux
// reckons it (MemAvailable). It is that of the machine, whatever limit a container has.
// Elsewhere the error wraps errors.ErrUnsupported.
func FreeMemory() (int64, error) {
	data, err := atomicfile.ReadRegular("/proc/meminfo", 64<<10)
	if err != nil {
		return 0, fmt.Errorf("read available memory: %w: %w", errors.ErrUnsupported, err)
	}
	return parseMeminfo(data)
}

func parseMeminfo(data []byte) (int64, error) {
	for line := range bytes.Lines(data) {
		rest, ok := bytes.CutPrefix(line, []byte("MemAvailable:"))
		if !ok {
			continue
		}
		words := strings.Fields(string(rest))
		if len(words) == 2 && words[1] == "kB" {
			if n, err := strconv.ParseInt(words[0], 10, 64); err == nil && n >= 0 && n <= math.MaxInt64>>10 {
				return n << 10, nil
			}
		}
	}
	return 0, fmt.Errorf("read available memory: %w: no MemAvailable", errors.ErrUnsupported)
}

// sizes are the suffixes of ParseSize.
var sizes = []struct {
	suffix string
	factor float64
}{
	{"tib", 1 << 40}, {"gib", 1 << 30}, {"mib", 1 << 20}, {"kib", 1 << 10},
	{"tb", 1e12}, {"gb", 1e9}, {"mb", 1e6}, {"kb", 1e3}, {"b", 1},
}

// ParseSize reads an amount of memory: a number of bytes, or a number with KiB, MiB, GiB,
// TiB, or their decimal kin KB, MB, GB, TB, in any case, blanks between them allowed.
func ParseSize(text string) (int64, error) {
	number, factor := strings.ToLower(strings.TrimSpace(text)), 1.0
	for _, s := range sizes {
		if rest, ok := strings.CutSuffix(number, s.suffix); ok {
			number, factor = strings.TrimSpace(rest), s.factor
			break
		}
	}
	if number == "" || strings.Trim(number, "0123456789.") != "" {
		return 0, fmt.Errorf("%q is not an amount of memory, such as 2GiB", text)
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n*factor >= 1<<62 {
		return 0, fmt.Errorf("%q is not an amount of memory, such as 2GiB", text)
	}
	return int64(n * factor), nil
}

// Command soak runs for a long time what make test runs for a short one: the
// random kills and the raced publication, with a seed that is printed first and
// repeats a failure (-seed).
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// stage is one long test.
type stage struct {
	name string
	env  []string
	args []string
}

func main() {
	seed := flag.Int64("seed", time.Now().UnixNano(), "seed of everything random")
	rounds := flag.Int("rounds", 200, "random kills of each kind and containment")
	races := flag.Int("races", 1000, "raced publications for each kind of late writer")
	only := flag.String("run", "", "run only the stages whose name holds this text")
	flag.Parse()
	stages := []stage{
		{
			name: "kills",
			env:  []string{"PRUN_TEST_ROUNDS=" + strconv.Itoa(*rounds), "PRUN_TEST_SEED=" + strconv.FormatInt(*seed, 10)},
			args: []string{"-parallel", "4", "-run", "TestRandomKills", "./cmd/prun-dispatch"},
		},
		{
			name: "publication",
			args: []string{"-run", "Race", "./pkg/result", "-rounds", strconv.Itoa(*races)},
		},
	}
	fmt.Printf("soak: seed %d\n", *seed)
	failed := 0
	for _, s := range stages {
		if !strings.Contains(s.name, *only) {
			continue
		}
		fmt.Printf("soak: %s\n", s.name)
		cmd := exec.Command("go", append([]string{"test", "-tags", "forceposix", "-count=1", "-timeout", "60m"}, s.args...)...)
		cmd.Env = append(os.Environ(), s.env...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		at := time.Now()
		if err := cmd.Run(); err != nil {
			failed++
			fmt.Printf("soak: %s failed: %v (again with: make soak, or go run ./testdata/soak -seed %d -run %s)\n", s.name, err, *seed, s.name)
		}
		fmt.Printf("soak: %s took %v\n", s.name, time.Since(at).Round(time.Second))
	}
	if failed > 0 {
		os.Exit(1)
	}
}

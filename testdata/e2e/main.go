// Command e2e runs prun-dispatch with the real codex CLI against the loopback model server: a plain answer, a tool
// call, a tool call that leaves processes behind, refusals by the provider, a model that hangs, a resume. Then it runs
// two lanes of agent-fanout, one with codex and one with omp, to an integrated commit, and herd with codex, claude and
// pi through a task's whole life. It is run by `make e2e`, needs npm once to install the clients, and no account.
//
// It owns a cache directory with the client, which later runs use again, and a temporary directory that it removes
// unless a case fails. With -serve ADDRESS it only runs the model server, for trying a client by hand.
//
// Everything that it starts is ended by prun-dispatch or by itself; that is what most cases check.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/prun-suite/prun/testdata/modelserver"
)

// codexVersion is the one that the facts in this repository were seen with.
const codexVersion = "0.171.0"

func main() {
	serve := flag.String("serve", "", "run only the model server on this loopback address")
	version := flag.String("codex", codexVersion, "version of @openai/codex to run")
	only := flag.String("run", "", "run only the case of this name (and those it needs)")
	keep := flag.Bool("keep", false, "keep the temporary directory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, *serve, *version, *only, *keep)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, serve, version, only string, keep bool) error {
	address := serve
	if address == "" {
		address = "127.0.0.1:0"
	}
	server := &modelserver.Server{}
	base, err := listen(ctx, address, server)
	if err != nil {
		return err
	}
	if serve != "" {
		fmt.Println(base)
		<-ctx.Done()
		return nil
	}
	dispatch, err := exec.LookPath("prun-dispatch")
	if err != nil {
		return fmt.Errorf("find prun-dispatch (make e2e puts bin/ on PATH): %w", err)
	}
	if dispatch, err = filepath.Abs(dispatch); err != nil {
		return fmt.Errorf("find prun-dispatch: %w", err)
	}
	codex, err := install(ctx, version)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "prun-e2e-")
	if err != nil {
		return fmt.Errorf("make a directory for the run: %w", err)
	}
	b := &bench{ctx: ctx, dir: dir, dispatch: dispatch, codex: codex, server: server, base: base, done: map[string]outcome{}}
	failed := b.all(only) + b.lanes(only) + b.herd(only)
	if failed > 0 || keep {
		fmt.Println("e2e: kept", dir)
	} else if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the run's directory: %w", err)
	}
	if failed > 0 {
		return fmt.Errorf("%d cases failed", failed)
	}
	return nil
}

// listen starts the server on a loopback address and returns its base URL. It refuses any other address.
func listen(ctx context.Context, address string, h http.Handler) (string, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", fmt.Errorf("listen for the client: %w", err)
	}
	if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
		l.Close()
		return "", fmt.Errorf("listen on %s: not a loopback address", address)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		s.Close()
	}()
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, "e2e: warning: model server:", err)
		}
	}()
	return "http://" + l.Addr().String() + "/v1", nil
}

// install returns the codex program of that version, installing it into the cache the first time.
func install(ctx context.Context, version string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = "build"
	}
	dir, err := filepath.Abs(filepath.Join(cache, "prun-e2e", "codex-"+version))
	if err != nil {
		return "", fmt.Errorf("find the cache: %w", err)
	}
	name := "codex"
	if runtime.GOOS == "windows" {
		name += ".cmd"
	}
	program := filepath.Join(dir, "node_modules", ".bin", name)
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", fmt.Errorf("install codex: npm is needed: %w", err)
	}
	// Installed beside and renamed, so that an interrupted installation is not taken for a whole one.
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("make the cache: %w", err)
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".installing-")
	if err != nil {
		return "", fmt.Errorf("make the cache: %w", err)
	}
	defer os.RemoveAll(temp)
	fmt.Printf("e2e: installing @openai/codex@%s into %s\n", version, dir)
	limited, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	c := exec.CommandContext(limited, npm, "install", "--no-audit", "--no-fund", "--prefix", temp, "@openai/codex@"+version)
	c.WaitDelay = 5 * time.Second
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install codex: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	if err := os.Rename(temp, dir); err != nil {
		return "", fmt.Errorf("install codex: %w", err)
	}
	return program, nil
}

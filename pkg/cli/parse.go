package cli

import (
	"errors"
	"io"
)

var errLater = errors.New("not built yet")

func parse(tool *Tool, options Runner, env *Env) (Runner, error) { return options, nil }

func writeManual(w io.Writer, tool *Tool, options Runner) error { return errLater }

func writeCompletion(w io.Writer, tool *Tool, options Runner, args []string) error { return errLater }

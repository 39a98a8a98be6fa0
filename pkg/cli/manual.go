package cli

import "io"

func writeManual(w io.Writer, tool *Tool, options Runner) error { return nil }

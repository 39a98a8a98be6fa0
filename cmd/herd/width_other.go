//go:build !linux

package main

import "os"

// terminalWidth is not asked for here; COLUMNS or a usual width stands in.
func terminalWidth(*os.File) int { return 0 }

package proc

import (
	"errors"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// isBatch reports whether a program is one for the command interpreter: npm
// installs its clients as such.
func isBatch(path string) bool {
	// The system drops blanks and dots at the end of a name.
	switch strings.ToLower(filepath.Ext(strings.TrimRight(path, " ."))) {
	case ".bat", ".cmd":
		return true
	}
	return false
}

// batchLine returns the interpreter's path and the command line by which it
// runs the batch file path with args as they are. Go quotes for programs, which
// is not safe here: the interpreter reads the line first, and to it \" ends a
// quotation, after which & starts another command and %NAME% is replaced.
func batchLine(path string, args []string) (cmd, line string, err error) {
	dir, err := windows.GetSystemDirectory()
	if err != nil {
		return "", "", err
	}
	if strings.ContainsAny(path, "\"\r\n") {
		return "", "", errors.New("the name of a batch file cannot hold quotes and newlines")
	}
	var b strings.Builder
	// No autorun commands, no !NAME!, and the outermost quotes are taken off.
	b.WriteString(`cmd.exe /d /e:on /v:off /s /c ""` + escapePercent(path) + `"`)
	for _, a := range args {
		if strings.ContainsAny(a, "\r\n") {
			return "", "", errors.New("a batch file cannot be given an argument with a newline")
		}
		b.WriteByte(' ')
		quoteForBatch(&b, a)
	}
	b.WriteString(`"`)
	return filepath.Join(dir, "cmd.exe"), b.String(), nil
}

// quoteForBatch quotes a so that the interpreter and the program behind it
// agree. Where a has nothing that the interpreter would act upon, it is quoted
// as for any program. Else a quote is doubled, which leaves the interpreter
// inside the quotation; programs made with a C library since 2008 (node, Python)
// read that as one quote, those made with Go do not.
func quoteForBatch(b *strings.Builder, a string) {
	if !strings.ContainsAny(a, "&|<>()^%!") && strings.Count(a, `"`)%2 == 0 {
		b.WriteString(quoted(a, `\"`))
		return
	}
	b.WriteString(escapePercent(quoted(a, `""`)))
}

// quoted puts a into quotes; backslashes count only before a quote.
func quoted(a, quote string) string {
	var b strings.Builder
	b.WriteByte('"')
	slashes := 0
	for i := range len(a) {
		switch a[i] {
		case '\\':
			slashes++
		case '"':
			b.WriteString(strings.Repeat(`\`, slashes) + quote[:1])
			slashes = 0
		default:
			slashes = 0
		}
		b.WriteByte(a[i])
	}
	b.WriteString(strings.Repeat(`\`, slashes) + `"`)
	return b.String()
}

// percent is a percent sign that begins no variable: what follows the first
// sign is an empty part of a variable that always exists.
const percent = `%%cd:~,%`

func escapePercent(s string) string { return strings.ReplaceAll(s, "%", percent) }

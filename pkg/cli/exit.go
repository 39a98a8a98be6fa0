package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Statuses that any tool can end with.
const (
	statusUsage    = 2
	statusInternal = 70
	statusOutput   = 74
	statusPipe     = 128 + 13
)

// Exits says what each status of a tool means; the texts are EXIT STATUS of the
// manual.
type Exits map[int]string

// Exit is an error that carries the status of the process. Code 0 with an Err
// prints the message and still ends with 0.
type Exit struct {
	Code   int
	Err    error // printed as `name: error: …`; nil prints nothing
	Silent bool  // nothing is printed: the tool has said it, or there is nothing to say
	Quoted bool  // the text of Err is printed alone on its line, as it is: an old script's message
	Hint   string
}

// Error returns the text of the error, or the status.
func (e *Exit) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the error that the status was given for.
func (e *Exit) Unwrap() error { return e.Err }

// Status ends the tool with a status and prints nothing. Status(0) is nil.
func Status(code int) error {
	if code == 0 {
		return nil
	}
	return &Exit{Code: code, Silent: true}
}

// Fail ends the tool with a status and `name: error: …`.
func Fail(code int, format string, args ...any) error {
	return &Exit{Code: code, Err: fmt.Errorf(format, args...)}
}

// Usage ends the tool with status 2 and `name: error: …`.
func Usage(format string, args ...any) error {
	return Fail(statusUsage, format, args...)
}

// Quoted ends the tool with a status and a text that is printed verbatim on
// stderr, with a newline at its end. It may have several lines.
func Quoted(code int, text string) error {
	return &Exit{Code: code, Err: errors.New(text), Quoted: true}
}

// WithHint adds a `name: hint: …` line to an error.
func WithHint(err error, format string, args ...any) error {
	hint := fmt.Sprintf(format, args...)
	var exit *Exit
	if errors.As(err, &exit) {
		copied := *exit
		copied.Hint = hint
		return &copied
	}
	return &Exit{Code: 1, Err: err, Hint: hint}
}

// finish turns the answer of a run into a status and its messages.
func (e *Env) finish(err error, out *output) int {
	var exit *Exit
	switch {
	case errors.As(err, &exit):
	case err != nil && closedPipe(err):
		return statusPipe
	case err != nil && out.failed() != nil:
		exit = &Exit{Code: statusOutput, Err: fmt.Errorf("write standard output: %w", out.failed())}
	case err != nil:
		exit = &Exit{Code: 1, Err: err}
	case out.failed() != nil && closedPipe(out.failed()):
		return statusPipe
	case out.failed() != nil:
		// A run that thinks it went well although nobody got its words.
		exit = &Exit{Code: statusOutput, Err: fmt.Errorf("write standard output: %w", out.failed())}
	default:
		exit = &Exit{}
	}
	if exit.Err != nil && !exit.Silent {
		if exit.Quoted {
			io.WriteString(e.Stderr, strings.TrimSuffix(exit.Err.Error(), "\n")+"\n")
		} else {
			e.say("error", exit.Err.Error())
		}
	}
	if exit.Hint != "" && !exit.Silent {
		e.say("hint", exit.Hint)
	}
	if !e.declared(exit.Code) {
		// The status itself stands: a caller may still know it, and a lost worker's
		// code would be worse than an untidy manual.
		e.say("internal error", fmt.Sprintf("exit status %d is not declared", exit.Code))
	}
	return exit.Code
}

func (e *Env) declared(code int) bool {
	switch code {
	case 0, statusUsage, statusOutput, statusPipe:
		return true
	}
	for _, exits := range e.exits {
		if _, ok := exits[code]; ok {
			return true
		}
	}
	return strings.Join(e.other, "") != ""
}

// Package modelserver is a model provider for tests: a loopback HTTP server that speaks the OpenAI Responses API as
// codex wants it and the Anthropic Messages API as claude wants it, and answers by a script. It needs no account and
// no network, so that the real clients can be run end to end.
//
// It owns the wire formats and nothing else. It listens only where its caller lets it, keeps no state between
// conversations, and a request lasts no longer than its client stays connected.
//
// The script is in the newest user message: its lines that begin with "MOCK:" are steps. The step used is the number
// of tool calls already made since that message, so that a tool call is followed by the next step. Steps:
//
//	text WORDS      answer
//	slow N SECONDS  N pieces of an answer, SECONDS apart
//	hang            the first event, then nothing for ever
//	hang0           not even headers
//	status N        HTTP status N
//	usage_limit     the plan's limit is reached
//	shell COMMAND   a shell tool call; \n in it is a newline
//	empty           an answer of nothing
//
// Out of steps, or without any, the answer is "the mock has nothing more to say".
package modelserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
)

// maxBody bounds a request; conversations of real clients are far below it.
const maxBody = 64 << 20

const outOfSteps = "text the mock has nothing more to say"

// Server is an http.Handler. Its zero value is ready.
type Server struct {
	mu       sync.Mutex
	requests []Request
}

// A Request is what the server saw of one call to a model.
type Request struct {
	Path  string
	Model string
	Step  string // the step that answered it
	Tools []string
	Items int // messages and tool results in the conversation
	Auth  bool
}

// Requests returns the calls so far, oldest first.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

func (s *Server) record(r Request) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	return len(s.requests)
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/responses"):
		s.responses(w, r)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages"):
		s.messages(w, r)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/count_tokens"):
		writeJSON(w, http.StatusOK, object{"input_tokens": 10})
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/models"):
		writeJSON(w, http.StatusOK, object{"object": "list", "models": []any{}, "data": []any{}})
	case r.Method == http.MethodHead:
		w.WriteHeader(http.StatusOK)
	default:
		writeJSON(w, http.StatusNotFound, object{"error": object{"message": "no such path here", "type": "not_found"}})
	}
}

type object = map[string]any

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A client that has gone away is its own affair.
	_ = json.NewEncoder(w).Encode(v)
}

func readJSON(w http.ResponseWriter, r *http.Request, v any) bool {
	var body io.Reader = http.MaxBytesReader(w, r.Body, maxBody)
	if r.Header.Get("Content-Encoding") == "zstd" { // pi
		z, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBody))
		if err != nil {
			writeJSON(w, http.StatusBadRequest, object{"error": object{"message": err.Error(), "type": "invalid_request_error"}})
			return false
		}
		defer z.Close()
		body = io.LimitReader(z, maxBody)
	}
	data, err := io.ReadAll(body)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, object{"error": object{"message": err.Error(), "type": "invalid_request_error"}})
	}
	return err == nil
}

// A turn is the part of a conversation that chooses a step.
type turn struct {
	steps []string
	calls int
}

// user takes a user message; one with steps begins a new script.
func (t *turn) user(text string) {
	var steps []string
	for line := range strings.SplitSeq(text, "\n") {
		if step, ok := strings.CutPrefix(strings.TrimSpace(line), "MOCK:"); ok {
			steps = append(steps, strings.TrimSpace(step))
		}
	}
	if len(steps) > 0 {
		t.steps, t.calls = steps, 0
	}
}

func (t *turn) step() string {
	if t.calls < len(t.steps) {
		return t.steps[t.calls]
	}
	return outOfSteps
}

// refuse answers the steps that end a request before its stream begins.
func refuse(w http.ResponseWriter, r *http.Request, verb, rest string, anthropic bool) bool {
	fail := func(status int, kind, message string) bool {
		e := object{"type": kind, "message": message}
		if anthropic {
			writeJSON(w, status, object{"type": "error", "error": e})
			return true
		}
		if kind == "usage_limit_reached" {
			e["plan_type"], e["resets_in_seconds"] = "plus", 3600
		} else {
			e["code"] = kind
		}
		writeJSON(w, status, object{"error": e})
		return true
	}
	switch verb {
	case "status":
		status, err := strconv.Atoi(rest)
		if err != nil || status < 400 || status > 599 {
			status = http.StatusInternalServerError
		}
		kinds := map[int]string{401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 529: "overloaded_error"}
		kind := kinds[status]
		if kind == "" {
			kind = "api_error"
		}
		return fail(status, kind, fmt.Sprintf("the mock says %d", status))
	case "usage_limit":
		if anthropic {
			return fail(http.StatusTooManyRequests, "rate_limit_error", "this request would exceed your account's limit")
		}
		return fail(http.StatusTooManyRequests, "usage_limit_reached", "The usage limit has been reached")
	case "hang0":
		<-r.Context().Done()
		return true
	}
	return false
}

// A stream writes server-sent events.
type stream struct {
	w http.ResponseWriter
	r *http.Request
}

func openStream(w http.ResponseWriter, r *http.Request) stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	return stream{w, r}
}

// send writes one event whose name is its type. An error means that the client is gone, which the next wait sees.
func (s stream) send(kind string, event object) {
	event["type"] = kind
	data, err := json.Marshal(event)
	if err != nil {
		panic(err) // only values made here come here
	}
	fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", kind, data)
	if f, ok := s.w.(http.Flusher); ok {
		f.Flush()
	}
}

// wait lets time pass and reports whether the client is still there.
func (s stream) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.r.Context().Done():
		return false
	}
}

// pieces reads the arguments of slow.
func pieces(rest string) (texts []string, gap time.Duration) {
	var n int
	var seconds float64
	if _, err := fmt.Sscan(rest, &n, &seconds); err != nil || n < 1 || n > 10_000 {
		n, seconds = 1, 0
	}
	for i := range n {
		texts = append(texts, fmt.Sprintf("word%d ", i))
	}
	return texts, time.Duration(seconds * float64(time.Second))
}

//go:build unix

package supervise

import (
	"strings"
	"testing"
	"time"
)

// A write whose deadline passed before the first byte was tried (a machine that
// had no time for the supervisor) lost the name of the unit's directory: front
// door and supervisor then waited for each other.
func TestMessageSurvivesAPassedDeadline(t *testing.T) {
	ours, theirs, err := pair("test")
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	out, in := newLink(ours, ours, time.Nanosecond), newLink(theirs, theirs, 0)
	sent := make(chan error, 1)
	go func() { sent <- out.send(message{Kind: kindDir, Dir: "/d"}) }()
	_ = theirs.SetReadDeadline(time.Now().Add(5 * time.Second))
	m, err := in.recv()
	if err != nil || m.Kind != kindDir || m.Dir != "/d" {
		t.Errorf("received %+v, %v", m, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// What a stopped reader does not take is dropped whole, or ends the connection:
// the reader never gets a line made of two.
func TestDroppedMessageLeavesNoHalfLine(t *testing.T) {
	ours, theirs, err := pair("test")
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	out, in := newLink(ours, ours, time.Millisecond), newLink(theirs, theirs, 0)
	failed := 0
	for range 200 {
		if out.send(message{Kind: kindNote, Text: strings.Repeat("x", 10_000)}) != nil {
			failed++
		}
	}
	if failed == 0 {
		t.Fatal("nothing was dropped")
	}
	ours.Close()
	for n := 0; ; n++ {
		m, err := in.recv()
		if err != nil {
			if n == 0 || strings.Contains(err.Error(), "decode") {
				t.Errorf("after %d messages: %v", n, err)
			}
			return
		}
		if m.Kind != kindNote || len(m.Text) != 10_000 {
			t.Fatalf("message %d is %q of %d bytes", n, m.Kind, len(m.Text))
		}
	}
}

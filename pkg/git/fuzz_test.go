package git

import (
	"strings"
	"testing"
)

// What git prints holds names that anybody chose.
func FuzzWorktrees(f *testing.F) {
	f.Add("worktree /a\x00HEAD 1234\x00branch refs/heads/x\x00\x00worktree /b\nc\x00detached\x00locked why\x00\x00")
	f.Add("worktree /a\nbare\n\nworktree C:/b\nHEAD\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, sep := range []string{"\x00", "\n"} {
			list := parseWorktrees(text, sep)
			if len(list) > strings.Count(text, "worktree") {
				t.Errorf("%q: %d worktrees", text, len(list))
			}
		}
	})
}

func FuzzStatus(f *testing.F) {
	f.Add("# branch.oid 12ab\x00# branch.head main\x001 .M N... 100644 100644 100644 1 2 a b\x00? c\nd\x00! e/\x00u UU N... 1 2 3 4 a b c x\x00")
	f.Add("# branch.oid (initial)\x00# branch.head (detached)\x001 .M S.M. 160000 160000 160000 1 2 sub\x00")
	f.Fuzz(func(t *testing.T, text string) {
		c := parseStatus(text)
		records := strings.Count(text, "\x00") + 1
		if n := c.Tracked + c.Files + len(c.Ignored); n > records || len(c.Submodules) > c.Tracked {
			t.Errorf("%q: %+v of %d records", text, c, records)
		}
		if c.Dirty() != (c.Tracked+c.Files > 0) || c.Unmerged && !c.Dirty() {
			t.Errorf("%q: %+v", text, c)
		}
	})
}

package supervise

import "os"

// writeNow is for systems whose pipes take deadlines; these do not.
func writeNow(*os.File, []byte) int { return 0 }

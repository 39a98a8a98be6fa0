// Package git is the only caller of git in the suite.
//
// It owns: making the throwaway clone a code-writing unit works in, asking
// whether a directory is a repository, and the hygiene of every git call
// (which variables and settings git may see, how long it may take, and that
// nothing of it stays behind).
//
// It does not own: where a clone lies, what is said to the user about it, and
// what becomes of the work done in it. It never commits, never fetches over
// the network on its own account, and never writes to the repository it was
// given.
//
// Invariant: after [Clone] returns, either the directory is a complete clone
// that names no remote, or nothing of it is left. The source repository is
// byte for byte what it was in both cases.
//
// # Hygiene
//
// A caller may itself run inside a git hook or alias, so GIT_DIR, GIT_INDEX_FILE
// and their kin may be set and would silently point git at another repository.
// Every variable that binds git to one repository is removed. Questions about
// the user's repository are asked under the user's configuration, because only
// that knows which files are ignored and which foreign-owned directories are
// trusted. The clone itself is made under a configuration of our own, because
// the user's could rewrite the path (url.*.insteadOf), forbid the file
// transport, install hooks from a template or rename the remote.
//
// Background helpers (gc, maintenance, the fsmonitor daemon) are switched off
// for our own calls: they outlive the command that started them and hold its
// output open.
package git

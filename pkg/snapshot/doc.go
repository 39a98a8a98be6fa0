// Package snapshot copies the tail of a unit into an archive of its own, and
// checks such an archive.
//
// It owns the shape of the archive (a ZIP of exactly two stored members,
// tail.bin and manifest.json), what the manifest says, the private directory it
// lands in, and the way it gets its name. It knows no unit and no state
// directory: it is given the path of a file. Which exit status a failure means
// is for its caller to say; the classes of [Error] are made for that.
//
// The archive outlives the run it was taken of, so what it must not do is lie:
// equal counts of bytes do not prove that the file held still, and everything
// said here is worded so.
//
// Invariant: a name holds either what stood there before or a whole archive
// that was read back, compared and synced. Nothing is ever replaced, and after
// an error nothing of ours is left but, at most, a directory.
//
// Memory is flat: a few buffers, whatever the size of the file.
package snapshot

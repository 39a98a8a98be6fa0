package state

// DirDetached holds one entry for every unit that was started from inside this
// one and detached from it, named by its keeper's number.
const DirDetached = "detached"

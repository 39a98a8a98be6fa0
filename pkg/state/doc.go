// Package state owns what is on disk in a unit's state directory.
package state

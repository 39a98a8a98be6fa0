//go:build !linux

package main

const immediate = false

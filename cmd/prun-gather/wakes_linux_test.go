package main

// immediate: changes are told and not polled for.
const immediate = true

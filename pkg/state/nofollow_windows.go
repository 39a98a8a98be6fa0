package state

// openNoFollow is nothing: making a link takes a privilege here.
const openNoFollow = 0

// openNonblock is nothing: a pipe has a name of its own kind here.
const openNonblock = 0
